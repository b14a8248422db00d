//! The statistics of a version equal what was done, to the nanosecond of a clock that stands still.

use std::time::Duration;

use kushi_core::{
    BatchRow, Clock, Error, ErrorKind, FailureReason, ModelSpec, Occupancy, QueuePolicy, Snapshot, Totals,
};
use kushi_testkit::{Act, Scene, echo_spec, queue_of, wide};

const MS: Duration = Duration::from_millis(1);

fn totals(count: u64, ms: u64) -> Totals {
    Totals { count, ns: ms * 1_000_000 }
}

/// Succeeded, failed, executions, rows inferred.
fn counts(snapshot: &Snapshot) -> [u64; 4] {
    [snapshot.success.count, snapshot.fail.count, snapshot.execution_count, snapshot.inference_count]
}

#[test]
fn times_are_split_into_queue_and_compute_for_each_request_and_each_batch_size() {
    let scene = Scene::new(echo_spec());
    scene.puppet.takes(3 * MS, &scene.clock);
    scene.plug();
    scene.submit_rows(1, 1);
    scene.submit_rows(2, 2);
    scene.clock.advance(5 * MS);
    scene.puppet.release_all();
    scene.letters.answers(3);
    let snapshot = scene.runner.statistics();
    assert_eq!(counts(&snapshot), [3, 0, 2, 4]);
    assert_eq!(snapshot.success, totals(3, 8 + 11 + 11));
    assert_eq!(snapshot.queue, totals(3, 8 + 8));
    assert_eq!(snapshot.compute_input, totals(3, 0));
    assert_eq!(snapshot.compute_infer, totals(3, 8 + 3 + 3));
    assert_eq!(snapshot.compute_output, totals(3, 0));
    assert_eq!(snapshot.last_inference, Some(scene.clock.now()));
    let row = |ms| BatchRow { compute_infer: totals(1, ms), ..row_of_one() };
    assert_eq!(snapshot.batches.into_iter().collect::<Vec<_>>(), [(1, row(8)), (3, row(3))]);
}

fn row_of_one() -> BatchRow {
    BatchRow { compute_input: totals(1, 0), compute_infer: totals(1, 0), compute_output: totals(1, 0) }
}

#[test]
fn each_failure_counts_once_with_its_reason() {
    let queue = queue_of([QueuePolicy { max_requests: 3, default_timeout_us: 1000, ..wide() }]);
    let scene = Scene::new(ModelSpec { queue, ..echo_spec() });
    scene.puppet.script([Act::Fail(Error::new(ErrorKind::EngineFailed, "broken")), Act::Panic]);
    scene.plug();
    let cancelled = scene.submit_rows(1, 1);
    scene.ask([2]);
    scene.clock.advance(MS);
    scene.ask([3]);
    scene.refused(scene.request(4, 1));
    assert!(cancelled.cancel());
    scene.puppet.release_all();
    scene.letters.answers(4);
    let snapshot = scene.runner.statistics();
    assert_eq!(counts(&snapshot), [0, 4 + 1, 0, 0]);
    let reasons = FailureReason::ALL.map(|reason| (reason.label(), snapshot.failures(reason)));
    assert_eq!(reasons, [("REJECTED", 2), ("CANCELED", 1), ("BACKEND", 2), ("OTHER", 0)]);
    assert_eq!(snapshot.fail, totals(5, 1 + 1 + 1));
}

#[test]
fn a_batch_that_succeeds_in_part_is_one_execution() {
    let scene = Scene::new(echo_spec());
    scene.plug();
    scene.puppet.script([Act::Late]);
    scene.ask(1..=3);
    scene.puppet.release_all();
    let mut batch = scene.puppet.late();
    batch.end(0, Ok(()));
    batch.end(1, Err(Error::new(ErrorKind::EngineFailed, "broken")));
    batch.end(2, Ok(()));
    batch.end(2, Ok(()));
    scene.letters.answers(4);
    assert_eq!(counts(&scene.runner.statistics()), [3, 1, 2, 3]);
}

#[test]
fn who_has_an_answer_finds_it_counted() {
    let scene = Scene::new(echo_spec());
    for count in 1..=50 {
        scene.submit_rows(count, 1);
        scene.letters.answer(count);
        assert_eq!(scene.runner.statistics().success.count, count);
    }
}

#[test]
fn pending_requests_are_those_that_wait() {
    let scene = Scene::new(echo_spec());
    scene.plug();
    scene.submit_rows(1, 2);
    scene.submit_rows(2, 3);
    let backlog = scene.runner.backlog();
    assert_eq!((backlog.requests, backlog.rows, backlog.bytes), (2, 5, 20));
    assert_eq!(scene.runner.inside(), 3);
}

#[test]
fn a_request_waits_then_runs_then_is_gone() {
    let scene = Scene::new(echo_spec());
    let occupancy = || scene.runner.occupancy();
    assert_eq!(occupancy(), Occupancy { waiting: 0, running: 0 });
    scene.plug();
    let cancelled = scene.submit_rows(1, 1);
    scene.submit_rows(2, 1);
    assert_eq!(occupancy(), Occupancy { waiting: 2, running: 1 });
    assert!(cancelled.cancel());
    assert_eq!(occupancy(), Occupancy { waiting: 1, running: 1 });
    scene.puppet.release_all();
    scene.letters.answers(3);
    scene.runner.drain(Duration::from_secs(30));
    assert_eq!(occupancy(), Occupancy { waiting: 0, running: 0 });
}
