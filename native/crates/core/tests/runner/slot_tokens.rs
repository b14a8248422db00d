//! Engines that keep their slots beyond the call and give them back later, from any thread.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use kushi_core::{
    Batch, Batching, Capability, Engine, Error, ErrorKind, Lease, ModelSpec, Runner, RunnerOptions, Slot,
    SlotToken, State, Step, Ticket,
};
use kushi_testkit::{Act, PATIENCE, PuppetEngine, Scene, drive, echo_spec, queue_of, respond, until, wide};

const MS: Duration = Duration::from_millis(1);
const KEEPS: Capability = Capability { concurrent: true, inline: false, keeps_slots: true };

/// A scene of batches of one request that stay on their slots.
pub(crate) fn keeping(instances: usize) -> Scene {
    let scene = Scene::keeping(ModelSpec { instances, max_batch_size: 1, ..echo_spec() });
    scene.puppet.usually(Act::Keep);
    scene
}

fn delayed(delay: Duration) -> ModelSpec {
    let max_queue_delay_us = delay.as_micros() as u64;
    let batching = Batching { preferred_batch_sizes: vec![], max_queue_delay_us, preserve_ordering: false };
    ModelSpec { batching: Some(batching), ..echo_spec() }
}

pub(crate) fn lead(scene: &Scene, key: u64) -> Option<Lease> {
    scene.lead(scene.request(key, 1)).1
}

/// Brings a request that has to be led, and leads it.
pub(crate) fn begin(scene: &Scene, key: u64) -> Ticket {
    let (ticket, lease) = scene.lead(scene.request(key, 1));
    assert!(lease.is_some_and(|lease| matches!(lease.run(), Step::Done)), "the slot stays with its engine");
    ticket
}

fn kind(scene: &Scene, key: u64) -> Option<ErrorKind> {
    scene.letters.answer(key).error().map(|error| error.kind)
}

#[test]
fn a_kept_slot_is_busy_until_its_token_is_dropped_on_whatever_thread() {
    let scene = keeping(1);
    begin(&scene, 1);
    assert!(lead(&scene, 2).is_none());
    let (token, batch) = scene.puppet.kept();
    respond(batch, 0);
    assert_eq!(kind(&scene, 1), None);
    assert_eq!(scene.runner.backlog().requests, 1, "an answer alone frees no slot");
    thread::scope(|scope| scope.spawn(|| drop(token)).join().ok());
    let lease = scene.leases.lease();
    scene.puppet.usually(Act::Echo);
    assert_eq!(drive(lease), 1);
    assert_eq!(kind(&scene, 2), None);
}

#[test]
fn whoever_gives_a_slot_back_may_lead() {
    let scene = keeping(1);
    begin(&scene, 1);
    lead(&scene, 2);
    let (token, batch) = scene.puppet.kept();
    respond(batch, 0);
    scene.puppet.usually(Act::Echo);
    assert_eq!(token.give_back().map(drive), Some(1));
    assert_eq!(scene.letters.answers(2).len(), 2);
    assert!(scene.leases.is_empty());
    begin_and_finish_with_nothing_left(&scene);
}

fn begin_and_finish_with_nothing_left(scene: &Scene) {
    scene.puppet.script([Act::Keep]);
    begin(scene, 3);
    let (token, batch) = scene.puppet.kept();
    respond(batch, 0);
    assert!(token.give_back().is_none(), "there is nothing to lead");
}

#[test]
fn a_slot_that_is_back_when_the_call_returns_stays_with_its_leader() {
    let scene = Scene::keeping(ModelSpec { max_batch_size: 1, ..echo_spec() });
    let lease = lead(&scene, 1);
    scene.ask([2, 3]);
    assert_eq!(lease.map(drive), Some(3));
    assert!(scene.leases.is_empty());
    let threads: BTreeSet<_> = scene.puppet.seen().iter().map(|seen| format!("{:?}", seen.thread)).collect();
    assert_eq!(threads.len(), 1);
    scene.letters.answers(3);
}

#[test]
fn slots_are_kept_side_by_side_and_one_thread_is_enough_where_nobody_leads() {
    let spec = ModelSpec { instances: 3, max_batch_size: 1, ..echo_spec() };
    let scene = Scene::on(spec, PuppetEngine::new(KEEPS));
    scene.puppet.usually(Act::Keep);
    // Their leases are dropped.
    scene.ask([1, 2, 3]);
    let kept = [(); 3].map(|()| scene.puppet.kept());
    assert_eq!(kept.iter().map(|(slot, _)| slot.index).collect::<BTreeSet<_>>(), BTreeSet::from([0, 1, 2]));
    let seen = scene.puppet.seen();
    assert!(seen.iter().all(|seen| seen.thread == seen_first(&scene)), "{seen:?}");
    assert_ne!(seen_first(&scene), thread::current().id());
    scene.ask([4]);
    for (token, batch) in kept {
        drop(token);
        respond(batch, 0);
    }
    let (token, batch) = scene.puppet.kept();
    respond(batch, 0);
    drop(token);
    scene.letters.answers(4);
    until("rest", || scene.runner.at_rest());
}

fn seen_first(scene: &Scene) -> thread::ThreadId {
    scene.puppet.seen()[0].thread
}

#[test]
fn the_clock_thread_minds_delays() {
    let scene = Scene::keeping(delayed(2 * MS));
    until("sleep", || scene.runner.at_rest());
    assert!(lead(&scene, 1).is_none(), "it waits for company");
    assert!(scene.puppet.seen().is_empty());
    scene.clock.advance(2 * MS);
    scene.letters.answer(1);
}

#[test]
fn the_clock_thread_minds_timeouts_in_the_queue() {
    let mut spec = delayed(Duration::from_secs(3600));
    let mut level = wide();
    level.default_timeout_us = 2000;
    spec.queue = queue_of([level]);
    let scene = Scene::keeping(spec);
    until("sleep", || scene.runner.at_rest());
    assert!(lead(&scene, 1).is_none());
    scene.clock.advance(2 * MS);
    assert_eq!(kind(&scene, 1), Some(ErrorKind::DeadlineExceeded));
    assert!(scene.puppet.seen().is_empty());
}

#[test]
fn a_lease_that_drivers_drop_goes_to_the_clock_thread() {
    let scene = keeping(1);
    begin(&scene, 1);
    lead(&scene, 2);
    let (token, batch) = scene.puppet.kept();
    respond(batch, 0);
    drop(token);
    drop(scene.leases.lease());
    let (_token, batch) = scene.puppet.kept();
    respond(batch, 0);
    scene.letters.answers(2);
}

#[test]
fn a_version_retires_when_the_last_token_is_back() {
    let scene = keeping(2);
    begin(&scene, 1);
    let (token, batch) = scene.puppet.kept();
    thread::scope(|scope| {
        let retired = scope.spawn(|| scene.runner.retire(PATIENCE));
        until("draining", || scene.runner.state() == State::Draining);
        respond(batch, 0);
        scene.letters.answer(1);
        drop(token);
        assert_eq!(retired.join().ok(), Some(true));
    });
    assert_eq!(scene.runner.state(), State::Unloaded);
}

#[test]
fn a_token_that_does_not_come_back_makes_a_retirement_fail() {
    let scene = keeping(1);
    begin(&scene, 1);
    let (token, batch) = scene.puppet.kept();
    respond(batch, 0);
    scene.puppet.usually(Act::Echo);
    assert!(!scene.runner.retire(Duration::ZERO));
    assert_eq!(scene.runner.state(), State::Failed);
    drop(token);
    assert!(scene.runner.retire(PATIENCE), "it came home late");
}

#[test]
fn a_panic_loses_no_slot() {
    let scene = keeping(1);
    scene.puppet.script([Act::Panic, Act::Echo]);
    let lease = lead(&scene, 1);
    scene.ask([2]);
    assert_eq!(lease.map(drive), Some(2));
    assert_eq!([1, 2].map(|key| kind(&scene, key)), [Some(ErrorKind::EngineFailed), None]);
}

#[test]
fn a_thread_that_panics_with_a_token_gives_the_slot_back_without_its_state() {
    let scene = keeping(1);
    begin(&scene, 1);
    let (mut token, batch) = scene.puppet.kept();
    token.state = Some(Box::new("half written"));
    let panics = move || {
        let _held = (token, batch);
        std::panic::resume_unwind(Box::new("in the middle of its work"));
    };
    assert!(thread::spawn(panics).join().is_err());
    assert_eq!(kind(&scene, 1), Some(ErrorKind::EngineFailed));
    begin(&scene, 2);
    let (mut token, batch) = scene.puppet.kept();
    assert!(token.state.is_none());
    token.state = Some(Box::new("kept"));
    respond(batch, 0);
    drop(token);
    begin(&scene, 3);
    let (token, batch) = scene.puppet.kept();
    assert!(token.state.is_some());
    respond(batch, 0);
    drop(token);
}

#[test]
fn requests_of_a_batch_that_fails_on_a_kept_slot_run_again_each_alone() {
    let scene = Scene::keeping(echo_spec());
    let failure = |text| Error::new(ErrorKind::EngineFailed, text);
    scene.puppet.usually(Act::Choke("2", failure("of its data")));
    scene.puppet.script([Act::Keep]);
    let lease = lead(&scene, 1);
    let gone = scene.ask([2, 3, 4]).pop();
    assert_eq!(lease.map(drive), Some(1));
    let (mut token, batch) = scene.puppet.kept();
    token.fail(batch, &failure("of somebody's data"));
    assert!(gone.is_some_and(|ticket| ticket.cancel()));
    assert_eq!(token.give_back().map(drive), Some(3));
    let texts = [1, 2, 3].map(|key| scene.letters.answer(key).error().map(|error| error.message.to_string()));
    assert_eq!(texts, [None, Some("of its data".into()), None]);
    assert_eq!(kind(&scene, 4), Some(ErrorKind::Cancelled));
    let seen: Vec<_> = scene.puppet.seen().into_iter().map(|seen| seen.ids).collect();
    assert_eq!(seen[1..], [["1"], ["2"], ["3"]].map(|ids| ids.map(String::from).to_vec()));
}

#[test]
fn a_run_that_nobody_waits_for_is_ended_on_a_kept_slot() {
    let scene = keeping(1);
    let ticket = begin(&scene, 1);
    let (mut token, batch) = scene.puppet.kept();
    assert!(ticket.cancel());
    scene.puppet.await_end(0);
    token.fail(batch, &Error::new(ErrorKind::EngineFailed, "the run was ended"));
    drop(token);
    assert_eq!(kind(&scene, 1), Some(ErrorKind::Cancelled));
}

#[test]
fn a_model_that_goes_ends_what_a_kept_slot_executes() {
    let scene = Scene::keeping(echo_spec());
    scene.puppet.usually(Act::Keep);
    let lease = lead(&scene, 1);
    scene.ask([2]);
    lease.map(drive);
    let (mut token, batch) = scene.puppet.kept();
    thread::scope(|scope| {
        let retired = scope.spawn(|| scene.runner.retire(Duration::ZERO));
        scene.puppet.await_end(0);
        token.fail(batch, &Error::new(ErrorKind::EngineFailed, "the run was ended"));
        drop(token);
        assert_eq!(retired.join().ok(), Some(true));
    });
    for answer in scene.letters.answers(2) {
        let text = answer.error().map(|error| error.message.to_string());
        assert_eq!(text.as_deref(), Some("the run was ended, because model 'echo' is being stopped"));
    }
}

/// Gives each slot back in the call that brings the next one.
#[derive(Default)]
struct Swapping {
    kept: Mutex<Option<(SlotToken, Batch)>>,
    calls: AtomicUsize,
    most_calls: AtomicUsize,
}

impl Engine for Swapping {
    fn capability(&self) -> Capability {
        KEEPS
    }

    fn execute(&self, _slot: &mut Slot, _batch: Batch) {
        unreachable!("it keeps its slots")
    }

    fn begin(&self, slot: SlotToken, batch: Batch) {
        let calls = self.calls.fetch_add(1, Ordering::Relaxed) + 1;
        self.most_calls.fetch_max(calls, Ordering::Relaxed);
        let before = self.kept.lock().ok().and_then(|mut kept| kept.replace((slot, batch)));
        if let Some((token, batch)) = before {
            respond(batch, 0);
            drop(token);
        }
        self.calls.fetch_sub(1, Ordering::Relaxed);
    }
}

#[test]
fn a_token_that_is_dropped_inside_a_call_begins_no_other_in_it() {
    const MANY: u64 = 20;
    let scene = Scene::new(echo_spec());
    let swapping = Arc::new(Swapping::default());
    let spec = ModelSpec { instances: 2, max_batch_size: 1, ..echo_spec() };
    let engines = vec![swapping.clone() as Arc<dyn Engine>, swapping.clone()];
    let Ok(runner) = Runner::start(spec, engines, RunnerOptions::default()) else { panic!("it starts") };
    for key in 0..MANY {
        assert!(runner.submit(scene.request(key, 1)).is_ok());
    }
    scene.letters.answers(MANY as usize - 1);
    drop(swapping.kept.lock().map(|mut kept| kept.take()));
    assert!(runner.retire(PATIENCE));
    assert_eq!(swapping.most_calls.load(Ordering::Relaxed), 1);
}

#[test]
fn engines_that_keep_slots_and_others_do_not_mix() {
    let puppet =
        |keeps_slots| Arc::new(PuppetEngine::new(Capability { keeps_slots, ..KEEPS })) as Arc<dyn Engine>;
    let started = Runner::start(echo_spec(), vec![puppet(true), puppet(false)], RunnerOptions::default());
    assert_eq!(started.err().map(|error| error.kind), Some(ErrorKind::ConfigInvalid));
}
