//! What waits for a model, in the order in which it runs: level by level, inside a level first in,
//! first out, and behind all others of its level what has waited past a timeout that delays. Requests of equal shapes,
//! which may share a batch, pass the others of their level.
//!
//! Stands under its runner's lock.

mod lane;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Instant;

use smallvec::SmallVec;

pub(crate) use self::lane::Grouping;
use self::lane::{Lane, Links};
use crate::schedule::policy::Waiting;
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
    /// That time has come.
    is_late: bool,
    level: u32,
    bytes: usize,
    links: Links,
}

impl Entry {
    pub fn new(request: Box<Request>, queue: &QueueSpec) -> Self {
        let bytes = request.byte_size();
        Self::of(request, bytes, queue)
    }

    /// The same of a request of so many bytes.
    pub(crate) fn of(request: Box<Request>, bytes: usize, queue: &QueueSpec) -> Self {
        let level = queue.level(request.priority);
        let policy = &queue.levels[level];
        let timeout = policy.timeout(request.timeout_us).map(|timeout| request.arrived + timeout);
        let (expires, gives_way) = match policy.timeout_action {
            TimeoutAction::Reject => (earlier(request.deadline, timeout), None),
            TimeoutAction::Delay => (request.deadline, timeout),
        };
        Self {
            number: 0,
            bytes,
            request,
            expires,
            gives_way,
            is_late: false,
            level: level as u32,
            links: Links::default(),
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

    fn level(&self) -> usize {
        self.level as usize
    }

    pub(crate) fn wants(&self, output: usize) -> bool {
        let wanted = &self.request.wanted;
        wanted.is_empty() || wanted.contains(&(output as u16))
    }

    /// `ragged`: the inputs whose shapes may differ.
    fn may_join(&self, previous: &Self, ragged: &[bool]) -> bool {
        looked();
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
        looked();
        let gone = self.request.reply.claim.abandoned();
        gone.or_else(|| self.expires.is_some_and(|expires| expires <= now).then(Error::expired))
    }

    /// When time changes something about it, and where it is then.
    fn change(&self) -> Option<(Instant, u64, usize)> {
        earlier(self.expires, self.gives_way).map(|when| (when, self.number, self.level()))
    }
}

/// At an entry: tests bound how often.
fn looked() {
    #[cfg(test)]
    tests::LOOKS.set(tests::LOOKS.get() + 1);
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
    /// By input, whether shapes make no difference.
    ragged: Arc<[bool]>,
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

/// The first of requests that may share a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    level: usize,
    number: u64,
}

impl Queue {
    /// Of requests that run one by one, as far as this knows.
    pub fn new(spec: &QueueSpec) -> Self {
        Self::grouped(spec, Grouping::None)
    }

    pub(crate) fn grouped(spec: &QueueSpec, grouping: Grouping) -> Self {
        let ragged: Arc<[bool]> = spec.ragged.clone().into();
        let lane = || Lane::new(grouping, ragged.clone());
        let level = |max_requests| Level { max_requests, prompt: lane(), delayed: BTreeMap::new() };
        Self {
            levels: spec.levels.iter().map(|policy| level(policy.max_requests)).collect(),
            ragged: ragged.clone(),
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
            let prompt = level.prompt.iter().next().map(|entry| entry.request.arrived);
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
        if self.levels[entry.level()].is_full() || self.has_no_room(entry.bytes) {
            return Err((Error::overloaded(), entry));
        }
        self.take_in(entry);
        Ok(())
    }

    fn take_in(&mut self, entry: Entry) {
        self.backlog.requests += 1;
        self.backlog.rows += entry.request.rows;
        self.backlog.bytes += entry.bytes;
        self.changes.extend(entry.change());
        let level = &mut self.levels[entry.level()];
        if entry.is_late {
            level.delayed.insert(entry.number, entry);
        } else {
            level.prompt.push(entry);
        }
    }

    /// Those of a queue in whose place this one, of `spec`, comes: all of them, however many it may have. They keep the
    /// times that they were given.
    pub(crate) fn take_over(&mut self, mut entries: Vec<Entry>, spec: &QueueSpec) {
        entries.sort_unstable_by_key(|entry| entry.number);
        for mut entry in entries {
            entry.level = spec.level(entry.request.priority) as u32;
            entry.links = Links::default();
            self.take_in(entry);
        }
    }

    /// Whether a request of at least so many bytes would be refused on every level.
    pub fn is_full(&self, bytes: usize) -> bool {
        self.has_no_room(bytes) || self.levels.iter().all(Level::is_full)
    }

    /// A request that is larger than the bound by itself still runs when nothing else waits.
    fn has_no_room(&self, bytes: usize) -> bool {
        self.backlog.requests > 0 && self.backlog.bytes.saturating_add(bytes) > self.max_bytes
    }

    /// All of them, in their order.
    pub fn waiting(&self) -> impl Iterator<Item = Waiting> {
        self.levels.iter().flat_map(Level::iter).map(Waiting::of)
    }

    /// Where batches may begin: level by level with the first of each group, in the order in which those came, of the
    /// first `most` of them, and with the first that gives way to others of its level.
    pub(crate) fn heads(&self, most: usize) -> impl Iterator<Item = Head> {
        let levels = self.levels.iter();
        let entries = levels
            .flat_map(move |level| level.prompt.heads().take(most).chain(level.delayed.values().next()));
        entries.map(|entry| Head { level: entry.level(), number: entry.number })
    }

    /// Whether others wait that came behind these and may not join them: where the order counts, none joins them any more.
    pub(crate) fn is_followed(&self, head: Head) -> bool {
        !self.levels[head.level].prompt.has_one_group()
    }

    /// The rows of those that may share a batch, and since when none of them waits longer, where that is known without a look
    /// at each.
    pub(crate) fn extent(&self, head: Head) -> Option<(usize, Instant)> {
        let prompt = &self.levels[head.level].prompt;
        let extent = prompt.extent(head.number)?;
        // Others may follow.
        (!prompt.has_one_group() || extent.0 == self.backlog.rows).then_some(extent)
    }

    /// Those that may share a batch, in their order.
    pub(crate) fn group(&self, head: Head) -> impl Iterator<Item = Waiting> {
        self.group_entries(head).map(Waiting::of)
    }

    /// Where nobody else of its level waits, those of lower levels that join it follow.
    fn group_entries(&self, head: Head) -> impl Iterator<Item = &Entry> {
        let level = &self.levels[head.level];
        let own = level.prompt.group_from(head.number).map(|entry| (entry, true));
        let lower = self.levels[head.level + 1..].iter().flat_map(Level::iter);
        let rest = level.delayed.values().chain(lower).map(|entry| (entry, false));
        let has_rest = level.prompt.has_one_group() || level.delayed.contains_key(&head.number);
        let mut last: Option<&Entry> = None;
        own.chain(rest.take_while(move |_| has_rest)).map_while(move |(entry, is_own)| {
            let previous = last.replace(entry);
            let joins = is_own || previous.is_none_or(|previous| entry.may_join(previous, &self.ragged));
            joins.then_some(entry)
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

    /// Takes the first `requests` of those out that may share a batch.
    pub(crate) fn take_group(&mut self, head: Head, requests: usize) -> Plan {
        let group = self.group_entries(head).take(requests);
        let numbers: SmallVec<[(usize, u64); 32]> =
            group.map(|entry| (entry.level(), entry.number)).collect();
        let mut seats = Vec::with_capacity(numbers.len());
        for (level, number) in numbers {
            if let Some(entry) = self.levels[level].remove(number) {
                self.forget(&entry);
                seats.push(Seat::from(entry));
            }
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
                (entry.gives_way, entry.is_late) = (None, true);
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
    fn len(&self) -> usize {
        self.prompt.len() + self.delayed.len()
    }

    fn is_full(&self) -> bool {
        self.max_requests > 0 && self.len() >= self.max_requests
    }

    fn iter(&self) -> impl Iterator<Item = &Entry> {
        self.prompt.iter().chain(self.delayed.values())
    }

    fn pop(&mut self) -> Option<Entry> {
        self.prompt.pop().or_else(|| Some(self.delayed.pop_first()?.1))
    }

    fn remove(&mut self, number: u64) -> Option<Entry> {
        self.prompt.remove(number).or_else(|| self.delayed.remove(&number))
    }
}

impl Waiting {
    fn of(entry: &Entry) -> Self {
        Self { rows: entry.request.rows, since: entry.request.arrived }
    }
}

#[cfg(all(test, not(loom)))]
mod group_tests;
#[cfg(test)]
mod tests;
