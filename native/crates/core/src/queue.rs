//! What waits for a model, in the order in which it runs: level by level, inside a level first in,
//! first out, and behind all others of its level what has waited past a timeout that delays.
//!
//! Stands under its runner's lock.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Instant;

use crate::policy::Waiting;
use crate::{Error, Plan, QueueSpec, Request, Seat, TimeoutAction};

/// A request as a scheduler has it, from [`Scheduler::admit`](crate::Scheduler::admit) until it hands it out.
pub struct Entry {
    /// Ascending in the order of admission.
    pub(crate) number: u64,
    pub(crate) request: Box<Request>,
    /// When it has waited too long.
    pub(crate) expires: Option<Instant>,
    /// When the others of its level go first.
    gives_way: Option<Instant>,
    level: usize,
    bytes: usize,
    joins_previous: bool,
}

impl Entry {
    pub fn new(request: Box<Request>, queue: &QueueSpec) -> Self {
        let level = queue.level(request.priority);
        let policy = &queue.levels[level];
        let timeout = policy.timeout(request.timeout_us).map(|timeout| request.arrived + timeout);
        let (expires, gives_way) = match policy.timeout_action {
            TimeoutAction::Reject => (earlier(request.deadline, timeout), None),
            TimeoutAction::Delay => (request.deadline, timeout),
        };
        Self {
            number: 0,
            bytes: request.byte_size(),
            request,
            expires,
            gives_way,
            level,
            joins_previous: false,
        }
    }

    pub fn request(&self) -> &Request {
        &self.request
    }

    /// Ascending in the order of admission.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// When it has waited too long.
    pub fn expires(&self) -> Option<Instant> {
        self.expires
    }

    pub(crate) fn wants(&self, output: usize) -> bool {
        let wanted = &self.request.wanted;
        wanted.is_empty() || wanted.contains(&(output as u16))
    }

    /// `ragged`: the inputs whose shapes may differ.
    fn may_join(&self, previous: &Self, ragged: &[bool]) -> bool {
        #[cfg(test)]
        tests::LOOKS.set(tests::LOOKS.get() + 1);
        let (a, b) = (&self.request.inputs, &previous.request.inputs);
        a.iter().zip(b).enumerate().all(|(input, pair)| match pair {
            (Some(a), Some(b)) => {
                a.shape.get(1..) == b.shape.get(1..) || ragged.get(input).is_some_and(|&ragged| ragged)
            }
            (None, None) => true,
            _ => false,
        })
    }

    /// Why it is to be dropped instead of run, if that is so. Caller gone first, then waited too long, so
    /// that a request with both is counted as cancelled.
    pub fn fault(&self, now: Instant) -> Option<Error> {
        #[cfg(test)]
        tests::LOOKS.set(tests::LOOKS.get() + 1);
        let gone = self.request.reply.claim.abandoned();
        gone.or_else(|| self.expires.is_some_and(|expires| expires <= now).then(Error::expired))
    }

    /// When time changes something about it, and where it is then.
    fn change(&self) -> Option<(Instant, u64, usize)> {
        earlier(self.expires, self.gives_way).map(|when| (when, self.number, self.level))
    }
}

fn earlier(a: Option<Instant>, b: Option<Instant>) -> Option<Instant> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Backlog {
    pub requests: usize,
    pub rows: usize,
    pub bytes: usize,
}

/// Requests in the order in which they run. A scheduler has one, or one for each of its slots.
pub struct Queue {
    /// The first is served first.
    levels: Box<[Level]>,
    max_bytes: usize,
    backlog: Backlog,
    /// What time changes: when, which entry, and its level.
    changes: BTreeSet<(Instant, u64, usize)>,
}

struct Level {
    /// 0: bounded by bytes alone.
    max_requests: usize,
    prompt: Lane,
    /// By their numbers. Few: those that wait past a timeout which delays.
    delayed: BTreeMap<u64, Entry>,
}

/// Entries in the order of their numbers. One that leaves from between others leaves a gap, so that none of
/// those behind it moves; gaps are never more than the entries.
struct Lane {
    ragged: Arc<[bool]>,
    /// `joins_previous` of an entry holds if there is no gap before it.
    places: VecDeque<(u64, Option<Entry>)>,
    gaps: usize,
}

impl Queue {
    pub fn new(spec: &QueueSpec) -> Self {
        let ragged: Arc<[bool]> = spec.ragged.clone().into();
        let lane = || Lane { ragged: ragged.clone(), places: VecDeque::new(), gaps: 0 };
        let level = |max_requests| Level { max_requests, prompt: lane(), delayed: BTreeMap::new() };
        Self {
            levels: spec.levels.iter().map(|policy| level(policy.max_requests)).collect(),
            max_bytes: spec.max_bytes,
            backlog: Backlog::default(),
            changes: BTreeSet::new(),
        }
    }

    pub fn backlog(&self) -> Backlog {
        self.backlog
    }

    /// When the request came that has waited the longest. Those of a lane came one after the other.
    pub fn oldest(&self) -> Option<Instant> {
        let first = |level: &Level| {
            let prompt = level.prompt.iter().next().map(|(entry, _)| entry.request.arrived);
            earlier(prompt, level.delayed.values().next().map(|entry| entry.request.arrived))
        };
        self.levels.iter().filter_map(first).min()
    }

    /// Nothing in here expires or gives way before this.
    pub fn next_change(&self) -> Option<Instant> {
        self.changes.first().map(|&(when, ..)| when)
    }

    /// Takes the request in, or gives it back with the reason.
    pub fn admit(&mut self, entry: Entry) -> Result<(), (Error, Entry)> {
        if self.levels[entry.level].is_full() || self.has_no_room(entry.bytes) {
            return Err((Error::overloaded(), entry));
        }
        self.backlog.requests += 1;
        self.backlog.rows += entry.request.rows;
        self.backlog.bytes += entry.bytes;
        self.changes.extend(entry.change());
        self.levels[entry.level].prompt.push(entry);
        Ok(())
    }

    /// Whether a request of at least so many bytes would be refused on every level.
    pub fn is_full(&self, bytes: usize) -> bool {
        self.has_no_room(bytes) || self.levels.iter().all(Level::is_full)
    }

    /// A request that is larger than the bound by itself still runs when nothing else waits.
    fn has_no_room(&self, bytes: usize) -> bool {
        self.backlog.requests > 0 && self.backlog.bytes.saturating_add(bytes) > self.max_bytes
    }

    pub fn waiting(&self) -> impl Iterator<Item = Waiting> {
        let entries = self.levels.iter().flat_map(|level| {
            let ragged = &level.prompt.ragged;
            let delayed = level.delayed.values().map(move |entry| (entry, false, ragged));
            level.prompt.iter().map(move |(entry, knows)| (entry, knows, ragged)).chain(delayed)
        });
        let mut last: Option<&Entry> = None;
        entries.map(move |(entry, knows_previous, ragged)| {
            let previous = last.replace(entry);
            Waiting {
                rows: entry.request.rows,
                bytes: entry.bytes,
                since: entry.request.arrived,
                joins_previous: if knows_previous {
                    entry.joins_previous
                } else {
                    previous.is_some_and(|previous| entry.may_join(previous, ragged))
                },
            }
        })
    }

    /// Takes the first `requests` out, as a batch.
    pub fn take(&mut self, requests: usize) -> Plan {
        let mut seats = Vec::with_capacity(requests.min(self.backlog.requests));
        while seats.len() < requests
            && let Some(entry) = self.pop()
        {
            seats.push(Seat::from(entry));
        }
        Plan { seats, inputs: Vec::new() }
    }

    fn pop(&mut self) -> Option<Entry> {
        let entry = self.levels.iter_mut().find_map(Level::pop)?;
        self.forget(&entry);
        Some(entry)
    }

    /// Takes a request out; `None` when it is not in here any more.
    pub fn cancel(&mut self, number: u64) -> Option<Entry> {
        let entry = self.levels.iter_mut().find_map(|level| level.remove(number))?;
        self.forget(&entry);
        Some(entry)
    }

    /// Takes all out, in order.
    pub fn clear(&mut self) -> Vec<Entry> {
        std::iter::from_fn(|| self.pop()).collect()
    }

    /// Takes out what has expired while it waited, and lets the others of their level pass those that
    /// have to give way. Looks at those alone, so that the lock is held no longer for a long queue.
    pub fn settle(&mut self, now: Instant) -> Vec<(Entry, Error)> {
        let mut dropped = Vec::new();
        while let Some(&(when, number, level)) = self.changes.first()
            && when <= now
        {
            self.changes.pop_first();
            let level = &mut self.levels[level];
            let Some(mut entry) = level.remove(number) else { continue };
            if let Some(error) = entry.fault(now) {
                self.forget(&entry);
                dropped.push((entry, error));
            } else {
                entry.gives_way = None;
                self.changes.extend(entry.change());
                level.delayed.insert(number, entry);
            }
        }
        dropped
    }

    fn forget(&mut self, entry: &Entry) {
        if let Some(change) = entry.change() {
            self.changes.remove(&change);
        }
        self.backlog.requests -= 1;
        self.backlog.rows -= entry.request.rows;
        self.backlog.bytes -= entry.bytes;
    }
}

impl Level {
    fn is_full(&self) -> bool {
        self.max_requests > 0 && self.prompt.len() + self.delayed.len() >= self.max_requests
    }

    fn pop(&mut self) -> Option<Entry> {
        self.prompt.pop().or_else(|| Some(self.delayed.pop_first()?.1))
    }

    fn remove(&mut self, number: u64) -> Option<Entry> {
        self.prompt.remove(number).or_else(|| self.delayed.remove(&number))
    }
}

impl Lane {
    fn len(&self) -> usize {
        self.places.len() - self.gaps
    }

    /// Each with whether its `joins_previous` is about the entry before it here.
    fn iter(&self) -> impl Iterator<Item = (&Entry, bool)> {
        let mut behind_entry = false;
        self.places.iter().filter_map(move |(_, place)| {
            let knows_previous = std::mem::replace(&mut behind_entry, place.is_some());
            place.as_ref().map(|entry| (entry, knows_previous))
        })
    }

    /// Behind all others.
    fn push(&mut self, mut entry: Entry) {
        let last = self.places.back().and_then(|(_, place)| place.as_ref());
        entry.joins_previous = last.is_some_and(|last| entry.may_join(last, &self.ragged));
        self.places.push_back((entry.number, Some(entry)));
    }

    /// The first one.
    fn pop(&mut self) -> Option<Entry> {
        let entry = self.places.pop_front()?.1;
        self.close_gaps();
        entry
    }

    fn remove(&mut self, number: u64) -> Option<Entry> {
        let place = self.places.binary_search_by_key(&number, |&(number, _)| number).ok()?;
        let entry = self.places[place].1.take()?;
        self.gaps += 1;
        self.close_gaps();
        Some(entry)
    }

    /// Those at both ends at once, so that the first place and the last hold entries; the others once they
    /// are the larger part: that costs no more than it took to make them.
    fn close_gaps(&mut self) {
        if self.gaps == 0 {
            return;
        }
        while let Some((_, None)) = self.places.front() {
            self.places.pop_front();
            self.gaps -= 1;
        }
        while let Some((_, None)) = self.places.back() {
            self.places.pop_back();
            self.gaps -= 1;
        }
        if self.gaps > self.len() {
            let places = std::mem::take(&mut self.places);
            self.gaps = 0;
            places.into_iter().filter_map(|(_, place)| place).for_each(|entry| self.push(entry));
        }
    }
}

#[cfg(test)]
mod tests;
