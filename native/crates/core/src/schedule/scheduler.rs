//! Which requests run next: the seam behind which every scheduling scheme stands.
//!
//! A scheduler is called under its runner's lock and never blocks. It hands out each admitted
//! request exactly once: in an action, in the dropped ones, or to the caller that cancels it.

use std::time::Instant;

use crate::schedule::policy::{Decision, decide};
use crate::schedule::queue::{Grouping, Head};
use crate::{Backlog, BatchPolicy, Entry, Error, FreeSlots, Plan, Queue, QueueSpec};

pub enum Action {
    /// With one request at least.
    Run(Plan),
    Wait(Instant),
    Idle,
}

/// What there is to do for the slots that are free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    /// Any slot may do it: one of these, or one whose leader is about to look. Work that is bound to one of
    /// these is named first.
    Any {
        /// It is worth a second leader.
        whole_batch: bool,
    },
    /// This one of the slots may do it. Asked again without it, the scheduler speaks of the others.
    Only(usize),
    /// Something will be due at this time, if nothing else happens.
    Later(Instant),
    Nothing,
}

impl Due {
    /// What is due for a part of the slots that are free: one of the part is named, since any might be another.
    pub(crate) fn among(part: impl Iterator<Item = usize>, due: impl FnOnce(&FreeSlots) -> Self) -> Self {
        let part: FreeSlots = part.collect();
        let Some(first) = part.first() else { return Self::Nothing };
        match due(&part) {
            Self::Any { .. } => Self::Only(first),
            due => due,
        }
    }
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

    /// Whether one of these slots has something to do, without doing it: for a slot that it names,
    /// [`Scheduler::next`] has a batch, or drops a request. What only other slots may do is not due.
    fn due(&self, now: Instant, free: &FreeSlots) -> Due;

    /// The slot has come back from the engine.
    fn done(&mut self, slot: usize);

    /// Takes a queued request out; `None` when it is not in the queue any more.
    fn cancel(&mut self, number: u64) -> Option<Entry>;

    /// Takes all queued requests out, in order.
    fn clear(&mut self) -> Vec<Entry>;

    fn backlog(&self) -> Backlog;

    /// When the request came that has waited the longest.
    fn oldest(&self) -> Option<Instant>;
}

/// Batches of requests that may share one, joined as [`decide`] says. Where several may begin, that of the first level
/// does, and of this level the one whose first request is the oldest. Whoever waits for company holds up nobody behind.
pub struct DynamicBatcher {
    policy: BatchPolicy,
    queue: Queue,
    /// At how many groups of a level.
    looks_at: usize,
    /// Fewer rows wait for company, until the delay is over.
    least_rows: usize,
}

/// What is to be done now.
enum GroupChoice {
    Run(Head, usize),
    Wait(Instant),
    Idle,
}

/// Of one level. The others have come later than all of these, which wait for company.
const MOST_GROUPS: usize = 16;

impl DynamicBatcher {
    /// `keeps_order`: batches follow each other as their requests have come.
    pub fn new(policy: BatchPolicy, queue: &QueueSpec, keeps_order: bool) -> Self {
        let (grouping, looks_at) = match (policy.joins, keeps_order) {
            (false, _) => (Grouping::None, 1),
            (true, true) => (Grouping::Neighbours, 1),
            (true, false) => (Grouping::Shapes, MOST_GROUPS),
        };
        let least_rows = policy.least_rows();
        Self { policy, queue: Queue::grouped(queue, grouping), looks_at, least_rows }
    }

    /// What waits elsewhere, in whose place this one comes.
    pub(crate) fn take_over(&mut self, entries: Vec<Entry>, queue: &QueueSpec) {
        self.queue.take_over(entries, queue);
    }

    fn choose(&self, now: Instant) -> GroupChoice {
        let mut choice = GroupChoice::Idle;
        for head in self.queue.heads(self.looks_at) {
            match self.decide(head, now) {
                Decision::Run { requests } => return GroupChoice::Run(head, requests),
                Decision::Wait { until } => {
                    let earlier =
                        if let GroupChoice::Wait(earlier) = choice { earlier.min(until) } else { until };
                    choice = GroupChoice::Wait(earlier);
                }
                Decision::Idle => {}
            }
        }
        choice
    }

    /// As [`decide`] does, without a look at each of those that are too few to be worth one.
    fn decide(&self, head: Head, now: Instant) -> Decision {
        let is_closed = self.looks_at == 1 && self.queue.is_followed(head);
        if !is_closed
            && let Some((rows, since)) = self.queue.extent(head)
            && rows < self.least_rows
            && now < since + self.policy.max_delay
        {
            return Decision::Wait { until: since + self.policy.max_delay };
        }
        decide(&self.policy, self.queue.group(head), is_closed, now)
    }

    fn has_whole_batch(&self) -> bool {
        let whole = if self.policy.joins { self.policy.max_rows } else { 1 };
        self.queue.backlog().rows >= whole
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
        let action = match self.choose(now) {
            GroupChoice::Run(head, requests) => Action::Run(self.queue.take_group(head, requests)),
            GroupChoice::Wait(until) => Action::Wait(self.alarm(until)),
            GroupChoice::Idle => Action::Idle,
        };
        Next { action, dropped }
    }

    fn due(&self, now: Instant, _free: &FreeSlots) -> Due {
        let any = || Due::Any { whole_batch: self.has_whole_batch() };
        if self.queue.next_change().is_some_and(|when| when <= now) {
            return any();
        }
        if self.policy.max_delay.is_zero() {
            return if self.queue.backlog().requests == 0 { Due::Nothing } else { any() };
        }
        match self.choose(now) {
            GroupChoice::Run(..) => any(),
            GroupChoice::Wait(until) => Due::Later(self.alarm(until)),
            GroupChoice::Idle => Due::Nothing,
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

    fn oldest(&self) -> Option<Instant> {
        self.queue.oldest()
    }
}
