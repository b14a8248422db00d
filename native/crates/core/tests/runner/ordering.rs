//! `preserve_ordering`: answers leave in the order of their batches, however those finish.

use std::sync::Arc;

use kushi_core::{
    Batching, Buffer, DataType, Error, ErrorKind, MOST_WAITING, Mail, Mailbox, ModelSpec, Reply, Request,
    Response, Sent, Shape, Tensor,
};
use kushi_testkit::{Act, PATIENCE, Scene, echo_spec, int32, until};

/// Two instances, each batch one request.
fn scene(preserve_ordering: bool) -> Scene {
    let batching = Batching { preferred_batch_sizes: vec![], max_queue_delay_us: 0, preserve_ordering };
    Scene::new(ModelSpec { batching: Some(batching), max_batch_size: 1, instances: 2, ..echo_spec() })
}

/// Two requests inside the engine, the younger finished; then a third behind it.
fn finish_the_younger_first(scene: &Scene) {
    scene.puppet.hold();
    scene.ask([1]);
    scene.puppet.await_batches(1);
    scene.ask([2]);
    scene.puppet.await_batches(2);
    scene.puppet.release(1);
    scene.ask([3]);
    // The third runs where the second did: the engine is done with that one.
    scene.puppet.await_batches(3);
}

fn keys(scene: &Scene, count: usize) -> Vec<u64> {
    scene.letters.answers(count).iter().map(|answer| answer.key).collect()
}

#[test]
fn answers_wait_for_an_older_batch() {
    let scene = scene(true);
    finish_the_younger_first(&scene);
    assert_eq!(scene.letters.unread(), 0);
    scene.puppet.release_all();
    assert_eq!(keys(&scene, 3), [1, 2, 3]);
}

#[test]
fn without_it_the_first_to_finish_answers_first() {
    let scene = scene(false);
    finish_the_younger_first(&scene);
    assert_eq!(scene.letters.answer(2).key, 2);
    scene.puppet.release_all();
    scene.letters.answers(2);
}

#[test]
fn a_failing_batch_keeps_its_place() {
    let scene = scene(true);
    scene.puppet.script([Act::Fail(Error::new(ErrorKind::EngineFailed, "broken")), Act::Echo, Act::Panic]);
    finish_the_younger_first(&scene);
    scene.puppet.release_all();
    let answers = scene.letters.answers(3);
    let outcome: Vec<_> = answers.iter().map(|answer| (answer.key, answer.error().is_none())).collect();
    assert_eq!(outcome, [(1, false), (2, true), (3, false)]);
}

#[test]
fn a_late_answer_holds_back_what_is_younger() {
    let scene = scene(true);
    scene.puppet.script([Act::Late]);
    scene.ask([1]);
    let batch = scene.puppet.late();
    scene.ask([2, 3]);
    scene.puppet.await_batches(3);
    // The next batch runs where one of them did.
    scene.ask([4]);
    scene.puppet.await_batches(4);
    assert_eq!(scene.letters.unread(), 0);
    drop(batch);
    assert_eq!(keys(&scene, 4), [1, 2, 3, 4]);
}

#[test]
fn a_batch_that_has_answered_in_part_holds_back_what_is_younger() {
    let scene = scene(true);
    scene.puppet.script([Act::Late]);
    scene.ask([1]);
    let mut batch = scene.puppet.late();
    let _ = batch.send(0, Response::default());
    scene.letters.responses(1, 1);
    scene.ask([2, 3]);
    scene.puppet.await_batches(3);
    // The next batch runs where one of them did.
    scene.ask([4]);
    scene.puppet.await_batches(4);
    assert_eq!(scene.letters.unread(), 0);
    batch.end(0, Ok(()));
    assert_eq!(keys(&scene, 4), [1, 2, 3, 4]);
}

#[test]
fn a_cancelled_queued_request_holds_nothing_back() {
    let scene = scene(true);
    scene.puppet.hold();
    scene.ask([1, 2]);
    scene.puppet.await_batches(2);
    let ticket = scene.submit_rows(3, 1);
    scene.ask([4]);
    assert!(ticket.cancel());
    assert_eq!(scene.letters.answer(3).key, 3);
    scene.puppet.release_all();
    assert_eq!(keys(&scene, 3), [1, 2, 4]);
}

#[test]
fn nobody_waits_behind_a_request_that_nobody_waits_for() {
    let scene = scene(true);
    scene.puppet.script([Act::Late]);
    let ticket = scene.submit_rows(1, 1);
    let batch = scene.puppet.late();
    scene.ask([2, 3]);
    scene.puppet.await_batches(3);
    // The next batch runs where one of them did.
    scene.ask([4]);
    scene.puppet.await_batches(4);
    assert_eq!(scene.letters.unread(), 0);
    assert!(ticket.cancel());
    assert_eq!(keys(&scene, 3), [2, 3, 4]);
    scene.ask([5]);
    assert_eq!(keys(&scene, 1), [5], "nor those that come later");
    drop(batch);
    let answer = scene.letters.answer(1);
    assert_eq!(answer.error().unwrap().kind, ErrorKind::Cancelled, "its own end comes once, and late");
    assert_eq!(scene.runner.drain(PATIENCE), 0);
}

#[test]
fn one_that_waits_in_the_same_batch_holds_others_back() {
    let batching = Batching { preferred_batch_sizes: vec![], max_queue_delay_us: 0, preserve_ordering: true };
    let scene =
        Scene::new(ModelSpec { batching: Some(batching), max_batch_size: 2, instances: 2, ..echo_spec() });
    scene.puppet.hold();
    scene.ask([1]);
    scene.puppet.await_batches(1);
    scene.ask([2]);
    scene.puppet.await_batches(2);
    scene.puppet.script([Act::Late]);
    let ticket = scene.submit_rows(3, 1);
    scene.ask([4]);
    scene.puppet.release_all();
    assert_eq!(keys(&scene, 2), [1, 2]);
    let mut batch = scene.puppet.late();
    assert_eq!(batch.len(), 2);
    scene.ask([5]);
    scene.puppet.await_batches(4);
    assert!(ticket.cancel());
    assert_eq!(scene.letters.unread(), 0, "the other request of the batch is waited for");
    batch.end_with(1, Response::default());
    assert_eq!(keys(&scene, 2), [4, 5]);
    drop(batch);
    assert_eq!(keys(&scene, 1), [3]);
}

/// Two requests in one batch, which the engine keeps.
fn scene_of_a_pair(decoupled: bool) -> Scene {
    let batching = Batching { preferred_batch_sizes: vec![], max_queue_delay_us: 0, preserve_ordering: true };
    let scene =
        Scene::new(ModelSpec { batching: Some(batching), max_batch_size: 2, decoupled, ..echo_spec() });
    let plug = scene.plug();
    scene.puppet.usually(Act::Late);
    scene.ask([1, 2]);
    scene.puppet.release_all();
    drop(plug);
    scene.letters.answers(1);
    scene
}

#[test]
fn a_later_request_of_the_same_batch_waits_for_an_earlier_one() {
    let scene = scene_of_a_pair(false);
    let mut batch = scene.puppet.late();
    assert_eq!(batch.len(), 2);
    batch.end_with(1, Response::default());
    assert_eq!(scene.letters.unread(), 0);
    batch.end_with(0, Response::default());
    assert_eq!(keys(&scene, 2), [1, 2]);
}

#[test]
fn requests_of_a_batch_that_have_any_number_of_answers_do_not_wait_for_each_other() {
    let scene = scene_of_a_pair(true);
    let mut batch = scene.puppet.late();
    assert_eq!(batch.len(), 2);
    assert!(matches!(batch.send(1, Response::default()), Sent::Accepted));
    scene.letters.responses(2, 1);
    batch.end(1, Ok(()));
    assert_eq!(keys(&scene, 1), [2]);
    batch.end(0, Ok(()));
    assert_eq!(keys(&scene, 1), [1]);
}

#[test]
fn what_waits_for_an_earlier_answer_is_bounded() {
    let half = MOST_WAITING / 2;
    let large = || {
        let tensor = Tensor {
            datatype: DataType::Uint8,
            shape: Shape::from_slice(&[1, half as i64]),
            data: Buffer::host(vec![1; half]),
        };
        Response { outputs: [(0, tensor)].into_iter().collect(), ..Response::default() }
    };
    let scene = scene(true);
    scene.puppet.usually(Act::Late);
    scene.ask([1]);
    let first = scene.puppet.late();
    for key in [2, 3] {
        scene.ask([key]);
        scene.puppet.late().end_with(0, large());
    }
    scene.ask([4]);
    until("rest", || scene.runner.at_rest() || scene.puppet.seen().len() > 3);
    assert_eq!(scene.puppet.seen().len(), 3, "no further batch begins");
    assert_eq!(scene.runner.backlog().requests, 1);
    assert_eq!(scene.letters.unread(), 0);
    first.fail(&Error::new(ErrorKind::EngineFailed, "broken"));
    assert_eq!(keys(&scene, 3), [1, 2, 3]);
    scene.puppet.late().end_with(0, large());
    assert_eq!(keys(&scene, 1), [4], "it begins once there is room");
    assert_eq!(scene.runner.drain(PATIENCE), 0);
}

#[test]
fn what_comes_back_with_an_answer_that_waits_is_bounded_too() {
    let scene = scene(true);
    scene.puppet.usually(Act::Late);
    scene.ask([1]);
    let mut first = scene.puppet.late();
    let half = MOST_WAITING / 2 / size_of::<i32>();
    for key in [2, 3] {
        scene.submit(scene.request_of(key, int32(&[1, half as i64], std::iter::repeat_n(1, half))));
        scene.puppet.late().end_with(0, Response::default());
    }
    scene.ask([4]);
    until("rest", || scene.runner.at_rest() || scene.puppet.seen().len() > 3);
    assert_eq!(scene.puppet.seen().len(), 3, "no further batch begins");
    first.end(0, Ok(()));
    assert_eq!(keys(&scene, 3), [1, 2, 3]);
    scene.puppet.late().end(0, Ok(()));
    assert_eq!(keys(&scene, 1), [4]);
}

#[test]
fn mail_of_a_request_that_nobody_waits_for_has_no_place_in_the_order() {
    let scene = scene(true);
    scene.puppet.usually(Act::Late);
    scene.ask([1]);
    let first = scene.puppet.late();
    let ticket = scene.submit_rows(2, 1);
    let mut second = scene.puppet.late();
    assert!(ticket.cancel());
    second.end(0, Ok(()));
    assert_eq!(keys(&scene, 1), [2], "it does not wait for the first");
    drop(first);
    assert_eq!(keys(&scene, 1), [1]);
}

struct Broken;

impl Mailbox for Broken {
    fn deliver(&self, _: Vec<Mail>) {
        // Without the message that a panic prints.
        std::panic::resume_unwind(Box::new("this mailbox takes nothing"));
    }
}

#[test]
fn a_mailbox_that_panics_loses_no_mail_of_others() {
    for preserve_ordering in [true, false] {
        let scene = scene(preserve_ordering);
        scene.puppet.hold();
        scene.submit(Request { reply: Reply::new(Arc::new(Broken), 1), ..scene.request(1, 1) });
        scene.puppet.await_batches(1);
        scene.ask([2, 3]);
        scene.puppet.release(1);
        scene.puppet.await_batches(3);
        scene.puppet.release_all();
        assert_eq!(keys(&scene, 2), [2, 3]);
        assert_eq!(scene.runner.drain(PATIENCE), 0, "its request has ended, too");
    }
}
