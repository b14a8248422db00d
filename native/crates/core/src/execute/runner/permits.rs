//! The permits of the rate limiter, as a runner sees them.
//!
//! A slot that waits for a permit is at home with a mark, and nothing is due for it: its work stays in the queue, where
//! it can be cancelled. The mark is set before the limiter knows that the slot waits, and removed when it has a permit
//! or has stopped waiting; until then nobody takes the slot. A slot at home that has a permit is always due: whoever
//! takes it executes something, or gives the permit back.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Instant;

use super::{Runner, RunnerState};
use crate::execute::rates::InstanceId;
use crate::{Due, FreeSlots, RateLimiter, Slot};

/// Slots between their model and the limiter; under the hand-over's lock.
#[derive(Default)]
pub(crate) struct Marks {
    waiting: FreeSlots,
    /// They have permits, and have not begun.
    granted: FreeSlots,
}

impl Marks {
    fn grant(&mut self, slot: usize) {
        self.waiting.remove(slot);
        self.granted.insert(slot);
    }

    /// What is due for free slots, when `due` says so of those that do not wait.
    pub(super) fn due(&self, free: &FreeSlots, due: impl FnOnce(&FreeSlots) -> Due) -> Due {
        if self.waiting.is_empty() && self.granted.is_empty() {
            return due(free);
        }
        if let Some(slot) = free.iter().find(|&slot| self.granted.contains(slot)) {
            return Due::Only(slot);
        }
        Due::among(free.iter().filter(|&slot| !self.waiting.contains(slot)), due)
    }
}

impl RunnerState {
    fn has_work_for(&self, slot: usize, now: Instant) -> bool {
        matches!(self.unmarked_due(now, &FreeSlots::only(slot)), Due::Any { .. } | Due::Only(_))
    }

    /// Slots that wait for permits with nothing to do: others have done it, or it was cancelled.
    pub(crate) fn useless_waits(&self, now: Instant) -> Vec<usize> {
        let Some(marks) = &self.marks else { return Vec::new() };
        marks.waiting.iter().filter(|&slot| !self.has_work_for(slot, now)).collect()
    }

    /// The slot begins, or has found nothing to do.
    #[inline]
    pub(crate) fn clear_marks(&mut self, slot: usize) {
        self.mark(|marks| {
            marks.waiting.remove(slot);
            marks.granted.remove(slot);
        });
    }

    fn mark(&mut self, change: impl FnOnce(&mut Marks)) {
        if let Some(marks) = &mut self.marks {
            change(marks);
        }
    }
}

impl Runner {
    /// The slot, if it may execute now. Otherwise it is at home, and waits for a permit.
    #[inline]
    pub(crate) fn permitted(self: &Arc<Self>, slot: Slot) -> Option<Slot> {
        match &self.permits {
            None => Some(slot),
            Some(_) => self.ask_permit(slot),
        }
    }

    fn ask_permit(self: &Arc<Self>, slot: Slot) -> Option<Slot> {
        let Some((limiter, id)) = self.permit_of(slot.index) else { return Some(slot) };
        if limiter.try_take(id) {
            return Some(slot);
        }
        self.handover.with(|state| state.mark(|marks| marks.waiting.insert(slot.index)));
        if limiter.take_or_wait(id) {
            return Some(slot);
        }
        self.handover.give_back(slot, self.now());
        // Its work may have gone before the limiter knew that it waits.
        self.end_useless_waits();
        None
    }

    /// A permit was taken, and there is nothing to execute.
    pub(crate) fn permit_unused(&self, slot: usize) {
        if let Some((limiter, id)) = self.permit_of(slot) {
            limiter.give_back(id, false);
        }
    }

    /// A batch has ended on a slot; `again` is the slot where there is more for it. Answers it if it may go on.
    #[inline]
    pub(crate) fn permit_used(self: &Arc<Self>, index: usize, again: Option<Slot>) -> Option<Slot> {
        match self.permit_of(index) {
            None => again,
            Some(_) => self.renew_permit(index, again),
        }
    }

    fn renew_permit(self: &Arc<Self>, index: usize, again: Option<Slot>) -> Option<Slot> {
        let (limiter, id) = self.permit_of(index)?;
        let Some(slot) = again else {
            limiter.give_back(id, true);
            return None;
        };
        self.handover.with(|state| state.mark(|marks| marks.waiting.insert(index)));
        let mut goes_on = None;
        limiter.give_back_for_more(id, |granted| {
            if granted {
                self.handover.with(|state| state.mark(|marks| marks.grant(index)));
                goes_on = Some(slot);
            } else {
                self.handover.give_back(slot, self.now());
            }
        });
        if goes_on.is_none() {
            self.end_useless_waits();
        }
        goes_on
    }

    /// A slot that waits may have its permit. False: there is nothing to do with it.
    pub(crate) fn permit_came(self: &Arc<Self>, slot: usize) -> bool {
        let now = self.now();
        let offered = self.handover.admit(now, |state| {
            let wanted = state.has_work_for(slot, now);
            if wanted {
                state.mark(|marks| marks.grant(slot));
            }
            wanted.then_some(()).ok_or(())
        });
        let Ok(((), lead)) = offered else { return false };
        if let Some(slot) = lead {
            self.lease(slot).leave_to_others();
        }
        true
    }

    /// A slot does not wait for a permit any more, and may ask again.
    pub(crate) fn waits_no_more(self: &Arc<Self>, slot: usize) {
        let unmark = |state: &mut RunnerState| {
            state.mark(|marks| marks.waiting.remove(slot));
            Ok::<_, Infallible>(())
        };
        if let Ok(((), Some(slot))) = self.handover.admit(self.now(), unmark) {
            self.lease(slot).leave_to_others();
        }
    }

    /// There may be less work than there was: who waits for a permit with nothing else to do waits no more.
    pub(crate) fn end_useless_waits(self: &Arc<Self>) {
        if self.permits.is_some() {
            let now = self.now();
            let useless = self.handover.with(|state| state.useless_waits(now));
            self.withdraw(useless);
        }
    }

    pub(crate) fn withdraw(self: &Arc<Self>, slots: Vec<usize>) {
        if let Some(permits) = &self.permits
            && !slots.is_empty()
        {
            let waits = slots.into_iter().filter_map(|slot| Some((permits.id(slot)?, slot)));
            permits.limiter.withdraw(waits).into_iter().for_each(|slot| self.waits_no_more(slot));
        }
    }

    /// Of a runner that closes: what it waits for it needs no more, nor what it has and does not execute with.
    pub(super) fn stop_waiting(&self) {
        if let Some(permits) = &self.permits {
            permits.limiter.dismiss(permits.ids());
        }
    }

    /// Of one whose slots have all come home.
    pub(super) fn give_permits_back(&self) {
        if let Some(permits) = &self.permits {
            permits.limiter.remove(permits.ids());
        }
    }

    fn permit_of(&self, slot: usize) -> Option<(&RateLimiter, InstanceId)> {
        let permits = self.permits.as_ref()?;
        permits.id(slot).map(|id| (&*permits.limiter, id))
    }
}
