//! The requests of a batch that failed because of one request's data are executed once more, each alone.

use std::time::Duration;

use kushi_core::{Batching, Clock, Error, ErrorKind, FailureReason, ModelSpec};
use kushi_testkit::{Act, Answer, Scene, echo_spec, until};

const TEXT: &str = "index 1000 is out of range";

fn choke(id: &'static str) -> Act {
    Act::Choke(id, Error::new(ErrorKind::EngineFailed, TEXT))
}

/// Requests 1 to 4 as one batch, the second on the engine.
fn batch_of_four(scene: &Scene) -> Vec<kushi_core::Ticket> {
    scene.plug();
    let tickets = scene.ask(1..=4);
    scene.puppet.release(0);
    scene.puppet.await_batches(2);
    tickets
}

fn ids(scene: &Scene) -> Vec<String> {
    scene.puppet.seen().iter().skip(1).map(|seen| seen.ids.join(" ")).collect()
}

fn kinds(answers: &[Answer]) -> Vec<(u64, Option<ErrorKind>)> {
    let mut kinds: Vec<_> =
        answers.iter().map(|answer| (answer.key, answer.error().map(|error| error.kind))).collect();
    kinds.sort_unstable_by_key(|(key, _)| *key);
    kinds
}

#[test]
fn only_the_request_that_caused_the_failure_hears_of_it() {
    let scene = Scene::new(echo_spec());
    scene.puppet.usually(choke("3"));
    batch_of_four(&scene);
    scene.puppet.release_all();
    for key in [1, 2, 4] {
        assert_eq!(scene.letters.answer(key).output(0), (key as i32).to_le_bytes());
    }
    let guilty = scene.letters.answer(3);
    assert_eq!(guilty.error().map(|error| &*error.message), Some(TEXT));
    assert_eq!(ids(&scene), ["1 2 3 4", "1", "2", "3", "4"], "once more, in their order");
}

#[test]
fn a_request_whose_data_changes_the_number_of_rows_fails_alone() {
    let scene = Scene::new(echo_spec());
    scene.puppet.usually(Act::Shrink("3"));
    batch_of_four(&scene);
    scene.puppet.release_all();
    for key in [1, 2, 4] {
        assert_eq!(scene.letters.answer(key).output(0), (key as i32).to_le_bytes());
    }
    let guilty = scene.letters.answer(3);
    let text = "output 'OUTPUT' has shape [0, 1], expected 1 rows in its first dimension";
    assert_eq!(guilty.error().map(|error| &*error.message), Some(text));
}

#[test]
fn every_request_counts_once() {
    let scene = Scene::new(echo_spec());
    scene.puppet.usually(choke("3"));
    batch_of_four(&scene);
    scene.puppet.release_all();
    scene.letters.answers(5);
    let statistics = scene.runner.statistics();
    assert_eq!((statistics.success.count, statistics.fail.count), (4, 1));
    assert_eq!(statistics.failures(FailureReason::Backend), 1);
    assert_eq!((statistics.execution_count, statistics.inference_count), (4, 4));
    assert_eq!(statistics.batches[&1].compute_infer.count, 4);
    // An answer leaves before its request does.
    until("nobody is inside", || scene.runner.inside() == 0);
}

#[test]
fn the_first_attempt_is_no_time_in_the_queue() {
    let scene = Scene::new(echo_spec());
    scene.puppet.usually(choke("3"));
    scene.plug();
    scene.ask(1..=4);
    scene.puppet.takes(Duration::from_millis(7), &scene.clock);
    scene.puppet.release_all();
    scene.letters.answers(5);
    let statistics = scene.runner.statistics();
    assert_eq!(statistics.queue.ns, 0);
    assert_eq!(Duration::from_nanos(statistics.compute_infer.ns), Duration::from_millis(3 * 7));
}

#[test]
fn an_engine_that_fails_for_everybody_fails_each_with_its_own_text_and_is_not_asked_again() {
    let scene = Scene::new(echo_spec());
    let error = |text: &'static str| Error::new(ErrorKind::EngineFailed, text);
    scene.puppet.script([Act::Echo, Act::Choke("1", error("all"))]);
    scene.puppet.script(
        (1..=4).map(|id| Act::Choke(["1", "2", "3", "4"][id - 1], error(["a", "b", "c", "d"][id - 1]))),
    );
    batch_of_four(&scene);
    scene.puppet.release_all();
    let mut answers = scene.letters.answers(5);
    answers.sort_unstable_by_key(|answer| answer.key);
    let texts: Vec<_> =
        answers.iter().skip(1).map(|answer| answer.error().map(|error| error.message.to_string())).collect();
    assert_eq!(texts, ["a", "b", "c", "d"].map(|text| Some(text.to_owned())));
    assert_eq!(scene.puppet.seen().len(), 6);
}

fn all_fail_in_one_run(scene: &Scene) {
    batch_of_four(scene);
    scene.puppet.release_all();
    let failed = Some(ErrorKind::EngineFailed);
    let expected = [(0, None), (1, failed), (2, failed), (3, failed), (4, failed)];
    assert_eq!(kinds(&scene.letters.answers(5)), expected);
    assert_eq!(scene.puppet.seen().len(), 2, "the one before it, and the batch");
}

#[test]
fn a_failure_that_is_not_of_the_data_fails_the_batch() {
    let scene = Scene::new(echo_spec());
    scene.puppet.script([Act::Echo, Act::Fail(Error::new(ErrorKind::EngineFailed, "the device is lost"))]);
    all_fail_in_one_run(&scene);
}

#[test]
fn a_slot_that_keeps_state_does_not_execute_again() {
    let scene = Scene::new(echo_spec());
    scene.puppet.keeps_state();
    scene.puppet.usually(choke("3"));
    all_fail_in_one_run(&scene);
}

#[test]
fn what_is_cancelled_or_late_by_then_does_not_run_again() {
    let scene = Scene::new(echo_spec());
    scene.puppet.usually(choke("1"));
    scene.plug();
    scene.ask([1]);
    let cancelled = scene.submit_rows(2, 1);
    let mut late = scene.request(3, 1);
    late.deadline = Some(scene.clock.now() + Duration::from_millis(5));
    scene.submit(late);
    scene.ask([4]);
    scene.puppet.release(0);
    scene.puppet.await_batches(2);
    scene.puppet.takes(Duration::from_millis(7), &scene.clock);
    assert!(cancelled.cancel());
    scene.puppet.release_all();
    let expected = [
        (0, None),
        (1, Some(ErrorKind::EngineFailed)),
        (2, Some(ErrorKind::Cancelled)),
        (3, Some(ErrorKind::DeadlineExceeded)),
        (4, None),
    ];
    assert_eq!(kinds(&scene.letters.answers(5)), expected);
    assert_eq!(ids(&scene), ["1 2 3 4", "1", "4"]);
    let statistics = scene.runner.statistics();
    assert_eq!(FailureReason::ALL.map(|reason| statistics.failures(reason)), [1, 1, 1, 0]);
}

#[test]
fn answers_keep_their_order_where_the_model_asks_for_it() {
    let batching = Batching { preferred_batch_sizes: vec![], max_queue_delay_us: 0, preserve_ordering: true };
    let scene = Scene::new(ModelSpec { batching: Some(batching), instances: 2, ..echo_spec() });
    scene.puppet.hold();
    scene.puppet.usually(choke("11"));
    scene.ask([0]);
    scene.puppet.await_batches(1);
    scene.ask([1]);
    scene.puppet.await_batches(2);
    scene.ask([10, 11, 12]);
    scene.puppet.release(1);
    scene.puppet.await_batches(3);
    scene.ask([20]);
    scene.puppet.release(0);
    scene.puppet.await_batches(4);
    scene.puppet.release(3);
    scene.letters.answers(2);
    scene.puppet.release_all();
    let keys: Vec<_> = scene.letters.answers(4).iter().map(|answer| answer.key).collect();
    assert_eq!(keys, [10, 11, 12, 20]);
}

#[test]
fn a_panic_on_the_second_attempt_costs_one_request() {
    let scene = Scene::new(echo_spec());
    scene.puppet.script([Act::Echo, choke("3"), Act::Echo, Act::Panic]);
    batch_of_four(&scene);
    scene.puppet.release_all();
    let failed = Some(ErrorKind::EngineFailed);
    assert_eq!(kinds(&scene.letters.answers(5)), [(0, None), (1, None), (2, failed), (3, None), (4, None)]);
}

#[test]
fn a_request_with_a_response_does_not_run_again() {
    let scene = Scene::new(echo_spec());
    scene.puppet.script([Act::Echo, Act::RespondAndChoke(Error::new(ErrorKind::EngineFailed, TEXT))]);
    all_fail_in_one_run(&scene);
}
