//! Warm-up: every instance executes the samples before a version takes requests.

use std::collections::BTreeMap;
use std::sync::Arc;

use kushi_core::{
    Batching, Drivers, Engine, Error, ErrorKind, Lease, ModelSpec, Placement, Runner, RunnerOptions,
    WarmUpSample,
};
use kushi_testkit::{Act, ManualClock, PATIENCE, PuppetEngine, Scene, drive, echo_spec, int32, until};

fn sample(name: &str, batch_size: usize, count: usize) -> WarmUpSample {
    let inputs = [Some(int32(&[1, 3], [7, 7, 7]))].into_iter().collect();
    WarmUpSample { name: name.into(), batch_size, count, inputs }
}

fn three_instances() -> ModelSpec {
    ModelSpec { instances: 3, ..echo_spec() }
}

/// The rows of the batches that each slot has executed, in order.
fn rows_by_slot(scene: &Scene) -> BTreeMap<usize, Vec<usize>> {
    let mut rows: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for seen in scene.puppet.seen() {
        rows.entry(seen.slot).or_default().push(seen.rows);
    }
    rows
}

#[test]
fn every_instance_executes_every_sample_as_often_as_it_says() {
    for scene in [Scene::new(three_instances()), Scene::keeping(three_instances())] {
        scene
            .runner
            .warm_up(&[sample("one", 1, 2), sample("all", 8, 1)])
            .unwrap_or_else(|error| panic!("{error}"));
        let each = vec![1, 1, 8];
        assert_eq!(rows_by_slot(&scene), (0..3).map(|slot| (slot, each.clone())).collect());
    }
}

#[test]
fn a_sample_is_one_batch_of_as_many_requests() {
    let scene = Scene::new(echo_spec());
    scene.runner.warm_up(&[sample("s", 4, 1)]).unwrap_or_else(|error| panic!("{error}"));
    let seen = scene.puppet.seen();
    assert_eq!((seen.len(), seen[0].ids.len(), seen[0].rows), (1, 4, 4));
}

#[test]
fn statistics_say_nothing_of_it() {
    let scene = Scene::new(three_instances());
    scene.runner.warm_up(&[sample("s", 2, 3)]).unwrap_or_else(|error| panic!("{error}"));
    let statistics = scene.runner.statistics();
    assert_eq!((statistics.execution_count, statistics.inference_count), (0, 0));
    assert!(statistics.success.count == 0 && statistics.last_inference.is_none());
    scene.ask([1]);
    scene.letters.answer(1);
    assert_eq!(scene.runner.statistics().execution_count, 1);
}

#[test]
fn requests_are_answered_as_ever_afterwards() {
    let batching = Batching { preferred_batch_sizes: vec![], max_queue_delay_us: 0, preserve_ordering: true };
    let scene = Scene::new(ModelSpec { batching: Some(batching), ..three_instances() });
    scene.runner.warm_up(&[sample("s", 8, 5)]).unwrap_or_else(|error| panic!("{error}"));
    until("nothing is inside", || scene.runner.inside() == 0);
    scene.ask(1..=9);
    for key in 1..=9 {
        assert_eq!(scene.letters.answer(key).output(0), (key as i32).to_le_bytes());
    }
}

/// Io threads, as it were: one for each lease.
struct Aside;

impl Drivers for Aside {
    fn offer(&self, lease: Lease) {
        std::thread::spawn(move || drive(lease));
    }
}

#[test]
fn a_model_that_has_earned_inline_execution_meanwhile_is_warmed_to_the_end() {
    let puppet = Arc::new(PuppetEngine::default());
    let engines = vec![puppet.clone() as Arc<dyn Engine>; 3];
    let clock = Arc::new(ManualClock::default());
    let options = RunnerOptions { clock, drivers: Some(Arc::new(Aside)), ..RunnerOptions::default() };
    let runner = Runner::start(three_instances(), engines, options).unwrap_or_else(|error| panic!("{error}"));
    runner.warm_up(&[sample("s", 1, 300)]).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(runner.placement(), Placement::Inline);
    assert_eq!(puppet.seen().len(), 900);
    assert!(runner.retire(PATIENCE));
}

#[test]
fn the_first_sample_that_fails_ends_it_with_the_errors_of_one_instance() {
    let scene = Scene::new(three_instances());
    scene.puppet.usually(Act::Fail(Error::new(ErrorKind::EngineFailed, "no kernel")));
    let samples = [sample("bad", 2, 5), sample("next", 1, 1)];
    let error = scene.runner.warm_up(&samples).expect_err("its batches fail");
    assert_eq!(error.kind, ErrorKind::ConfigInvalid);
    assert_eq!(error.message, "failed to run warmup sample 'bad': no kernel; no kernel; ");
    assert_eq!(scene.puppet.seen().len(), 3, "one run on each instance");
}

#[test]
fn a_sample_larger_than_a_batch_is_not_run() {
    for (max_batch_size, size) in [(8, 9), (0, 2)] {
        let scene = Scene::new(ModelSpec { max_batch_size, ..echo_spec() });
        let error = scene.runner.warm_up(&[sample("big", size, 1)]).expect_err("it is too large");
        let text = format!(
            "failed to run warmup sample 'big': batch size {size} for 'echo', max allowed is {max_batch_size}; "
        );
        assert_eq!((error.kind, &*error.message), (ErrorKind::ConfigInvalid, &*text));
        assert!(scene.puppet.seen().is_empty());
    }
}

#[test]
fn a_retirement_ends_one_that_stands_still() {
    let scene = Scene::new(three_instances());
    scene.puppet.usually(Act::Endless);
    std::thread::scope(|scope| {
        let warm_up = scope.spawn(|| scene.runner.warm_up(&[sample("s", 1, 1_000_000)]));
        scene.puppet.await_batches(3);
        assert!(scene.runner.retire(std::time::Duration::ZERO));
        let ended = warm_up.join().unwrap_or_else(|_| panic!("the warm-up panicked"));
        assert!(ended.is_err());
    });
}

#[test]
fn none_begins_on_a_runner_that_has_retired() {
    let scene = Scene::new(three_instances());
    scene.runner.retire(std::time::Duration::ZERO);
    let error = scene.runner.warm_up(&[sample("s", 1, 1)]).expect_err("it has retired");
    assert_eq!(error.kind, ErrorKind::ShuttingDown);
}
