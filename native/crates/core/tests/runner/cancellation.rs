//! A caller that goes away frees its place at once, and its work is not done where that can be.

use kushi_core::{Error, ErrorKind, FailureReason, ModelSpec, QueuePolicy, Response, Sent};
use kushi_testkit::{Act, Answer, PATIENCE, Scene, echo_spec, int32, queue_of, wide};

fn is_cancelled(answer: &Answer) -> bool {
    answer.error().is_some_and(|Error { kind, message }| *kind == ErrorKind::Cancelled && message.is_empty())
}

#[test]
fn cancelling_frees_the_queue_place_at_once() {
    let queue = queue_of([QueuePolicy { max_requests: 1, ..wide() }]);
    let scene = Scene::new(ModelSpec { queue, ..echo_spec() });
    scene.plug();
    let ticket = scene.submit_rows(1, 1);
    assert!(ticket.cancel());
    assert!(is_cancelled(&scene.letters.answer(1)));
    scene.ask([2]);
    scene.puppet.release_all();
    scene.letters.answer(2);
    assert_eq!(scene.puppet.seen()[1].ids, ["2"]);
    assert_eq!(scene.runner.statistics().failures(FailureReason::Canceled), 1);
}

#[test]
fn neighbours_of_a_cancelled_request_may_meet() {
    let scene = Scene::new(echo_spec());
    scene.plug();
    scene.ask([1]);
    let ticket = scene.submit(scene.request_of(2, int32(&[1, 2], [1, 2])));
    scene.ask([3]);
    assert!(ticket.cancel());
    scene.puppet.release_all();
    scene.letters.answers(4);
    assert_eq!(scene.puppet.seen()[1].ids, ["1", "3"]);
}

#[test]
fn an_executing_engine_is_told_and_the_end_says_cancelled() {
    let scene = Scene::new(echo_spec());
    scene.puppet.script([Act::Late]);
    let ticket = scene.submit_rows(1, 1);
    let mut batch = scene.puppet.late();
    assert!(!batch.is_abandoned(0));
    assert!(ticket.cancel());
    assert!(batch.is_abandoned(0));
    assert!(matches!(batch.send(0, Response::default()), Sent::Abandoned));
    batch.end(0, Ok(()));
    let answer = scene.letters.answer(1);
    assert!(is_cancelled(&answer));
    assert!(answer.responses.is_empty());
    assert_eq!(scene.runner.statistics().success.count, 0);
}

#[test]
fn a_request_that_ends_early_leaves_the_others_their_own_rows() {
    let scene = Scene::new(echo_spec());
    scene.plug();
    scene.puppet.script([Act::Late]);
    let tickets = [scene.submit_rows(1, 2), scene.submit_rows(2, 3), scene.submit_rows(3, 1)];
    scene.puppet.release_all();
    let mut batch = scene.puppet.late();
    assert!(tickets[0].cancel());
    batch.end(0, Err(Error::new(ErrorKind::EngineFailed, "too late for this text")));
    batch.scatter(&[Some(int32(&[6, 1], [1, 1, 2, 2, 2, 3]))]);
    assert!(is_cancelled(&scene.letters.answer(1)));
    assert_eq!(scene.letters.answer(2).output(0), [2, 0, 0, 0].repeat(3));
    assert_eq!(scene.letters.answer(3).output(0), [3, 0, 0, 0]);
}

#[test]
fn an_answered_request_cannot_be_cancelled() {
    let scene = Scene::new(echo_spec());
    let ticket = scene.submit_rows(1, 1);
    assert!(scene.letters.answer(1).error().is_none());
    assert!(!ticket.cancel());
}

#[test]
fn cancelling_twice_ends_once() {
    let scene = Scene::new(echo_spec());
    scene.plug();
    let ticket = scene.submit_rows(1, 1);
    assert!(ticket.cancel());
    assert!(!ticket.cancel());
    assert!(!ticket.expire());
    scene.puppet.release_all();
    assert_eq!(scene.letters.answers(2).len(), 2);
    assert_eq!(scene.runner.drain(PATIENCE), 0);
}
