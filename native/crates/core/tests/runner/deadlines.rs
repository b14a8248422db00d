//! Requests that have waited too long are rejected; a deadline holds wherever the request is.

use std::time::Duration;

use kushi_core::{Clock, Error, ErrorKind, FailureReason, ModelSpec, QueuePolicy, Request};
use kushi_testkit::{Answer, Scene, echo_spec, queue_of, wide};

const MS: Duration = Duration::from_millis(1);

fn scene(default_timeout_us: u64, allow_timeout_override: bool) -> Scene {
    let queue = queue_of([QueuePolicy { default_timeout_us, allow_timeout_override, ..wide() }]);
    Scene::new(ModelSpec { queue, ..echo_spec() })
}

fn with_deadline(scene: &Scene, key: u64, after: Duration) -> Request {
    Request { deadline: Some(scene.clock.now() + after), ..scene.request(key, 1) }
}

fn is_expired(answer: &Answer) -> bool {
    let text = "Request timeout expired";
    answer
        .error()
        .is_some_and(|Error { kind, message }| *kind == ErrorKind::DeadlineExceeded && message == text)
}

#[test]
fn a_request_that_waited_too_long_is_dropped_before_batching() {
    let scene = scene(1000, false);
    scene.plug();
    scene.ask([1]);
    scene.clock.advance(MS);
    scene.ask([2]);
    scene.puppet.release_all();
    assert!(is_expired(&scene.letters.answer(1)));
    assert!(scene.letters.answer(2).error().is_none());
    assert_eq!(scene.puppet.seen()[1].ids, ["2"]);
    assert_eq!(scene.runner.statistics().failures(FailureReason::Rejected), 1);
}

#[test]
fn expiring_frees_the_queue_place_at_once() {
    let scene = scene(1000, false);
    scene.plug();
    let ticket = scene.submit_rows(1, 1);
    assert_eq!(ticket.expires, Some(scene.clock.now() + MS));
    scene.clock.advance(MS);
    assert!(!ticket.expire(), "its end is in the mail");
    assert!(is_expired(&scene.letters.answer(1)));
    assert_eq!(scene.runner.backlog().requests, 0);
}

#[test]
fn a_queue_timeout_does_not_end_what_executes() {
    let scene = scene(1000, false);
    let ticket = scene.plug();
    scene.clock.advance(5 * MS);
    assert!(!ticket.expire());
    scene.puppet.release_all();
    assert!(scene.letters.answer(0).error().is_none());
}

#[test]
fn a_request_may_shorten_the_timeout_where_that_is_allowed() {
    for (default_us, allowed, own, expected) in [
        (2000, true, Some(1000), Some(1)),
        (2000, true, Some(9000), Some(2)),
        (2000, true, Some(0), Some(2)),
        (2000, true, None, Some(2)),
        (2000, false, Some(1000), Some(2)),
        (0, true, Some(1000), None),
        (0, false, None, None),
    ] {
        let scene = scene(default_us, allowed);
        let now = scene.clock.now();
        let ticket = scene.submit(Request { timeout_us: own, ..scene.request(1, 1) });
        let expected = expected.map(|ms| now + MS * ms);
        assert_eq!(ticket.expires, expected, "default {default_us}, allowed {allowed}, own {own:?}");
    }
}

#[test]
fn the_earlier_of_timeout_and_deadline_counts_in_the_queue() {
    let scene = scene(2000, false);
    scene.plug();
    let now = scene.clock.now();
    assert_eq!(scene.submit(with_deadline(&scene, 1, MS)).expires, Some(now + MS));
    assert_eq!(scene.submit(with_deadline(&scene, 2, 3 * MS)).expires, Some(now + 2 * MS));
}

#[test]
fn a_deadline_in_the_queue_ends_the_request() {
    let scene = scene(0, false);
    scene.plug();
    scene.submit(with_deadline(&scene, 1, MS));
    scene.clock.advance(MS);
    scene.puppet.release_all();
    assert!(is_expired(&scene.letters.answer(1)));
}

#[test]
fn a_deadline_gives_up_an_executing_request_once_it_has_passed() {
    let scene = scene(0, false);
    scene.puppet.hold();
    let ticket = scene.submit(with_deadline(&scene, 1, 2 * MS));
    scene.puppet.await_batches(1);
    scene.clock.advance(MS);
    assert!(!ticket.expire(), "it has a millisecond left");
    scene.clock.advance(MS);
    assert!(ticket.expire());
    scene.puppet.release_all();
    let answer = scene.letters.answer(1);
    assert!(is_expired(&answer));
    assert!(answer.responses.is_empty());
}

#[test]
fn a_request_whose_deadline_has_passed_on_arrival_never_runs() {
    let scene = scene(0, false);
    scene.submit(with_deadline(&scene, 1, Duration::ZERO));
    assert!(is_expired(&scene.letters.answer(1)));
    assert!(scene.puppet.seen().is_empty());
}

#[test]
fn a_delayed_batch_does_not_keep_a_request_beyond_its_deadline() {
    let mut spec = echo_spec();
    if let Some(batching) = &mut spec.batching {
        batching.max_queue_delay_us = 3_600_000_000;
    }
    let scene = Scene::new(spec);
    scene.submit(with_deadline(&scene, 1, 2 * MS));
    scene.clock.advance(2 * MS);
    assert!(is_expired(&scene.letters.answer(1)));
}
