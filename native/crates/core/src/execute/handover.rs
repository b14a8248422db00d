//! Who runs next: passes the right to run a slot from whoever has it to whoever should.
//!
//! Work and free slots stand under one lock, so "the queue is empty, I leave" and "nobody runs, I
//! lead" cannot both be true. What always holds when the lock is free: if work is due for a free slot,
//! then a sleeper has been called, a timed sleeper is about to look, or a leader is on its way who may
//! take that work. A leader with one slot is no help for work that is bound to another. Checked by the
//! loom tests, on this very module.

use std::time::Instant;

use crate::base::sync::{Condvar, Mutex, lock};
use crate::{Due, FreeSlots};

/// The work behind the lock.
pub(crate) trait Work {
    /// Whether one of these slots has something to do. Never names another slot.
    fn due(&self, now: Instant, free: &FreeSlots) -> Due;
}

/// A slot knows its index, below the number of slots.
pub(crate) trait Indexed {
    fn index(&self) -> usize;

    /// It takes no work for now.
    fn rest(&mut self) {}
}

pub(crate) struct Handover<W, S> {
    state: Mutex<HandoverState<W, S>>,
    /// Instance threads sleep here.
    work: Condvar,
    /// Whoever waits for all slots to come home.
    home: Condvar,
}

struct HandoverState<W, S> {
    work: W,
    /// By their indexes.
    slots: Vec<Option<S>>,
    free: FreeSlots,
    /// So many slots take work: the first ones. Others finish what they execute, and then stay at home.
    count: usize,
    /// Those of the others that are at home.
    idle: usize,
    /// Instance threads that there are.
    threads: FreeSlots,
    /// Slots between [`Handover::begin`] and [`Handover::finish`].
    executing: usize,
    inline: bool,
    /// Each slot is for the sleeper of its number alone, and the work never is inline.
    bound: bool,
    closed: bool,
    sleepers: usize,
    /// Sleepers that have been called and have not looked yet.
    called: usize,
    /// When the sleeper with the nearest alarm wakes by itself.
    alarm: Option<Instant>,
}

impl<W: Work, S: Indexed> HandoverState<W, S> {
    /// Slots that are out and have not begun: their holders look for work, or give the slot back.
    fn leaders_on_their_way(&self) -> usize {
        self.out() - self.executing
    }

    /// Slots that are not at home.
    fn out(&self) -> usize {
        self.slots.len() - self.free.len() - self.idle
    }

    fn put(&mut self, mut slot: S) {
        let index = slot.index();
        if index < self.count {
            self.free.insert(index);
        } else {
            self.idle += 1;
            slot.rest();
        }
        self.slots[index] = Some(slot);
    }

    /// Slots that take no work any more, and are not at home yet: any thread may hold them, so that none leaves.
    fn is_shrinking(&self) -> bool {
        self.slots.len() - self.count > self.idle
    }

    fn due(&self, now: Instant) -> Due {
        if self.free.is_empty() { Due::Nothing } else { self.work.due(now, &self.free) }
    }

    /// The same for one slot alone, named in what it answers.
    fn due_for(&self, index: usize, now: Instant) -> Due {
        if !self.free.contains(index) {
            return Due::Nothing;
        }
        match self.work.due(now, &FreeSlots::only(index)) {
            Due::Any { .. } => Due::Only(index),
            due => due,
        }
    }

    /// Whether a sleeper is left for a free slot.
    fn can_call(&self) -> bool {
        self.called < self.sleepers.min(self.free.len())
    }

    /// `None`: it is not free, whatever the work says.
    fn take(&mut self, index: usize) -> Option<S> {
        let slot = self.slots.get_mut(index)?.take()?;
        self.free.remove(index);
        Some(slot)
    }
}

pub(crate) enum Begin<R, S> {
    /// Run this; the second slot, if any, is for somebody else to run.
    Run(R, S, Option<S>),
    Nothing,
}

impl<W: Work, S: Indexed> Handover<W, S> {
    /// Slots in the order of their indexes, which begin at 0.
    pub(crate) fn new(work: W, slots: Vec<S>) -> Self {
        Self::with_slots(work, slots, false)
    }

    /// The same where each slot has a thread of its own, which is on other cores than the others. All
    /// sleepers are woken then: who takes which slot is decided by who they are.
    pub(crate) fn bound(work: W, slots: Vec<S>) -> Self {
        Self::with_slots(work, slots, true)
    }

    fn with_slots(work: W, slots: Vec<S>, bound: bool) -> Self {
        Self {
            state: Mutex::new(HandoverState {
                bound,
                work,
                free: (0..slots.len()).collect(),
                count: slots.len(),
                idle: 0,
                threads: FreeSlots::default(),
                slots: slots.into_iter().map(Some).collect(),
                executing: 0,
                inline: false,
                closed: false,
                sleepers: 0,
                called: 0,
                alarm: None,
            }),
            work: Condvar::new(),
            home: Condvar::new(),
        }
    }

    /// Whoever brings work leads from now on.
    pub(crate) fn set_inline(&self) {
        lock(&self.state).inline = true;
    }

    /// Changes the work, and with it who takes it: `change` says whether whoever brings some leads from now on. Who leads
    /// already hears that with the end of its batch, as in [`Self::finish`]. A sleeper is called for what is due then.
    pub(crate) fn change(&self, now: Instant, change: impl FnOnce(&mut W) -> bool) {
        let mut state = lock(&self.state);
        let someone_leads = state.out() > 0;
        state.inline = change(&mut state.work) || (state.inline && someone_leads);
        self.call_a_sleeper(&mut state, now);
    }

    /// From now on so many slots take work, of which `make` makes those that there have not been yet; `change` tells the
    /// work of it. One that goes finishes what it executes; when all have, as many threads end as there are too many.
    /// Answers what `change` does, and for which slots threads are to be started, which count as there from now on.
    /// `None` once closed.
    pub(crate) fn resize<R>(
        &self,
        now: Instant,
        count: usize,
        make: impl Fn(usize) -> S,
        change: impl FnOnce(&mut W) -> R,
    ) -> Option<(R, Vec<usize>)> {
        let mut state = lock(&self.state);
        if state.closed {
            return None;
        }
        for index in count..state.count {
            if let Some(slot) = &mut state.slots[index] {
                slot.rest();
                state.free.remove(index);
                state.idle += 1;
            }
        }
        for index in state.count..count {
            if index == state.slots.len() {
                state.slots.push(Some(make(index)));
                state.free.insert(index);
            } else if state.slots[index].is_some() {
                state.idle -= 1;
                state.free.insert(index);
            }
        }
        state.count = count;
        let changed = change(&mut state.work);
        let new: Vec<usize> = (0..count).filter(|&thread| !state.threads.contains(thread)).collect();
        for &thread in &new {
            state.threads.insert(thread);
        }
        self.work.notify_all();
        self.call_a_sleeper(&mut state, now);
        Some((changed, new))
    }

    /// There is a thread of this number from now on, which is going to [`Self::wait`].
    pub(crate) fn enlist(&self, thread: usize) {
        lock(&self.state).threads.insert(thread);
    }

    /// It could not be started.
    pub(crate) fn dismiss(&self, thread: usize) {
        lock(&self.state).threads.remove(thread);
    }

    /// Looks at or changes the work without moving any slot.
    pub(crate) fn with<R>(&self, f: impl FnOnce(&mut W) -> R) -> R {
        f(&mut lock(&self.state).work)
    }

    /// Whether every slot is home, there is nothing to do, and all threads sleep uncalled.
    pub(crate) fn at_rest(&self, now: Instant) -> bool {
        let state = lock(&self.state);
        let asleep = state.sleepers == state.threads.len() && state.called == 0;
        asleep && state.out() == 0 && matches!(state.due(now), Due::Nothing)
    }

    /// Adds work. Answers a slot when the caller has to lead: nobody does, or all who do are executing,
    /// or the work is for this slot only. A leader on its way takes work for any slot too, so that a
    /// burst on one io thread does not occupy every slot.
    pub(crate) fn admit<R, E>(
        &self,
        now: Instant,
        add: impl FnOnce(&mut W) -> Result<R, E>,
    ) -> Result<(R, Option<S>), E> {
        let mut state = lock(&self.state);
        let added = add(&mut state.work)?;
        if !state.inline {
            self.call_a_sleeper(&mut state, now);
            return Ok((added, None));
        }
        let lead = match state.due(now) {
            Due::Nothing => None,
            Due::Any { .. } if state.leaders_on_their_way() > 0 => None,
            due => self.take_out(&mut state, due, now),
        };
        Ok((added, lead))
    }

    /// Takes work for `slot`; with none the slot goes home.
    pub(crate) fn begin<R>(
        &self,
        now: Instant,
        slot: S,
        take: impl FnOnce(&mut W, &S) -> Option<R>,
    ) -> Begin<R, S> {
        let mut state = lock(&self.state);
        if slot.index() >= state.count {
            self.put_home(&mut state, slot, now);
            return Begin::Nothing;
        }
        let Some(batch) = take(&mut state.work, &slot) else {
            self.put_home(&mut state, slot, now);
            return Begin::Nothing;
        };
        state.executing += 1;
        let second = match state.due(now) {
            Due::Nothing => None,
            // The rest of a batch is worth no second leader: a sleeper takes it, or this one when it is back.
            due if state.inline && !matches!(due, Due::Any { whole_batch: false }) => {
                self.take_out(&mut state, due, now)
            }
            due => {
                self.call_for(&mut state, due);
                None
            }
        };
        Begin::Run(batch, slot, second)
    }

    /// After a batch: the slot comes back to its holder when there is more for it, otherwise it goes
    /// home. `done` says whether the model runs inline from now on; one that stops goes to its threads.
    pub(crate) fn finish(&self, now: Instant, slot: S, done: impl FnOnce(&mut W, &S) -> bool) -> Option<S> {
        let mut state = lock(&self.state);
        state.executing -= 1;
        let inline = done(&mut state.work, &slot);
        let moves = state.inline && !inline;
        state.inline = inline;
        let index = slot.index();
        if index >= state.count {
            state.put(slot);
            let due = state.due(now);
            self.came_home(&mut state, due);
            return None;
        }
        state.free.insert(index);
        let due = state.due(now);
        let own = match due {
            Due::Only(other) if other != index => state.work.due(now, &FreeSlots::only(index)),
            due => due,
        };
        let goes_on = matches!(own, Due::Any { .. } | Due::Only(_)) && !moves && !state.closed;
        if !goes_on {
            state.slots[index] = Some(slot);
            self.came_home(&mut state, due);
            return None;
        }
        state.free.remove(index);
        if matches!(due, Due::Only(_)) {
            // There may be work for other slots, too, which this leader cannot take.
            self.call_a_sleeper(&mut state, now);
        }
        Some(slot)
    }

    /// Gives a slot back unused; due work is taken over by a thread.
    pub(crate) fn give_back(&self, slot: S, now: Instant) {
        self.put_home(&mut lock(&self.state), slot, now);
    }

    /// Sleeps until there is work for a free slot, or where slots are bound, for that of this thread. `None`
    /// once closed, or where there are fewer slots than that by now.
    pub(crate) fn wait(&self, thread: usize, clock: impl Fn() -> Instant) -> Option<S> {
        let mut state = lock(&self.state);
        loop {
            if state.closed {
                return None;
            }
            let now = clock();
            if thread >= state.count && !state.is_shrinking() {
                state.threads.remove(thread);
                // It may have been the one that was called, or that had the alarm.
                self.call_a_sleeper(&mut state, now);
                return None;
            }
            let due = if state.bound { state.due_for(thread, now) } else { state.due(now) };
            if matches!(due, Due::Any { .. } | Due::Only(_))
                && let Some(slot) = self.take_out(&mut state, due, now)
            {
                // Whoever begins calls the next for what is left.
                return Some(slot);
            }
            let alarm = match due {
                Due::Later(when) if state.alarm.is_none_or(|alarm| when < alarm) => Some(when),
                _ => None,
            };
            state.sleepers += 1;
            state = match alarm {
                None => self.work.wait(state).unwrap_or_else(std::sync::PoisonError::into_inner),
                Some(when) => {
                    state.alarm = alarm;
                    let pause = when.saturating_duration_since(now);
                    let woken = self.work.wait_timeout(state, pause);
                    let (mut state, _) = woken.unwrap_or_else(std::sync::PoisonError::into_inner);
                    if state.alarm == alarm {
                        state.alarm = None;
                    }
                    state
                }
            };
            state.sleepers -= 1;
            state.called = state.called.saturating_sub(1);
        }
    }

    /// Lets no sleeper take work any more and wakes them all.
    pub(crate) fn close(&self) {
        lock(&self.state).closed = true;
        self.work.notify_all();
    }

    /// After [`Handover::close`]: waits for the slots and hands them out for good; `None` when one
    /// has not come home by `until`.
    pub(crate) fn collect(&self, until: Instant, clock: impl Fn() -> Instant) -> Option<Vec<S>> {
        let mut state = lock(&self.state);
        while state.out() > 0 {
            let left = until.saturating_duration_since(clock());
            if left.is_zero() {
                return None;
            }
            let woken = self.home.wait_timeout(state, left);
            (state, _) = woken.unwrap_or_else(std::sync::PoisonError::into_inner);
        }
        state.free = FreeSlots::default();
        state.idle = 0;
        Some(std::mem::take(&mut state.slots).into_iter().flatten().collect())
    }

    fn put_home(&self, state: &mut HandoverState<W, S>, slot: S, now: Instant) {
        state.put(slot);
        let due = if state.can_call() { state.due(now) } else { Due::Nothing };
        self.came_home(state, due);
    }

    fn came_home(&self, state: &mut HandoverState<W, S>, due: Due) {
        if state.closed {
            self.home.notify_all();
        } else {
            if !state.is_shrinking() && state.threads.len() > state.count {
                // threads may leave now
                self.work.notify_all();
            }
            self.call_for(state, due);
        }
    }

    /// The slot for work that is due now. Whoever gets it takes any work for any slot; for what is bound
    /// to the slots that are still free a sleeper is called.
    #[inline]
    fn take_out(&self, state: &mut HandoverState<W, S>, due: Due, now: Instant) -> Option<S> {
        match due {
            Due::Any { .. } => state.free.first().and_then(|index| state.take(index)),
            Due::Only(index) => {
                let slot = state.take(index);
                self.call_a_sleeper(state, now);
                slot
            }
            due => {
                self.call_for(state, due);
                None
            }
        }
    }

    fn call_a_sleeper(&self, state: &mut HandoverState<W, S>, now: Instant) {
        if state.can_call() {
            let due = state.due(now);
            self.call_for(state, due);
        }
    }

    /// Calls one sleeper for what is due, and none for work that an alarm covers.
    fn call_for(&self, state: &mut HandoverState<W, S>, due: Due) {
        let needed = match due {
            Due::Any { .. } | Due::Only(_) => true,
            Due::Later(when) => state.alarm.is_none_or(|alarm| when < alarm),
            Due::Nothing => false,
        };
        if needed && state.can_call() {
            state.called += 1;
            if state.bound {
                self.work.notify_all();
            } else {
                self.work.notify_one();
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod alarm_tests;
#[cfg(all(test, loom))]
mod loom_tests;
