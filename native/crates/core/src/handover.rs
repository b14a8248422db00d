//! Who runs next: passes the right to run a slot from whoever has it to whoever should.
//!
//! Work and free slots stand under one lock, so "the queue is empty, I leave" and "nobody runs, I
//! lead" cannot both be true. What always holds when the lock is free: if work is due and a slot is
//! free, then a sleeper has been called, a timed sleeper is about to look, or a leader is on its way.
//! Checked by the loom tests, on this very module.

use std::time::Instant;

use crate::sync::{Condvar, Mutex, lock};

/// The work behind the lock.
pub(crate) trait Work {
    /// `Ok`: there is something to run. `Err(Some(when))`: look again then. `Err(None)`: nothing.
    fn due(&self, now: Instant) -> Result<(), Option<Instant>>;

    /// Whether a second slot would find a whole batch.
    fn has_full_batch(&self) -> bool;
}

pub(crate) struct Handover<W, S> {
    state: Mutex<State<W, S>>,
    /// Instance threads sleep here.
    work: Condvar,
    /// Whoever waits for all slots to come home.
    home: Condvar,
}

struct State<W, S> {
    work: W,
    free: Vec<S>,
    slots: usize,
    /// Slots between [`Handover::begin`] and [`Handover::finish`].
    executing: usize,
    inline: bool,
    closed: bool,
    sleepers: usize,
    /// Sleepers that have been called and have not looked yet.
    called: usize,
    /// When the sleeper with the nearest alarm wakes by itself.
    alarm: Option<Instant>,
}

impl<W, S> State<W, S> {
    /// Slots that are out and have not begun: their holders look for work, or give the slot back.
    fn leaders_on_their_way(&self) -> usize {
        self.slots - self.free.len() - self.executing
    }
}

pub(crate) enum Begin<R, S> {
    /// Run this; the second slot, if any, is for somebody else to run.
    Run(R, S, Option<S>),
    Nothing,
}

impl<W: Work, S> Handover<W, S> {
    pub(crate) fn new(work: W, slots: Vec<S>) -> Self {
        Self {
            state: Mutex::new(State {
                work,
                slots: slots.len(),
                free: slots,
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

    #[cfg(all(test, loom))]
    pub(crate) fn set_inline(&self) {
        lock(&self.state).inline = true;
    }

    /// Looks at or changes the work without moving any slot.
    pub(crate) fn with<R>(&self, f: impl FnOnce(&mut W) -> R) -> R {
        f(&mut lock(&self.state).work)
    }

    /// Whether every slot is home, there is nothing to do, and one thread for each slot sleeps uncalled.
    pub(crate) fn at_rest(&self, now: Instant) -> bool {
        let state = lock(&self.state);
        let asleep = state.sleepers == state.slots && state.called == 0;
        asleep && state.free.len() == state.slots && matches!(state.work.due(now), Err(None))
    }

    /// Adds work. Answers a slot when the caller has to lead: nobody does, or all who do are executing.
    /// A leader on its way takes this work too, so that a burst on one io thread does not occupy every
    /// slot.
    pub(crate) fn admit<R, E>(
        &self,
        now: Instant,
        add: impl FnOnce(&mut W) -> Result<R, E>,
    ) -> Result<(R, Option<S>), E> {
        let mut state = lock(&self.state);
        let added = add(&mut state.work)?;
        if state.inline {
            let lead = if state.leaders_on_their_way() == 0 { state.free.pop() } else { None };
            return Ok((added, lead));
        }
        self.call_a_sleeper(&mut state, now);
        Ok((added, None))
    }

    /// Takes work for `slot`; with none the slot goes home.
    pub(crate) fn begin<R>(
        &self,
        now: Instant,
        slot: S,
        take: impl FnOnce(&mut W, &S) -> Option<R>,
    ) -> Begin<R, S> {
        let mut state = lock(&self.state);
        let Some(batch) = take(&mut state.work, &slot) else {
            self.put_home(&mut state, slot, now);
            return Begin::Nothing;
        };
        state.executing += 1;
        let second = if state.inline && state.work.has_full_batch() { state.free.pop() } else { None };
        if second.is_none() {
            self.call_a_sleeper(&mut state, now);
        }
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
        if !moves && !state.closed && state.work.due(now).is_ok() {
            return Some(slot);
        }
        self.put_home(&mut state, slot, now);
        None
    }

    /// Gives a slot back unused; due work is taken over by a thread.
    pub(crate) fn give_back(&self, slot: S, now: Instant) {
        self.put_home(&mut lock(&self.state), slot, now);
    }

    /// Sleeps until there is work and a free slot. `None` once closed.
    pub(crate) fn wait(&self, clock: impl Fn() -> Instant) -> Option<S> {
        let mut state = lock(&self.state);
        loop {
            if state.closed {
                return None;
            }
            let now = clock();
            let alarm = match (state.free.is_empty(), state.work.due(now)) {
                // Whoever begins calls the next for what is left.
                (false, Ok(())) => return state.free.pop(),
                (false, Err(Some(when))) if state.alarm.is_none_or(|alarm| when < alarm) => Some(when),
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
        while state.free.len() < state.slots {
            let left = until.saturating_duration_since(clock());
            if left.is_zero() {
                return None;
            }
            let woken = self.home.wait_timeout(state, left);
            (state, _) = woken.unwrap_or_else(std::sync::PoisonError::into_inner);
        }
        state.slots = 0;
        Some(std::mem::take(&mut state.free))
    }

    fn put_home(&self, state: &mut State<W, S>, slot: S, now: Instant) {
        state.free.push(slot);
        if state.closed {
            self.home.notify_all();
        } else {
            self.call_a_sleeper(state, now);
        }
    }

    /// One sleeper for each free slot with something to do, and none for work that an alarm covers.
    fn call_a_sleeper(&self, state: &mut State<W, S>, now: Instant) {
        if state.called >= state.sleepers.min(state.free.len()) {
            return;
        }
        let needed = match state.work.due(now) {
            Ok(()) => true,
            Err(Some(when)) => state.alarm.is_none_or(|alarm| when < alarm),
            Err(None) => false,
        };
        if needed {
            state.called += 1;
            self.work.notify_one();
        }
    }
}

#[cfg(all(test, not(loom)))]
mod alarm_tests;
#[cfg(all(test, loom))]
mod loom_tests;
