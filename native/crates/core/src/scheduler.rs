//! Which requests run next: the seam behind which every scheduling scheme stands.
//!
//! A scheduler is called under its runner's lock and never blocks. It hands out each admitted
//! request exactly once: in an action, in the dropped ones, or to the caller that cancels it.

use std::collections::VecDeque;
use std::time::Instant;

use crate::policy::{Decision, Waiting, decide};
use crate::{BatchPolicy, Error, ErrorKind, QueuePolicy, Request};

/// A request in a queue.
pub struct Entry {
    /// Ascending in the order of admission.
    pub(crate) number: u64,
    pub(crate) request: Box<Request>,
    /// When it has waited too long.
    pub(crate) expires: Option<Instant>,
    bytes: usize,
    joins_previous: bool,
}

impl Entry {
    pub fn new(number: u64, request: Request, expires: Option<Instant>) -> Self {
        Self {
            number,
            bytes: request.byte_size(),
            request: Box::new(request),
            expires,
            joins_previous: false,
        }
    }

    pub(crate) fn wants(&self, output: usize) -> bool {
        let wanted = &self.request.wanted;
        wanted.is_empty() || wanted.contains(&(output as u16))
    }

    fn may_join(&self, previous: &Self) -> bool {
        let (a, b) = (&self.request.inputs, &previous.request.inputs);
        a.iter().zip(b).all(|pair| match pair {
            (Some(a), Some(b)) => a.shape.get(1..) == b.shape.get(1..),
            (None, None) => true,
            _ => false,
        })
    }
}

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

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Backlog {
    pub requests: usize,
    pub rows: usize,
    pub bytes: usize,
}

pub trait Scheduler: Send {
    /// Takes the request in, or gives it back with the reason.
    fn admit(&mut self, entry: Entry) -> Result<(), (Error, Entry)>;

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

/// First in, first out, joined as [`decide`] says.
pub struct DynamicBatcher {
    policy: BatchPolicy,
    limits: QueuePolicy,
    queue: VecDeque<Entry>,
    backlog: Backlog,
    /// No queued request expires before this; too early when the one that would has left.
    next_expiry: Option<Instant>,
}

impl DynamicBatcher {
    pub fn new(policy: BatchPolicy, limits: QueuePolicy) -> Self {
        Self { policy, limits, queue: VecDeque::new(), backlog: Backlog::default(), next_expiry: None }
    }

    fn decide(&self, now: Instant) -> Decision {
        let waiting = self.queue.iter().map(|entry| Waiting {
            rows: entry.request.rows,
            bytes: entry.bytes,
            since: entry.request.arrived,
            joins_previous: entry.joins_previous,
        });
        decide(&self.policy, waiting, now)
    }

    fn forget(&mut self, entry: &Entry) {
        self.backlog.requests -= 1;
        self.backlog.rows -= entry.request.rows;
        self.backlog.bytes -= entry.bytes;
    }

    fn remove(&mut self, index: usize) -> Option<Entry> {
        let entry = self.queue.remove(index)?;
        self.forget(&entry);
        if index > 0 && index < self.queue.len() {
            self.queue[index].joins_previous = self.queue[index].may_join(&self.queue[index - 1]);
        }
        Some(entry)
    }

    /// Caller gone first, then deadline passed, so that a request with both is counted as cancelled.
    fn drop_the_dead(&mut self, now: Instant) -> Vec<(Entry, Error)> {
        let mut dropped = Vec::new();
        if self.next_expiry.is_none_or(|expiry| now < expiry) {
            return dropped;
        }
        let mut index = 0;
        while index < self.queue.len() {
            let entry = &self.queue[index];
            let error = entry
                .request
                .reply
                .claim
                .abandoned()
                .or_else(|| entry.expires.is_some_and(|expires| expires <= now).then(Error::expired));
            match error {
                Some(error) => dropped.extend(self.remove(index).map(|entry| (entry, error))),
                None => index += 1,
            }
        }
        self.next_expiry = self.queue.iter().filter_map(|entry| entry.expires).min();
        dropped
    }
}

impl Scheduler for DynamicBatcher {
    fn admit(&mut self, mut entry: Entry) -> Result<(), (Error, Entry)> {
        let limits = &self.limits;
        let too_many = limits.max_requests > 0 && self.backlog.requests >= limits.max_requests;
        // A request that is larger than the bound by itself still runs when nothing else waits.
        let too_large = self.backlog.requests > 0 && self.backlog.bytes + entry.bytes > limits.max_bytes;
        if too_many || too_large {
            return Err((Error::new(ErrorKind::Overloaded, "Exceeds maximum queue size"), entry));
        }
        if let Some(previous) = self.queue.back() {
            entry.joins_previous = self.policy.joins && entry.may_join(previous);
        }
        self.backlog.requests += 1;
        self.backlog.rows += entry.request.rows;
        self.backlog.bytes += entry.bytes;
        self.next_expiry = match (self.next_expiry, entry.expires) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        self.queue.push_back(entry);
        Ok(())
    }

    fn next(&mut self, now: Instant, _slot: usize) -> Next {
        let dropped = self.drop_the_dead(now);
        let action = match self.decide(now) {
            Decision::Run { requests } => {
                let batch: Vec<Entry> = self.queue.drain(..requests).collect();
                for entry in &batch {
                    self.forget(entry);
                }
                Action::Run(batch)
            }
            Decision::Wait { until } => Action::Wait(self.next_expiry.map_or(until, |e| e.min(until))),
            Decision::Idle => Action::Idle,
        };
        Next { action, dropped }
    }

    fn due(&self, now: Instant) -> Result<(), Option<Instant>> {
        if self.next_expiry.is_some_and(|expiry| expiry <= now) {
            return Ok(());
        }
        if self.policy.max_delay.is_zero() {
            return if self.queue.is_empty() { Err(None) } else { Ok(()) };
        }
        match self.decide(now) {
            Decision::Run { .. } => Ok(()),
            Decision::Wait { until } => Err(Some(self.next_expiry.map_or(until, |e| e.min(until)))),
            Decision::Idle => Err(None),
        }
    }

    fn done(&mut self, _slot: usize) {}

    fn cancel(&mut self, number: u64) -> Option<Entry> {
        let index = self.queue.binary_search_by_key(&number, |entry| entry.number).ok()?;
        self.remove(index)
    }

    fn clear(&mut self) -> Vec<Entry> {
        self.backlog = Backlog::default();
        self.queue.drain(..).collect()
    }

    fn backlog(&self) -> Backlog {
        self.backlog
    }

    fn has_full_batch(&self) -> bool {
        let full = if self.policy.joins { self.policy.max_rows } else { 1 };
        self.backlog.rows >= full
    }
}
