//! A request finds its model, whatever is loaded meanwhile, and ends with one response or an error.

use std::future::{Future as _, poll_fn};
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use kushi_core::{
    Alarm, Clock as _, End, Error, ErrorKind, Lease, ModelSpec, OnlyResponse, Parameter, QueuePolicy,
    Recipient, Reply, Request, Response, Sequence, SequenceId, Ticket, Timings,
};
use kushi_dataplane::{AskedVersion, Attempt, Begun, Inference, Registry, RouteKey, RoutesSpec};
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
    Inference::find(registry, "echo", version.into(), |_| None).unwrap_or_else(|error| panic!("{error}"))
}

fn reload(registry: &Registry, scene: &Scene) {
    for replaced in registry.publish("echo", vec![scene.runner.clone()]) {
        assert!(replaced.retire(PATIENCE));
    }
}

/// Waits in the letters of a scene, and keeps the ticket.
struct Reader<'a>(&'a Scene);

impl Recipient for Reader<'_> {
    type Place = &'static str;
    type Waiting = (&'static str, Ticket);

    fn open(&self) -> (&'static str, Reply) {
        ("a place", Reply::new(self.0.letters.clone(), 7))
    }

    fn queued(&self, place: &'static str, ticket: Ticket, lease: Option<Lease>) -> Self::Waiting {
        drop(lease);
        (place, ticket)
    }
}

/// Made for an attempt, or what came back of the one before.
fn remade(scene: &Scene, attempt: Attempt<'_>) -> Request {
    let id =
        attempt.refused.map_or_else(|| "first".into(), |refused| format!("{} again", refused.request.id));
    Request { id, reply: attempt.reply, ..scene.request(7, 1) }
}

fn refusal(inference: Inference, registry: &Registry, scene: &Scene, id: &str) -> Error {
    let begun = inference.begin(registry, &Reader(scene), |attempt| {
        Ok::<_, Error>((Request { id: id.into(), reply: attempt.reply, ..scene.request(7, 1) }, ()))
    });
    begun.err().expect("it is refused")
}

#[test]
fn a_request_that_meets_a_reload_goes_to_the_version_that_serves_now() {
    let (old, new) = (version(1), version(2));
    let registry = serving(&old);
    let mut asked = Vec::new();
    let begun = find(&registry, None).begin(&registry, &Reader(&new), |attempt| {
        if asked.is_empty() {
            reload(&registry, &new);
        }
        asked.push((attempt.spec.version, attempt.refused.as_ref().map(|refused| refused.spec.version)));
        Ok::<_, Error>((remade(&new, attempt), "beside"))
    });
    let Begun { waiting: (place, _ticket), spec, beside } = begun.unwrap_or_else(|error| panic!("{error}"));
    assert_eq!((place, spec.version, beside), ("a place", 2, "beside"));
    assert_eq!(asked, [(1, None), (2, Some(1))]);
    let answer = new.letters.answer(7);
    assert!(answer.error().is_none());
    assert_eq!(answer.end.request.id, "first again");
}

#[test]
fn so_does_one_that_is_made_later() {
    let (old, new) = (version(1), version(2));
    let registry = serving(&old);
    let (reader, mut made) = (Reader(&new), 0);
    let mut begun = pin!(find(&registry, None).begin_later(&registry, &reader, async |attempt| {
        made += 1;
        // Somebody else has a turn meanwhile.
        let mut has_waited = false;
        poll_fn(|context| {
            context.waker().wake_by_ref();
            if std::mem::replace(&mut has_waited, true) { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
        Ok::<_, Error>((remade(&new, attempt), made))
    }));
    let mut context = Context::from_waker(Waker::noop());
    assert!(begun.as_mut().poll(&mut context).is_pending());
    reload(&registry, &new);
    assert!(begun.as_mut().poll(&mut context).is_pending(), "it is made for the other version");
    let Poll::Ready(Ok(Begun { spec, beside: made, .. })) = begun.as_mut().poll(&mut context) else {
        panic!("it has its place");
    };
    assert_eq!((spec.version, made), (2, 2));
    assert_eq!(new.letters.answer(7).end.request.id, "first again");
}

fn two() -> [Scene; 2] {
    [1, 2].map(|version| Scene::without_drivers(ModelSpec { version, ..echo_spec() }))
}

/// Two versions that share the requests which name none.
fn sharing(scenes: &[Scene; 2], weights: [f64; 2]) -> Registry {
    let registry = Registry::default();
    let runners = scenes.iter().map(|scene| scene.runner.clone()).collect();
    let weights = [1, 2].into_iter().zip(weights).collect();
    let routes = RoutesSpec { weights, sticky: Some("user".into()), ..RoutesSpec::default() };
    assert!(registry.publish_beside("echo", runners, &[], Some(routes.into())).is_empty());
    registry
}

/// The version that gets a request, for which `fill` says more.
fn version_of(
    registry: &Registry,
    scenes: &[Scene; 2],
    header: Option<&str>,
    fill: impl Fn(&mut Request),
) -> u64 {
    let key = |name: &str| header.filter(|_| name == "user").map(|header| RouteKey::of(header.as_bytes()));
    let inference = Inference::find(registry, "echo", AskedVersion::Any, key).expect("it serves");
    let begun = inference.begin(registry, &Reader(&scenes[0]), |attempt| {
        let scene = &scenes[attempt.spec.version as usize - 1];
        let mut request = Request { reply: attempt.reply, ..scene.request(7, 1) };
        fill(&mut request);
        Ok::<_, Error>((request, ()))
    });
    let begun = begun.expect("it has its place");
    assert!(scenes[0].letters.answer(7).error().is_none());
    begun.spec.version
}

#[test]
fn requests_that_name_no_version_are_shared_out() {
    let scenes = two();
    let registry = sharing(&scenes, [9.0, 1.0]);
    let versions: Vec<u64> = (0..500).map(|_| version_of(&registry, &scenes, None, |_| ())).collect();
    let second = versions.iter().filter(|version| **version == 2).count();
    assert!(second.abs_diff(50) <= 2, "{second}");
}

#[test]
fn a_key_says_where_a_request_goes_however_it_comes() {
    let scenes = two();
    let registry = sharing(&scenes, [1.0, 1.0]);
    let mut seen = [0, 0];
    for user in 0..40_i64 {
        let text = user.to_string();
        let of = |value: Parameter| {
            version_of(&registry, &scenes, None, |request| {
                request.parameters.push(("user".into(), value.clone()));
            })
        };
        let expected = version_of(&registry, &scenes, Some(&text), |_| ());
        seen[expected as usize - 1] += 1;
        assert_eq!(of(Parameter::String(text.clone())), expected);
        assert_eq!(of(Parameter::Int(user)), expected);
        // A sequence goes on where it began, and what is said of the request itself comes first.
        let sequence = || Some(Box::new(Sequence { id: SequenceId::Number(77), ..Sequence::default() }));
        let both = version_of(&registry, &scenes, Some(&text), |request| request.sequence = sequence());
        assert_eq!(both, expected);
    }
    assert!(seen.iter().all(|&count| count > 5), "{seen:?}");
    for id in [SequenceId::Number(5), SequenceId::Number(6), SequenceId::Text("a".into())] {
        let go = || {
            version_of(&registry, &scenes, None, |request| {
                request.sequence = Some(Box::new(Sequence { id: id.clone(), ..Sequence::default() }));
            })
        };
        let first = go();
        assert!((0..10).all(|_| go() == first));
    }
}

#[test]
fn a_request_that_meets_other_weights_follows_them() {
    let scenes = two();
    let registry = sharing(&scenes, [1.0, 0.001]);
    let find = || Inference::find(&registry, "echo", AskedVersion::Any, |_| None).expect("it serves");
    let inference = find();
    assert_eq!(inference.spec().version, 1);
    let weights = [(2, 1.0)].into();
    let routes = RoutesSpec { weights, ..RoutesSpec::default() };
    for replaced in registry.publish_beside("echo", Vec::new(), &[2], Some(routes.into())) {
        assert!(replaced.retire(PATIENCE));
    }
    let begun = inference
        .begin(&registry, &Reader(&scenes[1]), |attempt| Ok::<_, Error>((remade(&scenes[1], attempt), ())));
    assert_eq!(begun.map(|begun| begun.spec.version).map_err(|error| error.to_string()), Ok(2));
    assert!(scenes[1].letters.answer(7).error().is_none());
}

#[test]
fn what_cannot_be_made_asks_nobody() {
    let scene = version(1);
    let registry = serving(&scene);
    let begun = find(&registry, None)
        .begin(&registry, &Reader(&scene), |_| Err::<(Request, ()), _>(Error::invalid("it makes no sense")));
    assert_eq!(begun.err().map(|error| error.message.into_owned()).as_deref(), Some("it makes no sense"));
    assert_eq!(scene.puppet.seen().len(), 0);
}

#[test]
fn one_whose_version_has_gone_hears_so() {
    let (old, new) = (version(1), version(2));
    let registry = serving(&old);
    let inference = find(&registry, Some(1));
    reload(&registry, &new);
    let error = refusal(inference, &registry, &new, "7");
    let text = "Request for unknown model: 'echo' version 1 is not at ready state";
    assert_eq!((error.kind, &*error.message), (ErrorKind::ModelUnavailable, text));
}

#[test]
fn a_server_that_closes_moves_no_request() {
    let scene = version(1);
    let registry = serving(&scene);
    let (before, after) = (find(&registry, None), find(&registry, None));
    scene.runner.stop_admitting();
    let error = refusal(before, &registry, &scene, "7");
    assert_eq!(error.kind, ErrorKind::ShuttingDown);
    assert!(error.message.starts_with("[request id: 7] Server is stopping"), "{error}");
    assert!(scene.runner.retire(PATIENCE));
    assert_eq!(refusal(after, &registry, &scene, "8").kind, ErrorKind::ShuttingDown);
}

#[test]
fn a_refusal_names_its_request() {
    let queue = queue_of([QueuePolicy { max_requests: 1, ..wide() }]);
    let scene = Scene::new(ModelSpec { queue, ..echo_spec() });
    let registry = serving(&scene);
    scene.plug();
    scene.submit(scene.request(1, 1));
    for (id, text) in [("mine", "[request id: mine] "), ("", "[request id: <id_unknown>] ")] {
        let error = refusal(find(&registry, None), &registry, &scene, id);
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
