//! Instances that stay on cores of their own: what the system makes of it is tested from Python.

use std::collections::BTreeSet;

use kushi_core::{ModelSpec, Placement};
use kushi_testkit::{Scene, echo_spec};

fn spec(cores: &[&[usize]]) -> ModelSpec {
    let cores: Vec<_> = cores.iter().map(|cores| cores.to_vec()).collect();
    ModelSpec { instances: cores.len(), max_batch_size: 1, cores, ..echo_spec() }
}

#[test]
fn an_instance_on_other_cores_than_the_others_is_executed_by_its_own_thread() {
    let scene = Scene::new(spec(&[&[0], &[0, 1], &[1]]));
    let mut key = 0;
    for busy in [1, 3, 2, 3, 1, 3] {
        let before = scene.puppet.seen().len();
        scene.puppet.hold();
        scene.ask(key + 1..=key + busy);
        key += busy;
        scene.puppet.await_batches(before + busy as usize);
        scene.puppet.release_all();
        scene.letters.answers(busy as usize);
    }
    let seen: BTreeSet<_> =
        scene.puppet.seen().iter().map(|seen| (seen.slot, format!("{:?}", seen.thread))).collect();
    let threads: BTreeSet<_> = seen.iter().map(|(_, thread)| thread).collect();
    assert_eq!((seen.len(), threads.len()), (3, 3), "{seen:?}");
}

#[test]
fn a_short_model_that_has_cores_stays_on_its_threads() {
    let scene = Scene::new(spec(&[&[0]]));
    for key in 1..=300 {
        scene.ask([key]);
        scene.letters.answers(1);
    }
    assert_eq!(scene.runner.placement(), Placement::Threads);
}
