//! The queue is bounded in number and in bytes; over the bound the answer is immediate and clear.

use std::time::Duration;

use kushi_core::{ErrorKind, FailureReason, ModelSpec, QueuePolicy, QueueSpec};
use kushi_testkit::{Scene, echo_spec, int32, queue_of, wide};

fn bounded(max_requests: usize, max_bytes: usize) -> Scene {
    let queue = QueueSpec { max_bytes, ..queue_of([QueuePolicy { max_requests, ..wide() }]) };
    Scene::new(ModelSpec { queue, ..echo_spec() })
}

fn refuses(scene: &Scene, key: u64) {
    let error = scene.refused(scene.request(key, 1));
    assert_eq!(error.kind, ErrorKind::Overloaded);
    assert_eq!(error.message, "Exceeds maximum queue size");
}

#[test]
fn refuses_one_request_more_than_its_number() {
    let scene = bounded(2, 1 << 20);
    scene.plug();
    scene.ask([1, 2]);
    refuses(&scene, 3);
    assert_eq!(scene.runner.backlog().requests, 2);
    assert_eq!(scene.runner.statistics().failures(FailureReason::Rejected), 1);
}

#[test]
fn refuses_one_byte_more_than_its_size() {
    let scene = bounded(0, 8);
    scene.plug();
    scene.ask([1, 2]);
    refuses(&scene, 3);
    assert_eq!(scene.runner.backlog().bytes, 8);
}

#[test]
fn takes_requests_again_once_a_batch_has_left() {
    let scene = bounded(1, 1 << 20);
    scene.plug();
    scene.ask([1]);
    refuses(&scene, 2);
    scene.puppet.release(0);
    scene.puppet.await_batches(2);
    scene.ask([3]);
    scene.puppet.release_all();
    scene.letters.answers(3);
}

#[test]
fn takes_a_request_above_its_size_when_nothing_else_waits() {
    let scene = bounded(0, 8);
    scene.plug();
    scene.submit(scene.request_of(1, int32(&[1, 100], 0..100)));
    refuses(&scene, 2);
    scene.puppet.release_all();
    scene.letters.answers(2);
}

#[test]
fn a_refused_request_comes_back_whole_and_gets_no_mail() {
    let scene = bounded(1, 1 << 20);
    scene.plug();
    scene.ask([1]);
    let Err((_, request)) = scene.runner.submit(scene.request(2, 3)) else { panic!("it was taken in") };
    assert_eq!(request.inputs[0].as_ref().map(|input| input.data.len()), Some(12));
    scene.puppet.release_all();
    assert_eq!(scene.runner.drain(Duration::from_secs(30)), 0);
    let mut keys: Vec<u64> = scene.letters.answers(2).iter().map(|answer| answer.key).collect();
    keys.sort_unstable();
    assert_eq!(keys, [0, 1]);
    assert_eq!(scene.letters.unread(), 0);
}
