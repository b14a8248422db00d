//! Who runs a model's batches: leases, second leases, and inline execution as it is earned and lost.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use kushi_core::{Capability, ModelSpec, Placement, Runner, Step};
use kushi_testkit::{PATIENCE, PuppetEngine, Scene, drive, echo_spec, until};

const MS: Duration = Duration::from_millis(1);

fn two_instances() -> ModelSpec {
    ModelSpec { instances: 2, ..echo_spec() }
}

/// Asks as an io thread does: leads when it may. Answers whether it did.
fn ask_and_lead(scene: &Scene) -> bool {
    let (_, lease) = scene.lead(scene.request(1, 1));
    let leads = lease.is_some();
    lease.map(drive);
    scene.letters.answer(1);
    leads
}

#[test]
fn a_model_starts_on_its_threads() {
    let scene = Scene::new(echo_spec());
    assert_eq!(scene.runner.placement(), Placement::Threads);
    assert!(!ask_and_lead(&scene));
    assert_ne!(scene.puppet.seen()[0].thread, thread::current().id());
}

#[test]
fn short_batches_earn_inline_and_long_ones_lose_it() {
    let scene = Scene::without_drivers(echo_spec());
    for _ in 0..2 {
        scene.puppet.takes(Duration::from_micros(50), &scene.clock);
        let mut batches = 0;
        while scene.runner.placement() == Placement::Threads {
            assert!(batches < 500, "short batches never earned inline");
            ask_and_lead(&scene);
            batches += 1;
        }
        until("whoever asks to lead", || ask_and_lead(&scene));
        assert_eq!(scene.puppet.seen().last().map(|seen| seen.thread), Some(thread::current().id()));

        scene.puppet.takes(2 * MS, &scene.clock);
        let mut batches = 0;
        while scene.runner.placement() == Placement::Inline {
            assert!(batches < 10, "long batches stayed inline");
            ask_and_lead(&scene);
            batches += 1;
        }
        assert!(!ask_and_lead(&scene));
        assert_ne!(scene.puppet.seen().last().map(|seen| seen.thread), Some(thread::current().id()));
    }
}

#[test]
fn one_very_long_batch_sends_the_rest_to_the_threads_at_once() {
    let scene = Scene::new(echo_spec());
    scene.earn_inline();
    scene.puppet.takes(200 * MS, &scene.clock);
    let (_, lease) = scene.lead(scene.request(1, 8));
    scene.ask([2]);
    let step = lease.map(kushi_core::Lease::run);
    assert!(matches!(step, Some(Step::Done)));
    scene.letters.answers(2);
    assert_ne!(scene.puppet.seen().last().map(|seen| seen.thread), Some(thread::current().id()));
}

#[test]
fn engines_and_configurations_may_forbid_inline() {
    let not_inline = Capability { concurrent: true, inline: false, keeps_slots: false };
    for scene in [
        Scene::on(echo_spec(), PuppetEngine::new(not_inline)),
        Scene::new(ModelSpec { inline: false, ..echo_spec() }),
    ] {
        for _ in 0..300 {
            assert!(!ask_and_lead(&scene));
        }
    }
}

#[test]
fn a_dropped_lease_is_taken_over_by_an_instance_thread() {
    let scene = Scene::new(echo_spec());
    scene.earn_inline();
    let (_, lease) = scene.lead(scene.request(1, 1));
    assert!(lease.is_some());
    drop(lease);
    scene.letters.answer(1);
    assert_ne!(scene.puppet.seen().last().map(|seen| seen.thread), Some(thread::current().id()));
}

#[test]
fn a_leader_that_leaves_after_one_batch_leaves_nothing_behind() {
    let scene = Scene::without_drivers(echo_spec());
    scene.earn_inline();
    let (_, lease) = scene.lead(scene.request(0, 1));
    scene.ask(1..=20);
    let step = lease.map(kushi_core::Lease::run);
    assert!(matches!(step, Some(Step::Again(_))));
    drop(step);
    scene.letters.answers(21);
}

#[test]
fn a_burst_has_one_leader() {
    let scene = Scene::new(two_instances());
    scene.earn_inline();
    let (_, lease) = scene.lead(scene.request(0, 1));
    for key in 1..=5 {
        assert!(scene.lead(scene.request(key, 1)).1.is_none(), "a leader is on its way");
    }
    assert_eq!(lease.map(drive), Some(1));
    assert_eq!(scene.letters.answers(6).len(), 6);
    assert!(scene.leases.is_empty());
}

#[test]
fn while_every_leader_executes_the_next_request_leads_a_free_slot() {
    let scene = Scene::new(two_instances());
    scene.earn_inline();
    let before = scene.puppet.seen().len();
    scene.puppet.hold();
    let (_, lease) = scene.lead(scene.request(1, 1));
    thread::scope(|scope| {
        scope.spawn(|| lease.map(drive));
        scene.puppet.await_batches(before + 1);
        let (_, lease) = scene.lead(scene.request(2, 1));
        assert!(lease.is_some());
        assert!(scene.lead(scene.request(3, 1)).1.is_none());
        scene.puppet.release_all();
        lease.map(drive);
    });
    scene.letters.answers(3);
}

#[test]
fn a_full_batch_left_behind_is_offered_to_a_second_driver() {
    let scene = Scene::new(two_instances());
    scene.earn_inline();
    let before = scene.puppet.seen().len();
    let (_, lease) = scene.lead(scene.request(0, 1));
    scene.ask(1..=16);
    scene.puppet.hold();
    thread::scope(|scope| {
        scope.spawn(|| lease.map(drive));
        let second = scene.leases.lease();
        scope.spawn(|| drive(second));
        scene.puppet.await_batches(before + 2);
        assert_eq!(scene.puppet.most_at_once(), 2);
        scene.puppet.release_all();
    });
    scene.letters.answers(17);
}

#[test]
fn a_second_lease_that_nobody_wants_goes_to_an_instance_thread() {
    let scene = Scene::without_drivers(two_instances());
    scene.earn_inline();
    let before = scene.puppet.seen().len();
    let (_, lease) = scene.lead(scene.request(0, 1));
    scene.ask(1..=16);
    scene.puppet.hold();
    thread::scope(|scope| {
        scope.spawn(|| lease.map(drive));
        scene.puppet.await_batches(before + 2);
        scene.puppet.release_all();
    });
    scene.letters.answers(17);
    assert!(scene.runner.retire(PATIENCE), "both slots came home");
}

#[test]
fn an_instance_thread_passes_its_lease_on_once_inline_is_earned() {
    let scene = Scene::new(echo_spec());
    for _ in 0..127 {
        ask_and_lead(&scene);
    }
    let before = scene.puppet.seen().len();
    scene.plug();
    scene.ask([1]);
    scene.puppet.release(before);
    let lease = scene.leases.lease();
    scene.puppet.release_all();
    assert_eq!(drive(lease), 1);
    scene.letters.answers(2);
    assert_eq!(scene.puppet.seen().last().map(|seen| seen.thread), Some(thread::current().id()));
}

#[test]
fn a_lease_may_travel_to_another_thread_and_outlive_every_other_hold_on_its_runner() {
    let scene = Scene::new(echo_spec());
    scene.earn_inline();
    let (ticket, lease) = scene.lead(scene.request(1, 1));
    drop(ticket);
    let runner: Arc<Runner> = scene.runner.clone();
    thread::scope(|scope| scope.spawn(|| lease.map(drive)).join().ok());
    scene.letters.answer(1);
    assert!(runner.retire(PATIENCE));
}
