//! How a run ends when it does not come to its end.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use kushi_core::{
    Clock as _, Error, ErrorKind, FailureReason, ModelSpec, Parameter, QueuePolicy, Request, Runner,
};
use kushi_testkit::{Act, PATIENCE, Scene, echo_spec, int32, queue_of, until, wide};

use crate::site::{Site, lead, model, step};
use crate::two_models;

fn fault() -> Error {
    Error::new(ErrorKind::EngineFailed, "the puppet is tired")
}

#[test]
fn the_error_of_a_step_is_that_of_the_request() {
    for failing in ["first", "second"] {
        let (site, ensemble) = two_models(true);
        site.scene(failing).puppet.script([Act::Fail(fault())]);
        site.ask(&ensemble, 1);
        let error = site.error(1);
        let text = "in ensemble 'ensemble', the puppet is tired";
        assert_eq!((error.kind, &*error.message), (ErrorKind::EngineFailed, text));
        let failed = |runner: &Runner| runner.statistics().failures(FailureReason::Backend);
        assert_eq!((failed(&ensemble), failed(&site.scene(failing).runner)), (1, 1));
        site.ask(&ensemble, 2);
        assert_eq!(site.value(2), 2);
    }
}

#[test]
fn an_error_inside_an_inner_ensemble_names_both() {
    let mut site = Site::new([model("m", &["INPUT"], &["OUTPUT"])]);
    let inner = [step("m", &[("INPUT", "INPUT")], &[("OUTPUT", "OUTPUT")])];
    site.ensemble(model("inner", &["INPUT"], &["OUTPUT"]), &inner);
    let outer = site.chained(&["inner"]);
    site.scene("m").puppet.script([Act::Fail(fault())]);
    site.ask(&outer, 1);
    assert_eq!(site.error(1).message, "in ensemble 'ensemble', in ensemble 'inner', the puppet is tired");
}

/// `slow` and `other` both begin with the request.
fn two_branches() -> (Site, Arc<Runner>) {
    let one = |name: &str| model(name, &["INPUT"], &["OUTPUT"]);
    let mut site = Site::new([one("slow"), one("other")]);
    let steps = ["slow", "other"].map(|name| step(name, &[("INPUT", "in")], &[("OUTPUT", name)]));
    let ensemble = site.ensemble(model("ensemble", &["in"], &["slow", "other"]), &steps);
    (site, ensemble)
}

#[test]
fn an_error_in_one_branch_gives_the_other_up() {
    let (site, ensemble) = two_branches();
    site.scene("slow").puppet.script([Act::Late]);
    site.scene("other").puppet.hold();
    site.scene("other").puppet.script([Act::Fail(fault())]);
    site.ask(&ensemble, 1);
    let slow = site.scene("slow").puppet.late();
    site.scene("other").puppet.release_all();
    until("the other branch is given up", || slow.is_abandoned(0));
    assert_eq!(site.letters.unread(), 0, "the step still reads the inputs");
    drop(slow);
    assert_eq!(site.error(1).message, "in ensemble 'ensemble', the puppet is tired");
}

#[test]
fn a_full_queue_of_a_step_ends_the_request_at_once() {
    let narrow = QueuePolicy { max_requests: 1, ..wide() };
    let second = ModelSpec { name: "second".into(), queue: queue_of([narrow]), ..echo_spec() };
    let mut site = Site::new([ModelSpec { name: "first".into(), ..echo_spec() }, second]);
    let ensemble = site.chained(&["first", "second"]);
    site.scene("second").plug();
    site.ask(&ensemble, 1);
    until("one waits", || site.scene("second").runner.backlog().requests == 1);
    site.ask(&ensemble, 2);
    let error = site.error(2);
    let text = "in ensemble 'ensemble', [request id: 2] Exceeds maximum queue size";
    assert_eq!((error.kind, &*error.message), (ErrorKind::Overloaded, text));
    site.scene("second").puppet.release_all();
    assert_eq!(site.value(1), 1);
    let refused = |runner: &Runner| runner.statistics().failures(FailureReason::Rejected);
    assert_eq!((refused(&ensemble), refused(&site.scene("second").runner)), (1, 1));
}

#[test]
fn a_panic_of_a_step_is_an_error_of_the_request() {
    let (site, ensemble) = two_models(false);
    site.scene("second").puppet.script([Act::Panic]);
    site.ask(&ensemble, 1);
    assert_eq!(site.error(1).kind, ErrorKind::EngineFailed);
    site.ask(&ensemble, 2);
    assert_eq!(site.value(2), 2);
}

#[test]
fn an_asker_that_goes_cancels_the_step_that_runs() {
    for step in ["first", "second"] {
        let (site, ensemble) = two_models(false);
        site.scene(step).puppet.script([Act::Late]);
        let ticket = site.ask(&ensemble, 1);
        let batch = site.scene(step).puppet.late();
        assert!(!batch.is_abandoned(0));
        assert!(ticket.cancel());
        until("the step is cancelled", || batch.is_abandoned(0));
        drop(batch);
        assert_eq!(site.error(1), Error::new(ErrorKind::Cancelled, ""));
        assert_eq!(ensemble.statistics().failures(FailureReason::Canceled), 1);
        assert_eq!(ensemble.drain(PATIENCE) + site.scene("second").runner.drain(PATIENCE), 0);
    }
}

#[test]
fn an_asker_that_goes_leaves_the_queue_of_its_step() {
    let (site, ensemble) = two_models(false);
    let second = &site.scene("second");
    second.plug();
    let ticket = site.ask(&ensemble, 1);
    until("the second step waits", || second.runner.backlog().requests == 1);
    ticket.cancel();
    until("it has left the queue", || second.runner.backlog().requests == 0);
    assert_eq!(site.error(1).kind, ErrorKind::Cancelled);
}

#[test]
fn an_asker_that_goes_between_two_steps_begins_no_other() {
    let (site, ensemble) = two_models(false);
    site.scene("first").puppet.script([Act::Late]);
    let ticket = site.ask(&ensemble, 1);
    let batch = site.scene("first").puppet.late();
    let before = site.scene("second").puppet.seen().len();
    ticket.cancel();
    batch.scatter(&[Some(int32(&[1, 1], [1]))]);
    assert_eq!(site.error(1).kind, ErrorKind::Cancelled);
    assert_eq!(site.scene("second").puppet.seen().len(), before);
}

#[test]
fn a_deadline_reaches_the_step_that_waits() {
    let (site, ensemble) = two_models(false);
    site.scene("second").plug();
    let deadline = Some(site.clock.now() + Duration::from_secs(5));
    let ticket = lead(&ensemble, Request { deadline, priority: 1, ..site.request(1, &[Some(1)]) });
    until("the second step waits", || site.scene("second").runner.backlog().requests == 1);
    site.clock.advance(Duration::from_secs(6));
    assert!(ticket.expire(), "nobody needs to wait for it any more");
    assert_eq!(site.error(1), Error::expired());
    assert_eq!(site.scene("second").runner.backlog().requests, 0);
}

#[test]
fn a_queue_of_a_step_that_loses_patience_says_so_while_the_step_is_busy() {
    let impatient = QueuePolicy { default_timeout_us: 1000, ..wide() };
    let second = ModelSpec { queue: queue_of([impatient]), ..model("second", &["INPUT"], &["OUTPUT"]) };
    let mut site = Site::new([model("first", &["INPUT"], &["OUTPUT"]), second]);
    let ensemble = site.chained(&["first", "second"]);
    site.scene("second").plug();
    site.ask(&ensemble, 1);
    let error = site.error(1);
    let text = "in ensemble 'ensemble', Request timeout expired";
    assert_eq!((error.kind, &*error.message), (ErrorKind::DeadlineExceeded, text));
    assert_eq!(site.scene("second").runner.backlog().requests, 0);
}

#[test]
fn a_step_has_what_belongs_to_its_request() {
    let (site, ensemble) = two_models(false);
    site.scene("second").puppet.script([Act::Late]);
    let deadline = Some(site.clock.now() + Duration::from_secs(500));
    let parameters = vec![("a".to_owned(), Parameter::Int(1))];
    let request = site.request(1, &[Some(1)]);
    let request = Request { deadline, parameters, priority: 1, timeout_us: Some(7), ..request };
    lead(&ensemble, request);
    let batch = site.scene("second").puppet.late();
    let child = batch.request(0).expect("a request");
    assert_eq!((&*child.id, child.priority, child.timeout_us, child.deadline), ("1", 1, Some(7), deadline));
    assert_eq!(child.parameters, [("a".to_owned(), Parameter::Int(1))]);
}

#[test]
fn each_of_many_requests_ends_once_whatever_becomes_of_it() {
    const THREADS: u64 = 4;
    const EACH: u64 = 400;
    for inline in [false, true] {
        let (mut site, _) = two_branches();
        let narrow = QueuePolicy { max_requests: 3, ..wide() };
        let join = ModelSpec { queue: queue_of([narrow]), ..model("join", &["A", "B"], &["C"]) };
        let _ = site.serve(Scene::without_drivers(join));
        if inline {
            site.scene("slow").earn_inline();
            site.scene("other").earn_inline();
        }
        let steps = [
            step("slow", &[("INPUT", "in")], &[("OUTPUT", "a")]),
            step("other", &[("INPUT", "in")], &[("OUTPUT", "b")]),
            step("join", &[("A", "a"), ("B", "b")], &[("C", "out")]),
        ];
        let ensemble = site.ensemble(model("both", &["in"], &["out"]), &steps);
        let faults = [Act::Echo, Act::Echo, Act::Fail(fault()), Act::Echo, Act::Drop, Act::Silence];
        site.scene("other").puppet.script(std::iter::repeat_n(faults, 40).flatten());
        thread::scope(|scope| {
            for thread in 0..THREADS {
                let (site, ensemble) = (&site, &ensemble);
                scope.spawn(move || {
                    for key in (0..EACH).map(|key| key * THREADS + thread) {
                        let ticket = site.ask(ensemble, key);
                        if key % 3 == 0 {
                            ticket.cancel();
                        }
                    }
                });
            }
        });
        let mut ended = [0; (THREADS * EACH) as usize];
        for answer in site.letters.answers(ended.len()) {
            ended[answer.key as usize] += 1;
            assert!(answer.error().is_some() || answer.responses.len() <= 1);
        }
        assert!(ended.iter().all(|&ends| ends == 1));
        assert_eq!(ensemble.drain(PATIENCE), 0);
        for name in ["slow", "other", "join"] {
            assert_eq!(site.scene(name).runner.drain(PATIENCE), 0, "{name}");
        }
        assert_eq!((site.letters.unread(), site.letters.unfinished()), (0, 0));
    }
}
