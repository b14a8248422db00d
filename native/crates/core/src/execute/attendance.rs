//! Which slots of a model have somebody to execute on them, where engines keep their slots and say so.
//!
//! An engine whose process is gone would answer sooner than one that works, and so get most of the requests. Work goes
//! to the slots that attend best: to others only where there are none.

use std::sync::{Arc, Weak};

use crate::execute::runner::RunnerState;
use crate::{Due, FreeSlots, Runner};

/// From bad to good.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Attendance {
    /// Whatever it is given fails, or may have to wait for long.
    Gone,
    /// It will be there soon: what it is given waits.
    Coming,
    Here,
}

/// The place of an engine in the runner that has it.
#[derive(Clone)]
pub struct Attendee {
    runner: Weak<Runner>,
    slot: usize,
}

impl Attendee {
    pub(crate) fn new(runner: Weak<Runner>, slot: usize) -> Self {
        Self { runner, slot }
    }

    /// To be called without a lock under which a batch is taken, or a token dropped. What it answers may be the last to
    /// hold the runner: it is to be dropped without any lock.
    pub fn tell(&self, attendance: Attendance) -> Option<Told> {
        let runner = self.runner.upgrade()?;
        runner.attends(self.slot, attendance);
        Some(Told(runner))
    }
}

/// Has heard of it.
#[must_use = "it is to be dropped without any lock"]
pub struct Told(#[expect(dead_code, reason = "it is there to be dropped")] Arc<Runner>);

/// Of all slots; under the hand-over's lock.
pub(crate) struct Attendances {
    slots: Box<[Attendance]>,
    /// `None` where all slots are alike.
    best: Option<FreeSlots>,
}

impl Attendances {
    pub(crate) fn new(slots: usize) -> Self {
        Self { slots: vec![Attendance::Here; slots].into(), best: None }
    }

    pub(crate) fn set(&mut self, slot: usize, attendance: Attendance) {
        self.slots[slot] = attendance;
        let best = self.slots.iter().max();
        let is_best = |&slot: &usize| self.slots.get(slot) == best;
        let best: FreeSlots = (0..self.slots.len()).filter(is_best).collect();
        self.best = (best.len() < self.slots.len()).then_some(best);
    }

    pub(crate) fn is_usable(&self, slot: usize) -> bool {
        self.best.as_ref().is_none_or(|best| best.contains(slot))
    }

    /// What is due for free slots, when `due` says so of those that are to be given work.
    pub(crate) fn due(&self, free: &FreeSlots, due: impl FnOnce(&FreeSlots) -> Due) -> Due {
        match &self.best {
            None => due(free),
            Some(best) => Due::among(free.iter().filter(|&slot| best.contains(slot)), due),
        }
    }
}

impl RunnerState {
    /// Whether others are there for what the slot would begin.
    pub(crate) fn is_left_to_others(&self, slot: usize) -> bool {
        self.attendances.as_ref().is_some_and(|attendances| !attendances.is_usable(slot))
    }
}

impl Runner {
    pub(crate) fn attends(self: &Arc<Self>, slot: usize, attendance: Attendance) {
        self.handover.with(|state| {
            if let Some(attendances) = &mut state.attendances {
                attendances.set(slot, attendance);
            }
        });
        // The work may be for other slots now.
        self.end_useless_waits();
        self.look_again();
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::Attendance::{Coming, Gone, Here};
    use super::*;

    #[test]
    fn work_is_for_those_that_attend_best() {
        let mut attendances = Attendances::new(3);
        let all: FreeSlots = (0..3).collect();
        let mut usable = |slot, attendance, free: &FreeSlots| {
            attendances.set(slot, attendance);
            let mut usable = Vec::new();
            attendances.due(free, |free| {
                usable.extend(free.iter());
                Due::Nothing
            });
            usable
        };
        assert_eq!(usable(0, Here, &all), [0, 1, 2]);
        assert_eq!(usable(0, Gone, &all), [1, 2]);
        assert_eq!(usable(1, Coming, &all), [2]);
        assert_eq!(usable(1, Coming, &FreeSlots::only(0)), [0; 0]);
        assert_eq!(usable(2, Gone, &all), [1]);
        assert_eq!(usable(1, Gone, &all), [0, 1, 2]);
        assert_eq!(usable(0, Here, &all), [0]);
    }
}
