//! Instance groups: as many batches at the same time as there are instances.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use kushi_core::{Batch, Batching, Capability, Engine, ErrorKind, ModelSpec, Runner, RunnerOptions, Slot};
use kushi_testkit::{PATIENCE, PuppetEngine, Scene, echo_spec, int32};

#[test]
fn two_instances_run_two_batches_at_the_same_time() {
    let scene = Scene::new(ModelSpec { instances: 2, max_batch_size: 1, ..echo_spec() });
    scene.puppet.hold();
    scene.ask(1..=3);
    let seen = scene.puppet.await_batches(2);
    assert_eq!(scene.runner.backlog().requests, 1);
    assert_eq!(seen.iter().map(|seen| seen.slot).collect::<BTreeSet<_>>(), BTreeSet::from([0, 1]));
    assert_ne!(seen[0].thread, seen[1].thread);
    scene.puppet.release_all();
    scene.letters.answers(3);
    assert_eq!(scene.puppet.most_at_once(), 2);
}

#[test]
fn an_instance_that_is_busy_leaves_the_delay_of_the_next_batch_to_another() {
    let batching =
        Batching { preferred_batch_sizes: vec![], max_queue_delay_us: 2000, preserve_ordering: false };
    let scene = Scene::new(ModelSpec { instances: 2, batching: Some(batching), ..echo_spec() });
    scene.puppet.hold();
    // A full batch goes at once.
    scene.submit_rows(1, 8);
    scene.ask([2]);
    scene.puppet.await_batches(1);
    scene.clock.advance(Duration::from_millis(2));
    assert_eq!(scene.puppet.await_batches(2)[1].ids, ["2"]);
    scene.puppet.release_all();
    scene.letters.answers(2);
}

#[test]
fn an_engine_that_is_not_concurrent_cannot_serve_two_instances() {
    let capability = Capability { concurrent: false, inline: true, keeps_slots: false };
    let puppet: Arc<dyn Engine> = Arc::new(PuppetEngine::new(capability));
    for engines in [vec![puppet.clone(), puppet], vec![]] {
        let started = Runner::start(echo_spec(), engines, RunnerOptions::default());
        assert_eq!(started.err().map(|error| error.kind), Some(ErrorKind::ConfigInvalid));
    }
}

/// Counts its batches in the slot, and panics on the second.
struct Counting;

impl Engine for Counting {
    fn capability(&self) -> Capability {
        Capability { concurrent: false, inline: false, keeps_slots: false }
    }

    fn execute(&self, slot: &mut Slot, batch: Batch) {
        let before =
            slot.state.take().and_then(|state| state.downcast::<i32>().ok()).map_or(0, |count| *count);
        slot.state = Some(Box::new(before + 1));
        if before == 1 {
            std::panic::resume_unwind(Box::new("in the middle of its work"));
        }
        batch.scatter(&[Some(int32(&[1, 1], [before]))]);
    }
}

#[test]
fn a_slot_keeps_its_state_from_batch_to_batch_but_not_beyond_a_panic() {
    let scene = Scene::new(echo_spec());
    let started = Runner::start(echo_spec(), vec![Arc::new(Counting)], RunnerOptions::default());
    let Ok(runner) = started else { panic!("it starts") };
    let counts = [1, 2, 3, 4].map(|key| {
        assert!(runner.submit(scene.request(key, 1)).is_ok());
        let answer = scene.letters.answer(key);
        answer.error().is_none().then(|| answer.output(0)[0])
    });
    assert_eq!(counts, [Some(0), None, Some(0), None]);
    assert!(runner.retire(PATIENCE));
}
