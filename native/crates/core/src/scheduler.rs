//! Which requests run next: the seam behind which every scheduling scheme stands.
//!
//! A scheduler is called under its runner's lock and never blocks. It hands out each admitted
//! request exactly once: in an action, in the dropped ones, or to the caller that cancels it.

use std::time::Instant;

use crate::policy::{Decision, decide};
use crate::queue::Queue;
use crate::{Backlog, BatchPolicy, Entry, Error, QueueSpec};

pub enum Action {
    Run(Vec<Entry>),
    Wait(Instant),
    Idle,
}

pub struct Next {
    pub action: Action,
    /// Requests that ended in the queue, with the reason.
    pub dropped: Vec<(Entry, Error)>,
}

pub trait Scheduler: Send {
    /// Takes the request in, or gives it back with the reason.
    fn admit(&mut self, entry: Entry) -> Result<(), (Error, Entry)>;

    /// Whether a request of at least so many bytes would surely be refused now; no where that depends
    /// on more than its size.
    fn is_full(&self, _bytes: usize) -> bool {
        false
    }

    /// What the slot shall do now.
    fn next(&mut self, now: Instant, slot: usize) -> Next;

    /// What [`Scheduler::next`] would say, without doing it: `Ok` to run now, `Err(Some(when))` to
    /// look again later, `Err(None)` when there is nothing to do.
    fn due(&self, now: Instant) -> Result<(), Option<Instant>>;

    /// The slot has returned from the engine.
    fn done(&mut self, slot: usize);

    /// Takes a queued request out; `None` when it is not in the queue any more.
    fn cancel(&mut self, number: u64) -> Option<Entry>;

    /// Takes all queued requests out, in order.
    fn clear(&mut self) -> Vec<Entry>;

    fn backlog(&self) -> Backlog;

    /// Whether a whole batch is left for another slot.
    fn has_full_batch(&self) -> bool;
}

/// Batches from the front of the queue, joined as [`decide`] says.
pub struct DynamicBatcher {
    policy: BatchPolicy,
    queue: Queue,
}

impl DynamicBatcher {
    pub fn new(policy: BatchPolicy, queue: &QueueSpec) -> Self {
        Self { policy, queue: Queue::new(queue) }
    }

    fn decide(&self, now: Instant) -> Decision {
        decide(&self.policy, self.queue.waiting(), now)
    }

    /// When to look again, at `until` or at what changes before.
    fn alarm(&self, until: Instant) -> Instant {
        self.queue.next_change().map_or(until, |change| change.min(until))
    }
}

impl Scheduler for DynamicBatcher {
    fn admit(&mut self, entry: Entry) -> Result<(), (Error, Entry)> {
        self.queue.admit(entry)
    }

    fn is_full(&self, bytes: usize) -> bool {
        self.queue.is_full(bytes)
    }

    fn next(&mut self, now: Instant, _slot: usize) -> Next {
        let dropped = self.queue.settle(now);
        let action = match self.decide(now) {
            Decision::Run { requests } => Action::Run(self.queue.take(requests)),
            Decision::Wait { until } => Action::Wait(self.alarm(until)),
            Decision::Idle => Action::Idle,
        };
        Next { action, dropped }
    }

    fn due(&self, now: Instant) -> Result<(), Option<Instant>> {
        if self.queue.next_change().is_some_and(|when| when <= now) {
            return Ok(());
        }
        if self.policy.max_delay.is_zero() {
            return if self.queue.backlog().requests == 0 { Err(None) } else { Ok(()) };
        }
        match self.decide(now) {
            Decision::Run { .. } => Ok(()),
            Decision::Wait { until } => Err(Some(self.alarm(until))),
            Decision::Idle => Err(None),
        }
    }

    fn done(&mut self, _slot: usize) {}

    fn cancel(&mut self, number: u64) -> Option<Entry> {
        self.queue.cancel(number)
    }

    fn clear(&mut self) -> Vec<Entry> {
        self.queue.clear()
    }

    fn backlog(&self) -> Backlog {
        self.queue.backlog()
    }

    fn has_full_batch(&self) -> bool {
        let full = if self.policy.joins { self.policy.max_rows } else { 1 };
        self.queue.backlog().rows >= full
    }
}
