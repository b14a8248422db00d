//! A scheduler with slot affinity: each request says which slot may run it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use kushi_core::{
    Action, Backlog, Clock, Due, Entry, Error, ErrorKind, FreeSlots, Lease, ModelSpec, Next, Parameter,
    Queue, Request, Scheduler, Ticket,
};
use kushi_testkit::{Act, PATIENCE, Scene, drive, echo_spec, until};

const MS: Duration = Duration::from_millis(1);

/// How often it was asked.
#[derive(Default)]
struct Asked {
    due: AtomicUsize,
    next: AtomicUsize,
}

/// A queue for each slot; a request that names none is the first one's. The first of a queue waits for
/// `delay`.
struct Affine {
    queues: Vec<Queue>,
    most: usize,
    delay: Duration,
    asked: Arc<Asked>,
}

impl Affine {
    /// When the slot has something to do.
    fn when(&self, slot: usize) -> Option<Instant> {
        let queue = &self.queues[slot];
        let first = queue.waiting().next().map(|first| first.since + self.delay);
        first.into_iter().chain(queue.next_change()).min()
    }
}

impl Scheduler for Affine {
    fn admit(&mut self, entry: Entry) -> Result<(), (Error, Entry)> {
        let named = |(name, value): &(String, Parameter)| match value {
            Parameter::Int(slot) if name == "slot" => Some(*slot as usize),
            _ => None,
        };
        let slot = entry.request().parameters.iter().find_map(named).unwrap_or(0);
        self.queues[slot].admit(entry)
    }

    fn next(&mut self, now: Instant, slot: usize) -> Next {
        self.asked.next.fetch_add(1, Ordering::Relaxed);
        let dropped = self.queues[slot].settle(now);
        let action = match self.when(slot) {
            Some(when) if when <= now => {
                let queue = &mut self.queues[slot];
                let requests = queue.backlog().requests.min(self.most);
                Action::Run(queue.take(requests))
            }
            Some(when) => Action::Wait(when),
            None => Action::Idle,
        };
        Next { action, dropped }
    }

    fn due(&self, now: Instant, free: &FreeSlots) -> Due {
        self.asked.due.fetch_add(1, Ordering::Relaxed);
        match free.iter().filter_map(|slot| Some((self.when(slot)?, slot))).min() {
            Some((when, slot)) if when <= now => Due::Only(slot),
            Some((when, _)) => Due::Later(when),
            None => Due::Nothing,
        }
    }

    fn done(&mut self, _slot: usize) {}

    fn cancel(&mut self, number: u64) -> Option<Entry> {
        self.queues.iter_mut().find_map(|queue| queue.cancel(number))
    }

    fn clear(&mut self) -> Vec<Entry> {
        self.queues.iter_mut().flat_map(Queue::clear).collect()
    }

    fn backlog(&self) -> Backlog {
        self.queues.iter().map(Queue::backlog).fold(Backlog::default(), |all, one| Backlog {
            requests: all.requests + one.requests,
            rows: all.rows + one.rows,
            bytes: all.bytes + one.bytes,
        })
    }

    fn oldest(&self) -> Option<Instant> {
        self.queues.iter().filter_map(Queue::oldest).min()
    }
}

struct Bound {
    scene: Scene,
    asked: Arc<Asked>,
}

impl Bound {
    fn new(slots: usize, delay: Duration) -> Self {
        let spec = ModelSpec { instances: slots, ..echo_spec() };
        Self::of(spec, delay)
    }

    fn of(spec: ModelSpec, delay: Duration) -> Self {
        let asked = Arc::new(Asked::default());
        let queue = |_| Queue::new(&spec.queue);
        let queues = (0..spec.instances).map(queue).collect();
        let scheduler = Affine { queues, most: spec.max_batch_size, delay, asked: asked.clone() };
        Self { scene: Scene::scheduled(spec, Box::new(scheduler)), asked }
    }

    fn request(&self, key: u64, slot: i64) -> Request {
        let parameters = vec![("slot".into(), Parameter::Int(slot))];
        Request { parameters, ..self.scene.request(key, 1) }
    }

    /// A lease goes to the instance threads.
    fn ask(&self, key: u64, slot: i64) -> Ticket {
        self.scene.submit(self.request(key, slot))
    }

    fn lead(&self, key: u64, slot: i64) -> Option<Lease> {
        self.scene.lead(self.request(key, slot)).1
    }

    /// Holds a request of key 0 on this slot.
    fn plug(&self, slot: i64) {
        self.scene.puppet.hold();
        let before = self.scene.puppet.seen().len();
        self.ask(0, slot);
        self.scene.puppet.await_batches(before + 1);
    }

    /// The slot and the requests of each batch behind the first `skipped`.
    fn ran(&self, skipped: usize) -> Vec<(usize, Vec<String>)> {
        self.scene.puppet.seen().into_iter().skip(skipped).map(|seen| (seen.slot, seen.ids)).collect()
    }
}

fn ids<const N: usize>(ids: [u64; N]) -> Vec<String> {
    ids.iter().map(ToString::to_string).collect()
}

#[test]
fn each_request_runs_on_its_slot_and_waits_for_it_while_others_are_free() {
    let bound = Bound::new(3, Duration::ZERO);
    bound.plug(1);
    bound.ask(1, 1);
    bound.ask(2, 1);
    bound.ask(3, 2);
    assert_eq!(bound.scene.puppet.await_batches(2)[1].slot, 2);
    assert_eq!(bound.scene.runner.backlog().requests, 2);
    bound.scene.puppet.release_all();
    bound.scene.letters.answers(4);
    assert_eq!(bound.ran(0), [(1, ids([0])), (2, ids([3])), (1, ids([1, 2]))]);
}

#[test]
fn a_free_slot_that_nobody_may_use_wakes_nobody() {
    const MANY: usize = 100;
    let bound = Bound::new(2, Duration::ZERO);
    bound.plug(1);
    let before = bound.asked.due.load(Ordering::Relaxed);
    for key in 1..=MANY as u64 {
        bound.ask(key, 1);
    }
    assert!(bound.asked.due.load(Ordering::Relaxed) <= before + MANY + 2, "once for each that comes");
    bound.scene.puppet.release_all();
    bound.scene.letters.answers(MANY + 1);
    let batches = bound.scene.puppet.seen().len();
    assert_eq!(bound.asked.next.load(Ordering::Relaxed), batches, "whoever looks finds a batch");
}

#[test]
fn slots_run_side_by_side() {
    let bound = Bound::new(2, Duration::ZERO);
    bound.scene.puppet.hold();
    bound.ask(1, 0);
    bound.ask(2, 1);
    bound.scene.puppet.await_batches(2);
    assert_eq!(bound.scene.puppet.most_at_once(), 2);
    bound.scene.puppet.release_all();
    bound.scene.letters.answers(2);
}

#[test]
fn each_slot_gets_a_leader_of_its_own_inline() {
    let bound = Bound::new(2, Duration::ZERO);
    bound.scene.earn_inline();
    let before = bound.scene.puppet.seen().len();
    let first = bound.lead(1, 1);
    assert!(bound.lead(2, 1).is_none(), "its leader is on its way");
    let second = bound.lead(3, 0);
    assert_eq!((first.map(drive), second.map(drive)), (Some(1), Some(1)));
    bound.scene.letters.answers(3);
    assert_eq!(bound.ran(before), [(1, ids([1, 2])), (0, ids([3]))]);
    until("every slot at home", || bound.scene.runner.at_rest());
}

#[test]
fn a_leader_does_not_go_on_with_the_work_of_another_slot() {
    let bound = Bound::new(2, Duration::ZERO);
    bound.scene.earn_inline();
    let before = bound.scene.puppet.seen().len();
    bound.scene.puppet.hold();
    let (first, second) = (bound.lead(1, 0), bound.lead(2, 1));
    thread::scope(|scope| {
        let first = scope.spawn(|| first.map(drive));
        bound.scene.puppet.await_batches(before + 1);
        let second = scope.spawn(|| second.map(drive));
        bound.scene.puppet.await_batches(before + 2);
        assert!(bound.lead(3, 1).is_none(), "its slot executes");
        bound.scene.puppet.release(before);
        assert_eq!(first.join().ok(), Some(Some(1)), "it has led its slot once");
        bound.scene.puppet.release_all();
        assert_eq!(second.join().ok(), Some(Some(2)));
    });
    bound.scene.letters.answers(3);
    assert_eq!(bound.ran(before + 2), [(1, ids([3]))]);
}

#[test]
fn a_dropped_lease_is_taken_over_for_its_slot() {
    let bound = Bound::new(2, Duration::ZERO);
    bound.scene.earn_inline();
    let before = bound.scene.puppet.seen().len();
    drop(bound.lead(1, 1));
    bound.scene.letters.answer(1);
    assert_eq!(bound.ran(before), [(1, ids([1]))]);
}

#[test]
fn a_delay_ends_for_each_slot_by_itself() {
    let bound = Bound::new(2, 2 * MS);
    bound.ask(1, 1);
    bound.scene.clock.advance(MS);
    bound.ask(2, 0);
    bound.scene.clock.advance(MS);
    bound.scene.letters.answer(1);
    assert_eq!(bound.ran(0), [(1, ids([1]))]);
    bound.scene.clock.advance(MS);
    bound.scene.letters.answer(2);
}

#[test]
fn what_waits_for_a_busy_slot_can_be_cancelled_and_expires() {
    let bound = Bound::new(2, Duration::ZERO);
    bound.plug(1);
    let cancelled = bound.ask(1, 1);
    let deadline = Some(bound.scene.clock.now() + MS);
    let expired = bound.scene.submit(Request { deadline, ..bound.request(2, 1) });
    assert!(cancelled.cancel());
    bound.scene.clock.advance(MS);
    assert!(!expired.expire(), "it leaves the queue");
    let kinds = [1, 2].map(|key| bound.scene.letters.answer(key).error().map(|error| error.kind));
    assert_eq!(kinds, [Some(ErrorKind::Cancelled), Some(ErrorKind::DeadlineExceeded)]);
    bound.scene.puppet.release_all();
    bound.scene.letters.answer(0);
    assert_eq!(bound.scene.puppet.seen().len(), 1);
}

#[test]
fn what_expires_unnoticed_is_dropped_before_the_next_batch_of_its_slot() {
    let bound = Bound::new(2, Duration::ZERO);
    bound.plug(1);
    let deadline = Some(bound.scene.clock.now() + MS);
    bound.scene.submit(Request { deadline, ..bound.request(1, 1) });
    bound.ask(2, 1);
    bound.scene.clock.advance(MS);
    bound.scene.puppet.release_all();
    let kind = bound.scene.letters.answer(1).error().map(|error| error.kind);
    assert_eq!(kind, Some(ErrorKind::DeadlineExceeded));
    bound.scene.letters.answers(2);
    assert_eq!(bound.ran(1), [(1, ids([2]))]);
}

#[test]
fn a_model_that_goes_refuses_what_waits_for_any_slot_and_answers_what_runs() {
    let bound = Bound::new(2, Duration::ZERO);
    bound.plug(1);
    bound.ask(1, 1);
    thread::scope(|scope| {
        let retired = scope.spawn(|| bound.scene.runner.retire(Duration::ZERO));
        let kind = bound.scene.letters.answer(1).error().map(|error| error.kind);
        assert_eq!(kind, Some(ErrorKind::ShuttingDown));
        bound.scene.puppet.release_all();
        bound.scene.letters.answer(0);
        // Its grace may have been over before.
        let _ = retired.join();
    });
    assert!(bound.scene.runner.retire(PATIENCE), "every slot came home");
}

#[test]
fn a_drain_answers_what_waits_for_each_slot() {
    let bound = Bound::new(2, Duration::ZERO);
    bound.plug(1);
    bound.ask(1, 1);
    bound.ask(2, 0);
    bound.scene.puppet.release_all();
    assert_eq!(bound.scene.runner.drain(PATIENCE), 0);
    assert!(bound.scene.letters.answers(3).iter().all(|answer| answer.error().is_none()));
}

#[test]
fn a_run_that_begins_again_stays_on_its_slot() {
    let bound = Bound::new(2, Duration::ZERO);
    bound.scene.earn_inline();
    let before = bound.scene.puppet.seen().len();
    let asked = bound.asked.next.load(Ordering::Relaxed);
    bound.scene.puppet.script([Act::Endless]);
    let lease = bound.lead(1, 1);
    thread::scope(|scope| {
        scope.spawn(|| lease.map(drive));
        bound.scene.puppet.await_batches(before + 1);
        bound.scene.clock.advance(Duration::from_secs(1));
        bound.scene.runner.renew_runs();
        bound.scene.letters.answer(1);
    });
    assert_eq!(bound.ran(before), [(1, ids([1])), (1, ids([1]))]);
    assert_eq!(bound.asked.next.load(Ordering::Relaxed), asked + 1, "no other slot looks for it");
}

#[test]
fn many_threads_submit_for_many_slots_and_nothing_is_left() {
    const SLOTS: i64 = 4;
    const EACH: u64 = 200;
    let bound =
        Bound::of(ModelSpec { instances: SLOTS as usize, max_batch_size: 2, ..echo_spec() }, Duration::ZERO);
    thread::scope(|scope| {
        for client in 0..3 {
            let bound = &bound;
            scope.spawn(move || {
                for round in 0..EACH {
                    let key = client * EACH + round;
                    if let Some(lease) = bound.lead(key, (key * 7 % SLOTS as u64) as i64) {
                        drive(lease);
                    }
                }
            });
        }
        bound.scene.letters.answers(3 * EACH as usize);
    });
    for (slot, ids) in bound.ran(0) {
        assert!(ids.iter().all(|id| id.parse().is_ok_and(|key: usize| key * 7 % 4 == slot)), "{ids:?}");
    }
    until("every slot at home", || bound.scene.runner.at_rest());
}
