//! A request finds its model, whatever is loaded meanwhile, and ends with one response or an error.

use std::time::Duration;

use kushi_core::{
    Alarm, Clock as _, End, Error, ErrorKind, ModelSpec, OnlyResponse, QueuePolicy, Request, Response,
    Ticket, Timings,
};
use kushi_dataplane::{Inference, Registry, Submitted};
use kushi_testkit::{PATIENCE, Scene, echo_spec, queue_of, wide};

fn version(number: u64) -> Scene {
    Scene::new(ModelSpec { version: number, ..echo_spec() })
}

fn serving(scene: &Scene) -> Registry {
    let registry = Registry::default();
    assert!(registry.publish("echo", vec![scene.runner.clone()]).is_empty());
    registry
}

fn find(registry: &Registry, version: Option<u64>) -> Inference {
    Inference::find(registry, "echo", version).unwrap_or_else(|error| panic!("{error}"))
}

fn reload(registry: &Registry, scene: &Scene) {
    for replaced in registry.publish("echo", vec![scene.runner.clone()]) {
        assert!(replaced.retire(PATIENCE));
    }
}

fn refusal(inference: &mut Inference, registry: &Registry, request: Request) -> Error {
    inference.submit(registry, request).err().expect("it is refused")
}

#[test]
fn a_request_that_meets_a_reload_goes_to_the_version_that_serves_now() {
    let (old, new) = (version(1), version(2));
    let registry = serving(&old);
    let mut inference = find(&registry, None);
    reload(&registry, &new);
    let Ok(Submitted::Moved(request)) = inference.submit(&registry, new.request(7, 1)) else {
        panic!("the old version takes nothing more");
    };
    assert_eq!(inference.spec().version, 2);
    assert!(matches!(inference.submit(&registry, request), Ok(Submitted::Queued(..))));
    assert!(new.letters.answer(7).error().is_none());
}

#[test]
fn one_whose_version_has_gone_hears_so() {
    let (old, new) = (version(1), version(2));
    let registry = serving(&old);
    let mut inference = find(&registry, Some(1));
    reload(&registry, &new);
    let error = refusal(&mut inference, &registry, new.request(7, 1));
    let text = "Request for unknown model: 'echo' version 1 is not at ready state";
    assert_eq!((error.kind, &*error.message), (ErrorKind::ModelUnavailable, text));
}

#[test]
fn a_server_that_closes_moves_no_request() {
    let scene = version(1);
    let registry = serving(&scene);
    let mut inference = find(&registry, None);
    scene.runner.stop_admitting();
    let error = refusal(&mut inference, &registry, scene.request(7, 1));
    assert_eq!(error.kind, ErrorKind::ShuttingDown);
    assert!(error.message.starts_with("[request id: 7] Server is stopping"), "{error}");
    assert!(scene.runner.retire(PATIENCE));
    assert_eq!(refusal(&mut inference, &registry, scene.request(8, 1)).kind, ErrorKind::ShuttingDown);
}

#[test]
fn a_refusal_names_its_request() {
    let queue = queue_of([QueuePolicy { max_requests: 1, ..wide() }]);
    let scene = Scene::new(ModelSpec { queue, ..echo_spec() });
    let registry = serving(&scene);
    scene.plug();
    scene.submit(scene.request(1, 1));
    let mut inference = find(&registry, None);
    for (id, text) in [("mine", "[request id: mine] "), ("", "[request id: <id_unknown>] ")] {
        let request = Request { id: id.into(), ..scene.request(2, 1) };
        let error = refusal(&mut inference, &registry, request);
        assert_eq!(*error.message, format!("{text}Exceeds maximum queue size"));
    }
    scene.puppet.release_all();
}

/// A model whose queue has patience for 10 ms.
fn hurrying() -> Scene {
    Scene::new(ModelSpec {
        queue: queue_of([QueuePolicy { default_timeout_us: 10_000, ..wide() }]),
        ..echo_spec()
    })
}

/// A request with a deadline in a second.
fn hurried(scene: &Scene) -> Ticket {
    let deadline = Some(scene.clock.now() + Duration::from_secs(1));
    scene.submit(Request { deadline, ..scene.request(7, 1) })
}

#[test]
fn one_that_waits_longer_than_its_queue_has_patience_ends_there() {
    let scene = hurrying();
    scene.plug();
    let ticket = hurried(&scene);
    let mut alarm = Alarm::of(&ticket);
    assert_eq!(alarm.when(), Some(scene.clock.now() + Duration::from_millis(10)));
    scene.clock.advance(Duration::from_millis(10));
    assert!(!alarm.ring(&ticket), "its end is on its way");
    assert_eq!(scene.letters.answer(7).error().map(|error| error.kind), Some(ErrorKind::DeadlineExceeded));
    scene.puppet.release_all();
}

#[test]
fn one_that_is_executed_is_given_up_at_its_deadline() {
    let scene = hurrying();
    scene.puppet.hold();
    let ticket = hurried(&scene);
    scene.puppet.await_batches(1);
    let mut alarm = Alarm::of(&ticket);
    scene.clock.advance(Duration::from_millis(10));
    assert!(!alarm.ring(&ticket), "it may still come in time");
    assert_eq!(alarm.when(), ticket.deadline);
    scene.clock.advance(Duration::from_secs(1));
    assert!(alarm.ring(&ticket));
    assert_eq!(alarm.when(), None);
    scene.puppet.release_all();
}

#[test]
fn one_response_and_no_other_number_is_an_answer() {
    let scene = version(1);
    let failure = Error::new(ErrorKind::EngineFailed, "it broke");
    let wrong = |count| {
        Error::new(ErrorKind::EngineFailed, format!("model 'm' gave {count} responses, expected exactly 1"))
    };
    for (count, result, expected) in [
        (0, Ok(()), Err(wrong(0))),
        (1, Ok(()), Ok(1)),
        (2, Ok(()), Err(wrong(2))),
        (0, Err(failure.clone()), Err(failure.clone())),
        (1, Err(failure.clone()), Err(failure.clone())),
    ] {
        let mut only = OnlyResponse::default();
        for number in 1..=count {
            let earlier = only.put((number, Response::default()));
            assert_eq!(earlier.map(|(earlier, _)| earlier), (number > 1).then(|| number - 1));
        }
        let request = Box::new(scene.request(1, 1));
        let mut end = End { result, timings: Timings::default(), request };
        assert_eq!(only.close("m", &mut end).map(|(number, _)| number), expected);
    }
}
