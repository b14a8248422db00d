//! Requests wait and are joined in another way, while the model serves.

use std::time::Duration;

use kushi_core::{
    Batching, Clock, ErrorKind, ModelSpec, Placement, QueuePolicy, QueueSpec, Request, Scheduling,
    TimeoutAction,
};
use kushi_testkit::{Scene, drive, echo_spec, queue_of, until, wide};

const HOUR_US: u64 = 3_600_000_000;
const MS: Duration = Duration::from_millis(1);

fn batching(preferred: &[usize], max_queue_delay_us: u64) -> Batching {
    let preferred_batch_sizes = preferred.into();
    Batching { preferred_batch_sizes, max_queue_delay_us, preserve_ordering: false }
}

fn patient() -> ModelSpec {
    ModelSpec { batching: Some(batching(&[8], HOUR_US)), ..echo_spec() }
}

fn reschedule(scene: &Scene, batching: Option<Batching>, queue: QueueSpec) {
    scene.runner.reschedule(Scheduling { batching, queue });
}

/// The batches, as the keys of their requests.
fn batches(scene: &Scene) -> Vec<Vec<u64>> {
    let key = |id: &String| id.parse().unwrap_or(u64::MAX);
    scene.puppet.seen().iter().map(|seen| seen.ids.iter().map(key).collect()).collect()
}

#[test]
fn what_waits_for_company_goes_when_nothing_waits_any_more() {
    let scene = Scene::new(patient());
    scene.ask(1..=3);
    assert_eq!(scene.runner.backlog().requests, 3);
    reschedule(&scene, Some(batching(&[], 0)), queue_of([wide()]));
    scene.letters.answers(3);
    assert_eq!(batches(&scene), [[1, 2, 3]]);
}

#[test]
fn the_same_where_an_engine_keeps_its_slots() {
    let scene = Scene::keeping(patient());
    scene.ask(1..=3);
    reschedule(&scene, Some(batching(&[], 0)), queue_of([wide()]));
    // the clock's thread may have been faster
    until("all answers", || {
        if !scene.leases.is_empty() {
            drive(scene.leases.lease());
        }
        scene.letters.unread() == 3
    });
    assert_eq!(batches(&scene), [[1, 2, 3]]);
}

#[test]
fn a_shorter_delay_holds_for_those_that_wait_and_a_longer_one_as_well() {
    let scene = Scene::new(patient());
    scene.ask([1]);
    reschedule(&scene, Some(batching(&[], 5_000)), queue_of([wide()]));
    scene.clock.advance(4 * MS);
    scene.ask([2]);
    assert_eq!(scene.runner.backlog().requests, 2);
    reschedule(&scene, Some(batching(&[], 20_000)), queue_of([wide()]));
    scene.clock.advance(2 * MS);
    scene.ask([3]);
    assert_eq!(scene.runner.backlog().requests, 3);
    // of one that comes when the delay is over it is not known whether it comes before the thread that looks
    scene.clock.advance(14 * MS);
    scene.letters.answers(3);
    assert_eq!(batches(&scene), [[1, 2, 3]]);
}

#[test]
fn other_sizes_are_preferred_and_then_none_are_joined() {
    let scene = Scene::new(echo_spec());
    scene.plug();
    reschedule(&scene, Some(batching(&[8], HOUR_US)), queue_of([wide()]));
    scene.ask(1..=6);
    reschedule(&scene, Some(batching(&[2], 0)), queue_of([wide()]));
    scene.puppet.release(0);
    scene.puppet.await_batches(2);
    reschedule(&scene, None, queue_of([wide()]));
    scene.puppet.release_all();
    scene.letters.answers(7);
    assert_eq!(batches(&scene)[1..], [vec![1, 2], vec![3], vec![4], vec![5], vec![6]]);
}

#[test]
fn levels_come_and_go_for_those_that_wait() {
    let scene = Scene::new(ModelSpec { batching: None, ..echo_spec() });
    scene.plug();
    for (key, priority) in [(1, 3), (2, 1), (3, 2), (4, 1)] {
        scene.submit(Request { priority, ..scene.request(key, 1) });
    }
    reschedule(&scene, None, queue_of([wide(), wide(), wide()]));
    scene.puppet.release(0);
    scene.puppet.await_batches(2);
    reschedule(&scene, None, queue_of([wide()]));
    scene.puppet.release_all();
    scene.letters.answers(5);
    // one is on its way by the first change; the others as they came
    assert_eq!(batches(&scene)[1..], [[2], [1], [3], [4]]);
}

#[test]
fn a_smaller_queue_keeps_what_it_has_and_refuses_what_comes() {
    let scene = Scene::new(echo_spec());
    scene.plug();
    scene.ask(1..=5);
    let small = QueueSpec { max_bytes: 1, ..queue_of([QueuePolicy { max_requests: 2, ..wide() }]) };
    reschedule(&scene, Some(batching(&[], 0)), small);
    assert_eq!(scene.runner.backlog().requests, 5);
    assert_eq!(scene.refused(scene.request(6, 1)).kind, ErrorKind::Overloaded);
    scene.puppet.release_all();
    let answers = scene.letters.answers(6);
    assert!(answers.iter().all(|answer| answer.error().is_none()));
}

#[test]
fn timeouts_are_those_that_held_when_a_request_came() {
    let scene = Scene::new(echo_spec());
    scene.plug();
    let unhurried = scene.submit_rows(1, 1);
    let strict = queue_of([QueuePolicy { default_timeout_us: 1_000, ..wide() }]);
    reschedule(&scene, Some(batching(&[], 0)), strict);
    let hurried = scene.submit_rows(2, 1);
    assert_eq!((unhurried.expires, hurried.expires), (None, Some(scene.clock.now() + MS)));
    scene.clock.advance(MS);
    scene.puppet.release_all();
    assert!(scene.letters.answer(1).error().is_none());
    let expired = scene.letters.answer(2);
    assert_eq!(expired.error().map(|error| error.kind), Some(ErrorKind::DeadlineExceeded));
}

#[test]
fn who_gives_way_to_others_goes_on_to_do_so() {
    let scene = Scene::new(ModelSpec { batching: None, ..echo_spec() });
    let patient = QueuePolicy { default_timeout_us: 1_000, timeout_action: TimeoutAction::Delay, ..wide() };
    scene.plug();
    reschedule(&scene, None, queue_of([patient]));
    scene.ask([1]);
    scene.clock.advance(MS);
    scene.ask([2]);
    // a look at the queue
    scene.puppet.release(0);
    scene.puppet.await_batches(2);
    scene.ask([3]);
    reschedule(&scene, None, queue_of([wide()]));
    scene.puppet.release_all();
    scene.letters.answers(4);
    assert_eq!(batches(&scene)[1..], [[2], [3], [1]]);
}

#[test]
fn an_io_thread_that_leads_hands_the_model_to_its_threads() {
    let scene = Scene::new(echo_spec());
    scene.earn_inline();
    let earlier = scene.puppet.seen().len();
    scene.puppet.hold();
    let (_, lease) = scene.lead(scene.request(1, 1));
    let leading = std::thread::spawn(move || lease.map(drive));
    scene.puppet.await_batches(earlier + 1);
    scene.ask(2..=9);
    reschedule(&scene, Some(batching(&[4], HOUR_US)), queue_of([wide()]));
    scene.puppet.release_all();
    assert_eq!(leading.join().expect("it does not panic"), Some(1), "one batch, and no other");
    scene.letters.answers(9);
}

#[test]
fn a_delay_takes_a_model_off_the_io_threads_and_none_lets_it_earn_them_again() {
    let scene = Scene::new(echo_spec());
    scene.earn_inline();
    reschedule(&scene, Some(batching(&[4], HOUR_US)), queue_of([wide()]));
    assert_eq!(scene.runner.placement(), Placement::Threads);
    scene.ask(1_001..=1_004);
    scene.letters.answers(4);
    until("the slot at home", || scene.runner.at_rest());
    // what has been earned stays earned, where it may
    reschedule(&scene, Some(batching(&[], 0)), queue_of([wide()]));
    scene.earn_inline();
    reschedule(&scene, Some(batching(&[2], 0)), queue_of([wide()]));
    assert_eq!(scene.runner.placement(), Placement::Inline);
}

#[test]
fn nothing_is_lost_while_it_changes_all_the_time() {
    let scene = Scene::without_drivers(patient());
    let count = 2_000;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for key in 0..count {
                scene.submit_rows(key, 1);
            }
        });
        for turn in 0..400 {
            let levels = vec![wide(); 1 + turn % 3];
            reschedule(
                &scene,
                Some(batching(&[1 + turn % 4], if turn % 2 == 0 { HOUR_US } else { 0 })),
                queue_of(levels),
            );
        }
    });
    reschedule(&scene, Some(batching(&[], 0)), queue_of([wide()]));
    let mut keys: Vec<u64> = scene.letters.answers(count as usize).iter().map(|answer| answer.key).collect();
    keys.sort_unstable();
    assert_eq!(keys, (0..count).collect::<Vec<_>>());
    until("nobody inside", || scene.runner.inside() == 0);
}
