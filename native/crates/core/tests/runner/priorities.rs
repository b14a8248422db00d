//! Levels of a queue: what goes first, what gives way, and what each may hold.

use std::time::Duration;

use kushi_core::{
    Batching, Clock, ErrorKind, FailureReason, ModelSpec, QueuePolicy, QueueSpec, Request, TimeoutAction,
};
use kushi_testkit::{PATIENCE, Scene, echo_spec, int32, queue_of, wide};
use proptest::prelude::*;

const MS: Duration = Duration::from_millis(1);

fn scene(queue: QueueSpec) -> Scene {
    Scene::new(ModelSpec { queue, ..echo_spec() })
}

fn delaying(default_timeout_us: u64) -> QueuePolicy {
    QueuePolicy { default_timeout_us, timeout_action: TimeoutAction::Delay, ..wide() }
}

fn of_level(scene: &Scene, key: u64, priority: u32) -> Request {
    Request { priority, ..scene.request(key, 1) }
}

/// The batches after the plug, as the keys of their requests.
fn batches(scene: &Scene) -> Vec<Vec<u64>> {
    let key = |id: &String| id.parse().unwrap_or(u64::MAX);
    scene.puppet.seen().iter().skip(1).map(|seen| seen.ids.iter().map(key).collect()).collect()
}

#[test]
fn higher_levels_go_first_and_meet_lower_ones_in_a_batch() {
    let scene = scene(queue_of([wide(), wide(), wide()]));
    scene.plug();
    for (key, priority) in [(1, 3), (2, 2), (3, 3), (4, 1), (5, 2), (6, 1)] {
        scene.submit(of_level(&scene, key, priority));
    }
    scene.puppet.release_all();
    scene.letters.answers(7);
    assert_eq!(batches(&scene), [[4, 6, 2, 5, 1, 3]]);
}

#[test]
fn no_priority_and_one_that_does_not_exist_are_the_default_level() {
    let scene = scene(QueueSpec { default_level: 2, ..queue_of([wide(), wide(), wide()]) });
    scene.plug();
    for (key, priority) in [(1, 3), (2, 0), (3, 4), (4, u32::MAX), (5, 1)] {
        scene.submit(of_level(&scene, key, priority));
    }
    scene.puppet.release_all();
    scene.letters.answers(6);
    assert_eq!(batches(&scene), [[5, 2, 3, 4, 1]]);
}

#[test]
fn shapes_that_differ_across_levels_never_meet() {
    let scene = scene(queue_of([wide(), wide()]));
    scene.plug();
    for (key, priority, width) in [(1, 2, 1), (2, 1, 1), (3, 2, 2), (4, 1, 2)] {
        let request = scene.request_of(key, int32(&[1, width], 0..width as i32));
        scene.submit(Request { priority, ..request });
    }
    scene.puppet.release_all();
    scene.letters.answers(5);
    assert_eq!(batches(&scene), [vec![2], vec![4], vec![1], vec![3]]);
}

#[test]
fn each_level_has_a_bound_in_number_of_its_own() {
    let bounded = |max_requests| QueuePolicy { max_requests, ..wide() };
    let scene = scene(queue_of([bounded(2), bounded(1)]));
    scene.plug();
    scene.submit(of_level(&scene, 1, 2));
    let error = scene.refused(of_level(&scene, 2, 2));
    assert_eq!((error.kind, &*error.message), (ErrorKind::Overloaded, "Exceeds maximum queue size"));
    scene.submit(of_level(&scene, 3, 1));
    scene.submit(of_level(&scene, 4, 1));
    scene.refused(of_level(&scene, 5, 1));
    assert_eq!(scene.runner.statistics().failures(FailureReason::Rejected), 2);
}

#[test]
fn the_bound_in_bytes_is_that_of_all_levels_together() {
    let scene = scene(QueueSpec { max_bytes: 8, ..queue_of([wide(), wide()]) });
    scene.plug();
    scene.submit(of_level(&scene, 1, 2));
    scene.submit(of_level(&scene, 2, 1));
    scene.refused(of_level(&scene, 3, 1));
}

#[test]
fn what_is_delayed_runs_behind_its_level_and_before_the_next() {
    let scene = scene(queue_of([delaying(1000), wide()]));
    scene.plug();
    for (key, priority) in [(1, 1), (2, 2), (3, 1)] {
        scene.submit(of_level(&scene, key, priority));
    }
    scene.clock.advance(MS);
    scene.submit(of_level(&scene, 4, 1));
    scene.puppet.release_all();
    let answers = scene.letters.answers(5);
    assert!(answers.iter().all(|answer| answer.error().is_none()));
    assert_eq!(batches(&scene), [[4, 1, 3, 2]]);
}

#[test]
fn what_is_delayed_keeps_its_place_in_the_bound() {
    let scene = scene(queue_of([QueuePolicy { max_requests: 1, ..delaying(1000) }]));
    scene.plug();
    let ticket = scene.submit(of_level(&scene, 1, 0));
    assert_eq!(ticket.expires, None, "a timeout that delays ends nothing");
    scene.clock.advance(MS);
    scene.refused(of_level(&scene, 2, 0));
}

#[test]
fn what_is_delayed_can_still_be_cancelled_and_still_has_a_deadline() {
    // A batch of one, so that the first to come out leaves the others delayed.
    let batching =
        Some(Batching { preferred_batch_sizes: vec![1], max_queue_delay_us: 0, preserve_ordering: false });
    let scene = Scene::new(ModelSpec { batching, queue: queue_of([delaying(1000)]), ..echo_spec() });
    scene.plug();
    let tickets: Vec<_> = (1..=4)
        .map(|key| {
            let deadline = (key == 3).then(|| scene.clock.now() + 2 * MS);
            scene.submit(Request { deadline, ..scene.request(key, 1) })
        })
        .collect();
    scene.clock.advance(MS);
    scene.puppet.release(0);
    scene.puppet.await_batches(2);
    assert_eq!(batches(&scene), [[1]]);
    assert!(tickets[1].cancel());
    assert_eq!(scene.letters.answer(2).error().map(|error| error.kind), Some(ErrorKind::Cancelled));
    scene.clock.advance(MS);
    assert!(!tickets[2].expire(), "its end is in the mail");
    assert_eq!(scene.letters.answer(3).error().map(|error| error.kind), Some(ErrorKind::DeadlineExceeded));
    scene.puppet.release_all();
    assert!(scene.letters.answer(4).error().is_none());
    assert_eq!(batches(&scene), [[1], [4]]);
}

#[test]
fn a_delay_of_batches_counts_from_the_oldest_of_all_levels() {
    let batching =
        Some(Batching { preferred_batch_sizes: vec![], max_queue_delay_us: 2000, preserve_ordering: false });
    let scene = Scene::new(ModelSpec { batching, queue: queue_of([wide(), wide()]), ..echo_spec() });
    scene.submit(of_level(&scene, 1, 2));
    scene.clock.advance(MS);
    scene.submit(of_level(&scene, 2, 1));
    scene.clock.advance(MS);
    let waited: Vec<_> =
        scene.letters.answers(2).iter().map(|answer| (answer.key, answer.end.timings.queue)).collect();
    assert_eq!(waited, [(2, MS), (1, 2 * MS)]);
}

#[derive(Clone, Copy, Debug)]
enum Event {
    Submit {
        priority: u32,
        rows: usize,
        width: i64,
        timeout_us: Option<u64>,
    },
    /// Of the request that was submitted so many before.
    Cancel(usize),
    Advance,
}

fn event() -> impl Strategy<Value = Event> {
    let timeout_us = prop::option::weighted(0.5, 500_u64..3000);
    let submit = (0_u32..5, 1_usize..=8, 1_i64..=2, timeout_us)
        .prop_map(|(priority, rows, width, timeout_us)| Event::Submit { priority, rows, width, timeout_us });
    prop_oneof![8 => submit, 1 => (0_usize..4).prop_map(Event::Cancel), 2 => Just(Event::Advance)]
}

fn policy() -> impl Strategy<Value = QueuePolicy> {
    let delays = prop_oneof![Just(TimeoutAction::Delay), Just(TimeoutAction::Reject)];
    (0_usize..8, prop_oneof![Just(0), Just(2500)], any::<bool>(), delays).prop_map(
        |(max_requests, default_timeout_us, allow_timeout_override, timeout_action)| QueuePolicy {
            max_requests,
            default_timeout_us,
            allow_timeout_override,
            timeout_action,
        },
    )
}

/// A request as the rules see it.
#[derive(Clone, Copy)]
struct Known {
    key: u64,
    level: usize,
    width: i64,
    rows: usize,
    times_out: Option<Duration>,
    cancelled: bool,
}

#[test]
fn a_level_that_waits_for_company_does_not_hold_up_the_next() {
    let mut spec = ModelSpec { queue: queue_of(vec![wide(); 2]), ..echo_spec() };
    spec.batching.iter_mut().for_each(|batching| batching.max_queue_delay_us = 2000);
    let scene = Scene::new(spec);
    let ask = |key, width, priority| {
        let request = scene.request_of(key, int32(&[1, width], vec![0; width as usize]));
        scene.submit(Request { priority, ..request });
    };
    ask(1, 1, 1);
    ask(2, 2, 1);
    for key in 3..11 {
        ask(key, 3, 2);
    }
    assert_eq!(scene.puppet.await_batches(1)[0].ids, ["3", "4", "5", "6", "7", "8", "9", "10"]);
    scene.clock.advance(Duration::from_millis(2));
    let batches = scene.puppet.await_batches(3);
    assert_eq!((&batches[1].ids, &batches[2].ids), (&vec!["1".to_owned()], &vec!["2".to_owned()]));
    scene.letters.answers(10);
}

/// The keys of those of equal width that run together, of these in their order: the first one's of the first level, or
/// where those are all of that level, the others that join them from behind.
fn next_batch(waiting: &[&Known], is_late: impl Fn(&Known) -> bool) -> Vec<u64> {
    let first = waiting[0];
    let prompt = waiting.iter().take_while(|one| one.level == first.level && !is_late(one));
    let has_others = prompt.clone().any(|one| one.width != first.width);
    let company: Vec<&&Known> = if has_others {
        prompt.filter(|one| one.width == first.width).collect()
    } else {
        waiting.iter().take_while(|one| one.width == first.width).collect()
    };
    let mut rows = 0;
    let fits = |one: &&&Known| {
        rows += one.rows;
        rows <= 8
    };
    company.into_iter().take_while(fits).map(|one| one.key).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 192, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn batches_are_made_of_the_levels_in_their_order(
        levels in prop::collection::vec(policy(), 1..4),
        default in any::<prop::sample::Index>(),
        events in prop::collection::vec(event(), 1..50),
    ) {
        let queue = QueueSpec { default_level: 1 + default.index(levels.len()), ..queue_of(levels.clone()) };
        let scene = scene(queue.clone());
        scene.plug();
        let mut known: Vec<Known> = Vec::new();
        let mut tickets = Vec::new();
        let mut now = Duration::ZERO;
        for (number, event) in (1..).zip(events) {
            match event {
                Event::Submit { priority, rows, width, timeout_us } => {
                    let request = scene.request_of(number, int32(&[rows as i64, width], vec![0; rows * width as usize]));
                    let request = Request { priority, timeout_us, ..request };
                    let level = queue.level(priority);
                    let policy = &levels[level];
                    let inside = known.iter().filter(|other| other.level == level && !other.cancelled).count();
                    if policy.max_requests > 0 && inside >= policy.max_requests {
                        prop_assert_eq!(scene.refused(request).kind, ErrorKind::Overloaded);
                        continue;
                    }
                    tickets.push(scene.submit(request));
                    let times_out = policy.timeout(timeout_us).map(|timeout| now + timeout);
                    known.push(Known { key: number, level, width, rows, times_out, cancelled: false });
                }
                Event::Cancel(back) => if let Some(place) = tickets.len().checked_sub(back + 1) {
                    prop_assert_eq!(tickets[place].cancel(), !known[place].cancelled);
                    known[place].cancelled = true;
                },
                Event::Advance => {
                    scene.clock.advance(MS);
                    now += MS;
                }
            }
        }
        scene.puppet.release_all();
        prop_assert_eq!(scene.runner.drain(PATIENCE), 0);

        let is_late = |request: &Known| request.times_out.is_some_and(|when| when <= now);
        let ended = |request: &Known| {
            request.cancelled || is_late(request) && levels[request.level].timeout_action == TimeoutAction::Reject
        };
        let mut expected: Vec<&Known> = known.iter().filter(|request| !ended(request)).collect();
        expected.sort_by_key(|request| (request.level, is_late(request), request.key));
        let expected_keys: Vec<u64> = expected.iter().map(|request| request.key).collect();
        let mut expected_batches: Vec<Vec<u64>> = Vec::new();
        while !expected.is_empty() {
            let batch = next_batch(&expected, is_late);
            expected.retain(|request| !batch.contains(&request.key));
            expected_batches.push(batch);
        }
        prop_assert_eq!(batches(&scene), expected_batches);

        let answers = scene.letters.answers(known.len() + 1);
        prop_assert_eq!(answers.len(), known.len() + 1);
        for request in &known {
            let error = answers.iter().find(|answer| answer.key == request.key).map(|answer| answer.error());
            let kind = error.map(|error| error.map(|error| error.kind));
            let expected = match request {
                _ if request.cancelled => Some(ErrorKind::Cancelled),
                _ if expected_keys.contains(&request.key) => None,
                _ => Some(ErrorKind::DeadlineExceeded),
            };
            prop_assert_eq!(kind, Some(expected), "request {}", request.key);
        }
    }
}
