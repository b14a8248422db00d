//! Which requests meet in one batch, and when it goes.

use std::time::Duration;

use kushi_core::{Batching, ModelSpec};
use kushi_testkit::{PuppetEngine, Scene, echo_spec, int32, tensor_spec};

const MS: Duration = Duration::from_millis(1);
const HOUR_US: u64 = 3_600_000_000;

fn batching(preferred: &[usize], max_queue_delay_us: u64) -> ModelSpec {
    let batching =
        Batching { preferred_batch_sizes: preferred.into(), max_queue_delay_us, preserve_ordering: false };
    ModelSpec { batching: Some(batching), ..echo_spec() }
}

/// Rows of the batches so far, without the plug's.
fn rows(puppet: &PuppetEngine) -> Vec<usize> {
    puppet.seen().iter().skip(1).map(|seen| seen.rows).collect()
}

fn ids(puppet: &PuppetEngine) -> Vec<Vec<String>> {
    puppet.seen().into_iter().skip(1).map(|seen| seen.ids).collect()
}

#[test]
fn joins_what_waits_up_to_the_maximum() {
    let scene = Scene::new(echo_spec());
    scene.plug();
    scene.ask(1..=20);
    scene.puppet.release_all();
    scene.letters.answers(21);
    assert_eq!(rows(&scene.puppet), [8, 8, 4]);
}

#[test]
fn keeps_a_request_of_several_rows_together() {
    let scene = Scene::new(echo_spec());
    scene.plug();
    for key in 1..=3 {
        scene.submit_rows(key, 3);
    }
    scene.puppet.release_all();
    scene.letters.answers(4);
    assert_eq!(rows(&scene.puppet), [6, 3]);
}

#[test]
fn takes_the_largest_preferred_size_that_is_there() {
    let scene = Scene::new(batching(&[2, 4], 0));
    scene.plug();
    scene.ask(1..=7);
    scene.puppet.release_all();
    scene.letters.answers(8);
    assert_eq!(rows(&scene.puppet), [4, 2, 1]);
}

#[test]
fn requests_whose_other_dimensions_differ_never_meet() {
    let scene = Scene::new(echo_spec());
    scene.plug();
    for (key, width) in [(1, 1), (2, 1), (3, 2), (4, 1)] {
        scene.submit(scene.request_of(key, int32(&[1, width], 0..width as i32)));
    }
    scene.puppet.release_all();
    scene.letters.answers(5);
    assert_eq!(ids(&scene.puppet), [vec!["1", "2", "4"], vec!["3"]]);
}

#[test]
fn requests_of_other_shapes_keep_their_order_where_it_counts() {
    let mut spec = echo_spec();
    spec.batching.iter_mut().for_each(|batching| batching.preserve_ordering = true);
    let scene = Scene::new(spec);
    scene.plug();
    for (key, width) in [(1, 1), (2, 1), (3, 2), (4, 1)] {
        scene.submit(scene.request_of(key, int32(&[1, width], 0..width as i32)));
    }
    scene.puppet.release_all();
    scene.letters.answers(5);
    assert_eq!(ids(&scene.puppet), [vec!["1", "2"], vec!["3"], vec!["4"]]);
}

#[test]
fn a_full_batch_does_not_wait_behind_others_that_wait_for_company() {
    let batching =
        Batching { preferred_batch_sizes: vec![], max_queue_delay_us: 2000, preserve_ordering: false };
    let scene = Scene::new(ModelSpec { batching: Some(batching), ..echo_spec() });
    scene.ask([1]);
    for key in 2..10 {
        scene.submit(scene.request_of(key, int32(&[1, 2], [1, 2])));
    }
    assert_eq!(scene.puppet.await_batches(1)[0].rows, 8);
    scene.ask([10]);
    scene.clock.advance(Duration::from_millis(2));
    assert_eq!(scene.puppet.await_batches(2)[1].ids, ["1", "10"]);
    scene.letters.answers(10);
}

#[test]
fn requests_with_other_optional_inputs_never_meet() {
    let mut spec = echo_spec();
    spec.inputs.push(tensor_spec("MASK", kushi_core::DataType::Int32, &[-1]));
    spec.inputs[1].optional = true;
    let scene = Scene::new(spec);
    let request = |key, with_mask: bool| {
        let mut request = scene.request(key, 1);
        request.inputs.push(with_mask.then(|| int32(&[1, 1], [0])));
        request
    };
    scene.puppet.hold();
    scene.submit(request(0, true));
    scene.puppet.await_batches(1);
    for (key, with_mask) in [(1, true), (2, true), (3, false), (4, false), (5, true)] {
        scene.submit(request(key, with_mask));
    }
    scene.puppet.release_all();
    scene.letters.answers(6);
    assert_eq!(ids(&scene.puppet), [vec!["1", "2", "5"], vec!["3", "4"]]);
}

#[test]
fn a_model_without_batching_runs_one_request_at_a_time() {
    let scene = Scene::new(ModelSpec { batching: None, ..echo_spec() });
    scene.plug();
    scene.ask(1..=3);
    scene.puppet.release_all();
    scene.letters.answers(4);
    assert_eq!(rows(&scene.puppet), [1, 1, 1]);
}

#[test]
fn a_model_without_a_batch_dimension_runs_one_request_at_a_time() {
    let scene = Scene::new(ModelSpec { max_batch_size: 0, ..echo_spec() });
    let request = |key| {
        let mut request = scene.request_of(key, int32(&[3], [1, 2, 3]));
        request.rows = 1;
        request
    };
    scene.submit(request(1));
    scene.submit(request(2));
    let answers = scene.letters.answers(2);
    assert_eq!(scene.puppet.seen().iter().map(|seen| seen.rows).collect::<Vec<_>>(), [1, 1]);
    assert_eq!(answers[0].responses[0].outputs[0].1.shape.as_slice(), [3]);
}

#[test]
fn a_delay_holds_the_oldest_until_its_end_and_not_longer() {
    let scene = Scene::new(batching(&[], 2000));
    // Twice: the alarm of the first wait must not stand for the second.
    for round in 0..2 {
        scene.ask([1]);
        scene.clock.advance(MS);
        scene.ask([2]);
        scene.clock.advance(MS);
        let answers = scene.letters.answers(2);
        let waited: Vec<_> = answers.iter().map(|answer| answer.end.timings.queue).collect();
        assert_eq!(waited, [2 * MS, MS]);
        assert_eq!(scene.puppet.seen().len(), round + 1);
    }
}

#[test]
fn a_full_batch_does_not_wait_for_the_delay() {
    let scene = Scene::new(batching(&[], HOUR_US));
    scene.ask(1..=8);
    scene.letters.answers(8);
    assert_eq!(scene.puppet.seen().len(), 1);
}

#[test]
fn a_preferred_size_does_not_wait_for_the_delay() {
    let scene = Scene::new(batching(&[4], HOUR_US));
    scene.ask(1..=4);
    scene.letters.answers(4);
    assert_eq!(scene.puppet.seen().len(), 1);
}

#[test]
fn a_request_that_fits_no_more_sends_the_batch_before_it_off() {
    let scene = Scene::new(batching(&[], HOUR_US));
    scene.submit_rows(1, 5);
    scene.submit_rows(2, 4);
    scene.letters.answer(1);
    assert_eq!(scene.runner.backlog().requests, 1);
}

#[test]
fn a_model_with_a_delay_never_runs_inline() {
    let scene = Scene::new(batching(&[1], 2000));
    for _ in 0..300 {
        let (_, lease) = scene.lead(scene.request(1, 1));
        assert!(lease.is_none());
        scene.letters.answer(1);
    }
}
