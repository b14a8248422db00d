//! Who runs next: passes the right to run a slot from whoever has it to whoever should.
//!
//! Work and free slots stand under one lock, so "the queue is empty, I leave" and "nobody runs, I
//! lead" cannot both be true. What always holds when the lock is free: if work is due and a slot is
//! free, then a sleeper has been called, a timed sleeper is about to look, or a leader is on its way.
//! Checked by the loom tests below, on this very module.

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

/// In loom no time passes; these wait for the state itself.
#[cfg(all(test, not(loom)))]
mod alarm_tests {
    use std::sync::PoisonError;
    use std::thread;
    use std::time::Duration;

    use super::*;

    /// Something to do from this time on.
    struct DueFrom(Option<Instant>);

    impl Work for DueFrom {
        fn due(&self, now: Instant) -> Result<(), Option<Instant>> {
            match self.0 {
                Some(when) if when > now => Err(Some(when)),
                Some(_) => Ok(()),
                None => Err(None),
            }
        }

        fn has_full_batch(&self) -> bool {
            false
        }
    }

    #[test]
    fn a_sleeper_sets_its_alarm_for_every_delay_and_takes_the_work_when_it_rings() {
        let clock = std::sync::Mutex::new(Instant::now());
        let now = || *clock.lock().unwrap_or_else(PoisonError::into_inner);
        let desk = Handover::new(DueFrom(None), vec![0_u8]);
        thread::scope(|scope| {
            for _ in 0..3 {
                let sleeper = scope.spawn(|| desk.wait(now));
                let when = now() + Duration::from_millis(2);
                let admitted = desk.admit(now(), |work| {
                    work.0 = Some(when);
                    Ok::<_, ()>(())
                });
                assert_eq!(admitted, Ok(((), None)));
                let patience = Instant::now() + Duration::from_secs(30);
                while lock(&desk.state).alarm != Some(when) {
                    assert!(!sleeper.is_finished(), "it left before its time");
                    assert!(Instant::now() < patience, "no alarm is set");
                    thread::yield_now();
                }
                *clock.lock().unwrap_or_else(PoisonError::into_inner) = when;
                let slot = sleeper.join().ok().flatten();
                assert_eq!(slot, Some(0));
                assert!(lock(&desk.state).alarm.is_none());
                desk.with(|work| work.0 = None);
                desk.give_back(0, now());
            }
        });
    }
}

#[cfg(all(test, loom))]
mod tests {
    use std::time::Duration;

    use loom::sync::Arc;
    use loom::sync::atomic::{AtomicUsize, Ordering};
    use loom::thread;

    use super::*;

    /// Items to run, one per batch.
    struct Items {
        waiting: usize,
        /// Fewer wait for company; in loom no alarm ever rings.
        patient_below: usize,
    }

    impl Work for Items {
        fn due(&self, now: Instant) -> Result<(), Option<Instant>> {
            match self.waiting {
                0 => Err(None),
                waiting if waiting < self.patient_below => Err(Some(now + Duration::from_secs(1))),
                _ => Ok(()),
            }
        }

        fn has_full_batch(&self) -> bool {
            self.waiting > 0
        }
    }

    type Desk = Handover<Items, u8>;

    struct Scene {
        desk: Desk,
        ran: AtomicUsize,
        now: Instant,
    }

    impl Scene {
        fn new(slots: u8, inline: bool) -> Arc<Self> {
            let desk = Desk::new(Items { waiting: 0, patient_below: 0 }, (0..slots).collect());
            lock(&desk.state).inline = inline;
            Arc::new(Self { desk, ran: AtomicUsize::new(0), now: Instant::now() })
        }

        fn submit(&self) -> Option<u8> {
            let add = |items: &mut Items| {
                items.waiting += 1;
                Ok::<_, ()>(())
            };
            self.desk.admit(self.now, add).ok().and_then(|((), slot)| slot)
        }

        /// Drives a slot as a leader or an instance thread does; `inline` is what the gate says.
        fn drive(&self, slot: Option<u8>, inline: bool) {
            let mut next = slot;
            while let Some(slot) = next {
                let take = |items: &mut Items, _: &u8| {
                    items.patient_below = 0;
                    items.waiting.checked_sub(1).map(|rest| items.waiting = rest)
                };
                next = match self.desk.begin(self.now, slot, take) {
                    Begin::Nothing => None,
                    Begin::Run((), slot, second) => {
                        self.ran.fetch_add(1, Ordering::Relaxed);
                        if let Some(second) = second {
                            self.drive(Some(second), inline);
                        }
                        self.desk.finish(self.now, slot, |_, _| inline)
                    }
                };
            }
        }

        /// An instance thread that leaves once `until` items have run.
        fn work(&self, until: usize, inline: bool) {
            while self.ran.load(Ordering::Relaxed) < until {
                let Some(slot) = self.desk.wait(|| self.now) else { return };
                self.drive(Some(slot), inline);
            }
            self.desk.close();
        }

        fn finished(&self, items: usize, slots: usize) {
            assert_eq!(self.ran.load(Ordering::Relaxed), items, "every item runs exactly once");
            assert_eq!(lock(&self.desk.state).free.len(), slots, "every slot is home");
        }
    }

    fn check(body: impl Fn() + Send + Sync + 'static) {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(4);
        model.check(body);
    }

    #[test]
    fn two_submitters_leave_nothing_behind_inline() {
        for slots in [1, 2] {
            check(move || {
                let scene = Scene::new(slots, true);
                let other = scene.clone();
                let thread = thread::spawn(move || other.drive(other.submit(), true));
                scene.drive(scene.submit(), true);
                thread.join().unwrap();
                scene.finished(2, usize::from(slots));
            });
        }
    }

    #[test]
    fn a_sleeping_thread_hears_of_every_item() {
        check(|| {
            let scene = Scene::new(1, false);
            let other = scene.clone();
            let thread = thread::spawn(move || other.work(2, false));
            assert_eq!(scene.submit(), None);
            assert_eq!(scene.submit(), None);
            thread.join().unwrap();
            scene.finished(2, 1);
        });
    }

    #[test]
    fn two_sleeping_threads_share_the_items_and_leave_together() {
        check(|| {
            let scene = Scene::new(2, false);
            let threads = [(); 2].map(|()| {
                let other = scene.clone();
                thread::spawn(move || other.work(2, false))
            });
            assert_eq!(scene.submit(), None);
            assert_eq!(scene.submit(), None);
            for thread in threads {
                thread.join().unwrap();
            }
            scene.finished(2, 2);
        });
    }

    #[test]
    fn a_sleeper_with_an_alarm_is_called_when_work_is_due_before_it() {
        check(|| {
            let scene = Scene::new(1, false);
            lock(&scene.desk.state).work.patient_below = 2;
            let other = scene.clone();
            let thread = thread::spawn(move || other.work(2, false));
            assert_eq!(scene.submit(), None);
            assert_eq!(scene.submit(), None);
            thread.join().unwrap();
            scene.finished(2, 1);
        });
    }

    #[test]
    fn a_burst_gets_one_leader_who_hands_on_a_second_lease() {
        check(|| {
            let scene = Scene::new(2, true);
            let other = scene.clone();
            let lead = scene.submit();
            assert!(lead.is_some());
            assert_eq!(scene.submit(), None, "a leader is on its way");
            let thread = thread::spawn(move || other.drive(other.submit(), true));
            scene.drive(lead, true);
            thread.join().unwrap();
            scene.finished(3, 2);
        });
    }

    #[test]
    fn a_dropped_lease_is_taken_over_by_a_thread() {
        check(|| {
            let scene = Scene::new(1, true);
            let other = scene.clone();
            let thread = thread::spawn(move || other.work(1, true));
            match scene.submit() {
                Some(slot) => scene.desk.give_back(slot, scene.now),
                None => unreachable!("the only slot is free"),
            }
            thread.join().unwrap();
            scene.finished(1, 1);
        });
    }

    #[test]
    fn work_follows_a_model_that_moves_to_its_threads() {
        check(|| {
            let scene = Scene::new(1, true);
            let other = scene.clone();
            let thread = thread::spawn(move || other.work(2, false));
            let lead = scene.submit();
            scene.drive(lead, false);
            scene.drive(scene.submit(), false);
            thread.join().unwrap();
            scene.finished(2, 1);
        });
    }
}
