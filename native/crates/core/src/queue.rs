//! What waits for a model, in the order in which it runs: level by level, inside a level first in,
//! first out, and behind all others of its level what has waited past a timeout that delays.
//!
//! Stands under its runner's lock.

use std::collections::VecDeque;
use std::time::Instant;

use crate::policy::Waiting;
use crate::{Error, QueueSpec, Request, TimeoutAction};

/// A request in a queue.
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
    pub fn new(request: Request, queue: &QueueSpec) -> Self {
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
            request: Box::new(request),
            expires,
            gives_way,
            level,
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

    /// Caller gone first, then deadline passed, so that a request with both is counted as cancelled.
    fn fault(&self, now: Instant) -> Option<Error> {
        let gone = self.request.reply.claim.abandoned();
        gone.or_else(|| self.expires.is_some_and(|expires| expires <= now).then(Error::expired))
    }

    /// When time changes something about it.
    fn changes(&self) -> Option<Instant> {
        earlier(self.expires, self.gives_way)
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

pub(crate) struct Queue {
    /// The first is served first.
    levels: Box<[Level]>,
    max_bytes: usize,
    backlog: Backlog,
    next_change: Option<Instant>,
}

struct Level {
    /// 0: bounded by bytes alone.
    max_requests: usize,
    prompt: Lane,
    delayed: Lane,
}

/// Entries in the order of their numbers; each but the first knows whether it may join the one before.
#[derive(Default)]
struct Lane(VecDeque<Entry>);

impl Queue {
    pub(crate) fn new(spec: &QueueSpec) -> Self {
        let level = |max_requests| Level { max_requests, prompt: Lane::default(), delayed: Lane::default() };
        Self {
            levels: spec.levels.iter().map(|policy| level(policy.max_requests)).collect(),
            max_bytes: spec.max_bytes,
            backlog: Backlog::default(),
            next_change: None,
        }
    }

    pub(crate) fn backlog(&self) -> Backlog {
        self.backlog
    }

    /// Nothing in here expires or gives way before this; too early when what would has left.
    pub(crate) fn next_change(&self) -> Option<Instant> {
        self.next_change
    }

    /// Takes the request in, or gives it back with the reason.
    pub(crate) fn admit(&mut self, entry: Entry) -> Result<(), (Error, Entry)> {
        if self.levels[entry.level].is_full() || self.has_no_room(entry.bytes) {
            return Err((Error::overloaded(), entry));
        }
        self.backlog.requests += 1;
        self.backlog.rows += entry.request.rows;
        self.backlog.bytes += entry.bytes;
        self.next_change = earlier(self.next_change, entry.changes());
        self.levels[entry.level].prompt.add(entry);
        Ok(())
    }

    /// Whether a request of at least so many bytes would be refused on every level.
    pub(crate) fn is_full(&self, bytes: usize) -> bool {
        self.has_no_room(bytes) || self.levels.iter().all(Level::is_full)
    }

    /// A request that is larger than the bound by itself still runs when nothing else waits.
    fn has_no_room(&self, bytes: usize) -> bool {
        self.backlog.requests > 0 && self.backlog.bytes.saturating_add(bytes) > self.max_bytes
    }

    pub(crate) fn waiting(&self) -> impl Iterator<Item = Waiting> {
        let lanes = self.levels.iter().flat_map(|level| [&level.prompt.0, &level.delayed.0]);
        let mut last: Option<&Entry> = None;
        lanes.flat_map(move |lane| {
            let across = lane.front().zip(last).is_some_and(|(first, last)| first.may_join(last));
            last = lane.back().or(last);
            lane.iter().enumerate().map(move |(place, entry)| Waiting {
                rows: entry.request.rows,
                bytes: entry.bytes,
                since: entry.request.arrived,
                joins_previous: if place == 0 { across } else { entry.joins_previous },
            })
        })
    }

    /// Takes the first `requests` out.
    pub(crate) fn take(&mut self, requests: usize) -> Vec<Entry> {
        let mut batch = Vec::with_capacity(requests);
        for Lane(lane) in self.lanes() {
            let count = lane.len().min(requests - batch.len());
            batch.extend(lane.drain(..count));
            if batch.len() == requests {
                break;
            }
        }
        for entry in &batch {
            self.forget(entry);
        }
        batch
    }

    /// Takes a request out; `None` when it is not in here any more.
    pub(crate) fn cancel(&mut self, number: u64) -> Option<Entry> {
        let entry = self.lanes().find_map(|lane| lane.remove_number(number))?;
        self.forget(&entry);
        Some(entry)
    }

    /// Takes all out, in order.
    pub(crate) fn clear(&mut self) -> Vec<Entry> {
        self.take(self.backlog.requests)
    }

    /// Takes out what has ended while it waited, and lets the others of their level pass those that
    /// have to give way.
    pub(crate) fn settle(&mut self, now: Instant) -> Vec<(Entry, Error)> {
        let mut dropped = Vec::new();
        if self.next_change.is_none_or(|when| now < when) {
            return dropped;
        }
        for level in &mut self.levels {
            level.prompt.drop_the_dead(now, &mut dropped);
            level.delayed.drop_the_dead(now, &mut dropped);
            level.delay(now);
        }
        for (entry, _) in &dropped {
            self.forget(entry);
        }
        self.next_change = self.lanes().flat_map(|lane| &lane.0).filter_map(Entry::changes).min();
        dropped
    }

    fn lanes(&mut self) -> impl Iterator<Item = &mut Lane> {
        self.levels.iter_mut().flat_map(|level| [&mut level.prompt, &mut level.delayed])
    }

    fn forget(&mut self, entry: &Entry) {
        self.backlog.requests -= 1;
        self.backlog.rows -= entry.request.rows;
        self.backlog.bytes -= entry.bytes;
    }
}

impl Level {
    fn is_full(&self) -> bool {
        self.max_requests > 0 && self.len() >= self.max_requests
    }

    fn len(&self) -> usize {
        self.prompt.0.len() + self.delayed.0.len()
    }

    fn delay(&mut self, now: Instant) {
        let mut place = 0;
        while let Some(entry) = self.prompt.0.get(place) {
            if entry.gives_way.is_none_or(|when| now < when) {
                place += 1;
            } else if let Some(mut entry) = self.prompt.remove(place) {
                entry.gives_way = None;
                self.delayed.add(entry);
            }
        }
    }
}

impl Lane {
    fn add(&mut self, mut entry: Entry) {
        match self.0.back() {
            Some(last) if last.number > entry.number => {
                let place = self.0.partition_point(|other| other.number < entry.number);
                self.0.insert(place, entry);
                self.link(place);
                self.link(place + 1);
            }
            last => {
                entry.joins_previous = last.is_some_and(|last| entry.may_join(last));
                self.0.push_back(entry);
            }
        }
    }

    fn remove(&mut self, place: usize) -> Option<Entry> {
        let entry = self.0.remove(place)?;
        self.link(place);
        Some(entry)
    }

    fn remove_number(&mut self, number: u64) -> Option<Entry> {
        let place = self.0.binary_search_by_key(&number, |entry| entry.number).ok()?;
        self.remove(place)
    }

    fn link(&mut self, place: usize) {
        if place > 0 && place < self.0.len() {
            self.0[place].joins_previous = self.0[place].may_join(&self.0[place - 1]);
        }
    }

    fn drop_the_dead(&mut self, now: Instant, dropped: &mut Vec<(Entry, Error)>) {
        let mut place = 0;
        while let Some(entry) = self.0.get(place) {
            match entry.fault(now) {
                Some(error) => dropped.extend(self.remove(place).map(|entry| (entry, error))),
                None => place += 1,
            }
        }
    }
}
