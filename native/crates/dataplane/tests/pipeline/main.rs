//! A pipeline of two models on the seams that every request uses: what a servable of several steps stands on.

mod askers;
mod runs;

use std::sync::Arc;
use std::thread;

use kushi_core::{Batching, ErrorKind, ModelSpec, Response, Runner, Sent, State, Window};
use kushi_testkit::{Act, PATIENCE, Scene, echo_spec, int32, until};

use crate::askers::{Asker, BlockedThread, EventLoop, IoThread};
use crate::runs::{Outcome, Runs};

/// The first model keeps the order of its answers; the second has one instance.
struct Models {
    first: Scene,
    second: Scene,
}

impl Models {
    fn new(inline: bool) -> Self {
        let batching =
            Batching { preferred_batch_sizes: vec![], max_queue_delay_us: 0, preserve_ordering: true };
        let first = ModelSpec { name: "first".into(), batching: Some(batching), ..echo_spec() };
        let second = ModelSpec { name: "second".into(), ..echo_spec() };
        let models = Self { first: Scene::without_drivers(first), second: Scene::without_drivers(second) };
        if inline {
            models.first.earn_inline();
            models.second.earn_inline();
        }
        models
    }

    fn steps(&self) -> [Arc<Runner>; 2] {
        [self.first.runner.clone(), self.second.runner.clone()]
    }

    fn runs(&self, asker: &dyn Asker) -> Runs {
        Runs::new(self.steps(), asker.mailbox())
    }
}

/// One run for each key, of the key as the value; all are there before anyone leads.
fn begin(asker: &dyn Asker, runs: &mut Runs, keys: impl Iterator<Item = u64>) {
    let leases: Vec<_> = keys
        .filter_map(|key| {
            runs.begin(key, int32(&[1, 1], [key as i32])).unwrap_or_else(|error| panic!("{error}"))
        })
        .collect();
    for lease in leases {
        asker.lead(lease);
    }
}

/// Waits for so many outcomes.
fn follow(asker: &dyn Asker, runs: &mut Runs, count: usize) -> Vec<Outcome> {
    let mut outcomes = Vec::new();
    while outcomes.len() < count {
        let (ended, leases) = runs.go_on(asker.take());
        outcomes.extend(ended);
        for lease in leases {
            asker.lead(lease);
        }
    }
    outcomes
}

fn value(outcome: &Outcome) -> (u64, i32) {
    let (key, result) = outcome;
    let tensor = result.as_ref().unwrap_or_else(|error| panic!("{key}: {error}"));
    let bytes = tensor.data.as_bytes().first_chunk().copied();
    (*key, bytes.map(i32::from_le_bytes).unwrap_or_default())
}

fn error_kind((_, result): &Outcome) -> Option<ErrorKind> {
    result.as_ref().err().map(|error| error.kind)
}

#[test]
fn every_kind_of_asker_runs_it() {
    for inline in [false, true] {
        let askers: [Box<dyn Asker>; 3] =
            [Box::new(IoThread::new()), Box::new(EventLoop::new()), Box::new(BlockedThread::default())];
        for asker in askers {
            let models = Models::new(inline);
            let mut runs = models.runs(&*asker);
            begin(&*asker, &mut runs, 1..=40);
            let mut values: Vec<_> = follow(&*asker, &mut runs, 40).iter().map(value).collect();
            values.sort_unstable();
            assert!(values.into_iter().eq((1..=40).map(|key| (key, key as i32))));
            assert_eq!(runs.inside(), 0);
        }
    }
}

#[test]
fn many_askers_at_once_meet_in_its_batches() {
    let models = Models::new(true);
    thread::scope(|scope| {
        for kind in 0..6 {
            let models = &models;
            scope.spawn(move || {
                let asker: Box<dyn Asker> = match kind % 3 {
                    0 => Box::new(IoThread::new()),
                    1 => Box::new(EventLoop::new()),
                    _ => Box::new(BlockedThread::default()),
                };
                let mut runs = models.runs(&*asker);
                for _ in 0..10 {
                    begin(&*asker, &mut runs, 0..8);
                    let outcomes = follow(&*asker, &mut runs, 8);
                    assert!(outcomes.iter().map(value).all(|(key, value)| key == value as u64));
                }
            });
        }
    });
}

#[test]
fn what_comes_in_one_mail_enters_the_next_queue_before_anyone_leads() {
    let models = Models::new(true);
    let asker = IoThread::new();
    let mut runs = models.runs(&asker);
    let before = models.second.puppet.seen().len();
    begin(&asker, &mut runs, 0..8);
    follow(&asker, &mut runs, 8);
    let seen = models.second.puppet.seen();
    assert_eq!(seen[before..].iter().map(|batch| batch.rows).collect::<Vec<_>>(), [8]);
    assert_eq!(seen.last().map(|batch| batch.thread), Some(thread::current().id()));
}

#[test]
fn a_drain_that_begins_between_its_steps_lets_it_finish() {
    for inline in [false, true] {
        let models = Models::new(inline);
        let asker = EventLoop::new();
        let mut runs = models.runs(&asker);
        models.first.puppet.hold();
        let before = models.first.puppet.seen().len();
        begin(&asker, &mut runs, 7..8);
        models.first.puppet.await_batches(before + 1);
        thread::scope(|scope| {
            let drains = [&models.second, &models.first].map(|scene| {
                let drain = scope.spawn(|| scene.runner.retire(PATIENCE));
                until("draining", || scene.runner.state() == State::Draining);
                drain
            });
            assert_eq!(models.second.refused(models.second.request(1, 1)).kind, ErrorKind::ShuttingDown);
            assert!(runs.begin(8, int32(&[1, 1], [8])).is_err(), "nothing begins any more");
            models.first.puppet.release_all();
            let outcomes = follow(&asker, &mut runs, 1);
            assert_eq!(value(&outcomes[0]), (7, 7));
            assert!(drains.into_iter().all(|drain| drain.join().is_ok_and(|retired| retired)));
        });
    }
}

#[test]
fn a_drain_waits_for_no_run_that_has_failed() {
    let models = Models::new(false);
    let asker = BlockedThread::default();
    let mut runs = models.runs(&asker);
    models.first.puppet.script([Act::Drop]);
    begin(&asker, &mut runs, 1..2);
    assert_eq!(error_kind(&follow(&asker, &mut runs, 1)[0]), Some(ErrorKind::EngineFailed));
    assert_eq!(models.second.runner.drain(PATIENCE), 0);
}

#[test]
fn an_asker_that_goes_cancels_the_step_that_runs() {
    for step in [0, 1] {
        let models = Models::new(false);
        let scene = [&models.first, &models.second][step];
        let asker = EventLoop::new();
        let mut runs = models.runs(&asker);
        scene.puppet.script([Act::Late]);
        begin(&asker, &mut runs, 1..2);
        if step == 1 {
            let (outcomes, leases) = runs.go_on(asker.take());
            assert!(outcomes.is_empty() && leases.is_empty());
        }
        let batch = scene.puppet.late();
        assert!(!batch.is_abandoned(0));
        runs.cancel(1);
        assert!(batch.is_abandoned(0));
        drop(batch);
        assert_eq!(error_kind(&follow(&asker, &mut runs, 1)[0]), Some(ErrorKind::Cancelled));
        assert_eq!(models.second.runner.drain(PATIENCE) + models.first.runner.drain(PATIENCE), 0);
    }
}

#[test]
fn an_asker_that_goes_leaves_the_queue_of_its_step_at_once() {
    let models = Models::new(false);
    let asker = EventLoop::new();
    let mut runs = models.runs(&asker);
    models.second.plug();
    begin(&asker, &mut runs, 1..2);
    runs.go_on(asker.take());
    assert_eq!(models.second.runner.backlog().requests, 1);
    runs.cancel(1);
    assert_eq!(models.second.runner.backlog().requests, 0);
    assert_eq!(error_kind(&follow(&asker, &mut runs, 1)[0]), Some(ErrorKind::Cancelled));
    models.second.puppet.release_all();
}

#[test]
fn an_answer_is_taken_when_the_step_that_began_with_it_has_ended() {
    let models = Models::new(false);
    let asker = EventLoop::new();
    let mut runs = models.runs(&asker);
    runs.window = Window { answers: 2, ..Window::default() };
    models.first.puppet.script([Act::Late]);
    models.second.puppet.hold();
    begin(&asker, &mut runs, 1..2);
    let mut stream = models.first.puppet.late();
    let mut send =
        |value| stream.send(0, Response { outputs: [(0, int32(&[1, 1], [value]))].into_iter().collect() });
    for value in [10, 11] {
        assert!(matches!(send(value), Sent::Accepted));
        let (outcomes, _) = runs.go_on(asker.take());
        assert!(outcomes.is_empty(), "the second step is held");
    }
    assert!(matches!(send(12), Sent::Full(_)), "two are in the second step");
    models.second.puppet.release_all();
    let mut values: Vec<_> = follow(&asker, &mut runs, 2).iter().map(value).collect();
    values.sort_unstable();
    assert_eq!(values, [(1, 10), (1, 11)]);
    assert!(matches!(send(12), Sent::Accepted));
    stream.end(0, Ok(()));
    assert_eq!(value(&follow(&asker, &mut runs, 1)[0]), (1, 12));
    while runs.inside() > 0 {
        runs.go_on(asker.take());
    }
    assert_eq!(models.second.runner.drain(PATIENCE), 0);
}
