//! The queue is bounded in number and in bytes; over the bound the answer is immediate and clear.

use std::time::{Duration, Instant};

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

#[test]
fn an_announced_request_is_refused_and_counted_while_the_queue_is_full_by_number() {
    let scene = bounded(1, 1 << 20);
    let announce = || scene.runner.announce(Instant::now(), 0);
    assert_eq!(announce(), Ok(()));
    scene.plug();
    scene.ask([1]);
    let error = announce().expect_err("the queue is full");
    assert_eq!((error.kind, &*error.message), (ErrorKind::Overloaded, "Exceeds maximum queue size"));
    assert_eq!(scene.runner.statistics().failures(FailureReason::Rejected), 1);
    scene.puppet.release_all();
    scene.letters.answers(2);
    assert_eq!(announce(), Ok(()));
    assert_eq!(scene.runner.statistics().failures(FailureReason::Rejected), 1);
}

#[test]
fn an_announced_request_is_refused_where_its_least_bytes_find_no_room() {
    let scene = bounded(0, 8);
    let announce = |bytes| scene.runner.announce(Instant::now(), bytes).is_ok();
    scene.plug();
    assert!(announce(9), "alone it would run");
    scene.ask([1]);
    assert!(announce(4));
    assert!(!announce(5));
    assert!(!announce(usize::MAX));
    assert_eq!(scene.runner.statistics().failures(FailureReason::Rejected), 2);
    scene.puppet.release_all();
}

#[test]
fn an_announced_request_is_not_refused_while_one_level_has_a_place() {
    let narrow = QueuePolicy { max_requests: 1, ..wide() };
    let scene = Scene::new(ModelSpec { queue: queue_of([narrow.clone(), narrow]), ..echo_spec() });
    scene.plug();
    scene.ask([1]);
    assert_eq!(scene.runner.announce(Instant::now(), 0), Ok(()));
    scene.submit(kushi_core::Request { priority: 1, ..scene.request(2, 1) });
    assert!(scene.runner.announce(Instant::now(), 0).is_err());
    scene.puppet.release_all();
}

#[test]
fn a_runner_that_drains_refuses_nobody_who_is_announced() {
    let scene = bounded(1, 1 << 20);
    scene.plug();
    scene.ask([1]);
    scene.runner.stop_admitting();
    assert_eq!(scene.runner.announce(Instant::now(), 0), Ok(()));
    scene.puppet.release_all();
}
