//! Leaving in order: new work is refused, accepted work is answered, and what cannot be is told so.

use std::sync::{Arc, Mutex};
use std::thread::{self, ThreadId};
use std::time::Duration;

use kushi_core::{
    Batch, Capability, Engine, ErrorKind, Mail, Mailbox, ModelSpec, Reply, Request, Runner, RunnerOptions,
    Slot, State,
};
use kushi_testkit::{Act, PATIENCE, PuppetEngine, Scene, echo_spec, until};

#[test]
fn a_draining_version_refuses_new_requests_and_answers_those_inside() {
    let scene = Scene::new(echo_spec());
    scene.plug();
    scene.ask([1, 2]);
    thread::scope(|scope| {
        let drained = scope.spawn(|| scene.runner.drain(PATIENCE));
        until("draining", || scene.runner.state() == State::Draining);
        assert_eq!(scene.refused(scene.request(3, 1)).kind, ErrorKind::ShuttingDown);
        scene.puppet.release_all();
        assert_eq!(drained.join().ok(), Some(0));
    });
    assert!(scene.letters.answers(3).iter().all(|answer| answer.error().is_none()));
    assert!(scene.runner.retire(PATIENCE));
    assert_eq!(scene.runner.state(), State::Unloaded);
}

#[test]
fn a_drain_without_patience_says_how_many_are_left() {
    let scene = Scene::new(echo_spec());
    scene.plug();
    scene.ask([1, 2]);
    assert_eq!(scene.runner.drain(Duration::ZERO), 3);
}

#[test]
fn retiring_ends_the_queue_in_order_and_says_when_an_engine_does_not_come_back() {
    let scene = Scene::new(echo_spec());
    scene.plug();
    scene.ask(1..=3);
    assert!(!scene.runner.retire(Duration::ZERO), "the engine is held");
    assert_eq!(scene.runner.state(), State::Failed);
    let ends: Vec<_> =
        scene.letters.answers(3).iter().map(|answer| (answer.key, answer.error().map(|e| e.kind))).collect();
    let kind = Some(ErrorKind::ShuttingDown);
    assert_eq!(ends, [(1, kind), (2, kind), (3, kind)]);
    scene.puppet.release_all();
    assert!(scene.letters.answer(0).error().is_none(), "what executes is answered");
    assert!(scene.runner.retire(PATIENCE));
}

#[test]
fn a_late_batch_counts_as_inside_until_it_is_answered() {
    let scene = Scene::new(echo_spec());
    scene.puppet.script([Act::Late]);
    scene.ask([1]);
    let batch = scene.puppet.late();
    assert_eq!(scene.runner.drain(Duration::ZERO), 1);
    thread::scope(|scope| {
        let drained = scope.spawn(|| scene.runner.drain(PATIENCE));
        drop(batch);
        assert_eq!(drained.join().ok(), Some(0));
    });
}

#[test]
fn a_delayed_batch_is_ended_by_the_end_of_patience() {
    let mut spec = echo_spec();
    if let Some(batching) = &mut spec.batching {
        batching.max_queue_delay_us = 3_600_000_000;
    }
    let scene = Scene::new(spec);
    scene.ask([1]);
    assert!(scene.runner.retire(Duration::ZERO));
    assert_eq!(scene.letters.answer(1).error().map(|e| e.kind), Some(ErrorKind::ShuttingDown));
}

#[test]
fn submitters_who_meet_a_shutdown_are_answered_or_refused() {
    for _ in 0..20 {
        let scene = Scene::without_drivers(ModelSpec { instances: 2, ..echo_spec() });
        let accepted: usize = thread::scope(|scope| {
            let submitters: Vec<_> = (0..2)
                .map(|_| {
                    scope.spawn(|| {
                        let mut accepted = 0;
                        while scene.runner.submit(scene.request(1, 1)).is_ok() {
                            accepted += 1;
                        }
                        accepted
                    })
                })
                .collect();
            scene.puppet.await_batches(2);
            // Instances that get no core for a moment have not come back in time: what they hold has its end, too.
            scene.runner.retire(Duration::ZERO);
            submitters.into_iter().map(|submitter| submitter.join().unwrap_or_default()).sum()
        });
        scene.letters.answers(accepted);
        assert_eq!(scene.runner.drain(PATIENCE), 0);
        assert_eq!(scene.letters.unread(), 0);
    }
}

/// Tells where it was dropped.
struct Mortal {
    puppet: PuppetEngine,
    died: Arc<Mutex<Vec<ThreadId>>>,
}

impl Engine for Mortal {
    fn capability(&self) -> Capability {
        self.puppet.capability()
    }

    fn execute(&self, slot: &mut Slot, batch: Batch) {
        self.puppet.execute(slot, batch);
    }
}

impl Drop for Mortal {
    fn drop(&mut self) {
        if let Ok(mut died) = self.died.lock() {
            died.push(thread::current().id());
        }
    }
}

#[test]
fn engines_are_dropped_on_the_retiring_thread() {
    for _ in 0..50 {
        let died = Arc::new(Mutex::new(Vec::new()));
        let scene = Scene::new(echo_spec());
        let engine = || Arc::new(Mortal { puppet: PuppetEngine::default(), died: died.clone() });
        let engines = vec![engine() as Arc<dyn Engine>, engine()];
        let Ok(runner) = Runner::start(echo_spec(), engines, RunnerOptions::default()) else {
            panic!("it starts");
        };
        for key in 0..4 {
            assert!(runner.submit(scene.request(key, 1)).is_ok());
        }
        assert!(runner.retire(PATIENCE));
        let died = died.lock().map(|died| died.clone()).unwrap_or_default();
        assert_eq!(died, [thread::current().id(); 2]);
    }
}

/// Looks how many requests are inside while it gets an answer.
struct Witness {
    runner: Arc<Runner>,
    inside: Mutex<Vec<usize>>,
}

impl Mailbox for Witness {
    fn deliver(&self, mail: Vec<Mail>) {
        if let Ok(mut inside) = self.inside.lock() {
            inside.extend(mail.iter().map(|_| self.runner.inside()));
        }
    }
}

#[test]
fn a_request_is_inside_until_its_answer_is_delivered() {
    let scene = Scene::new(echo_spec());
    let witness = Arc::new(Witness { runner: scene.runner.clone(), inside: Mutex::default() });
    let request = |key| Request { reply: Reply::new(witness.clone(), key), ..scene.request(key, 1) };
    scene.plug();
    scene.submit(request(1));
    assert!(scene.submit(request(2)).cancel());
    scene.puppet.release_all();
    assert_eq!(scene.runner.drain(PATIENCE), 0);
    let inside = witness.inside.lock().map(|inside| inside.clone()).unwrap_or_default();
    assert_eq!(inside, [3, 1], "at the cancellation, then at the answer");
}
