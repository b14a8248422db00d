//! What a worker tells its runner of its process: whether it is there, on its way, or could not be started.

use std::sync::PoisonError;

use kushi_core::{Attendance, Attendee};

use crate::Worker;
use crate::state::{Phase, WorkerState};
use crate::worker::Shared;

impl Worker {
    /// From now on this one hears of it.
    pub(crate) fn attend(&self, attendee: Attendee) {
        *self.shared.attendee.lock().unwrap_or_else(PoisonError::into_inner) = Some(attendee);
        self.shared.tell_attendance();
    }
}

impl Shared {
    /// To be called without the lock of the state, after each change of it that may matter.
    pub(crate) fn tell_attendance(&self) {
        let attendee = self.attendee.lock().unwrap_or_else(PoisonError::into_inner);
        let attendance = self.state().attendance();
        let told = attendee.as_ref().and_then(|attendee| attendee.tell(attendance));
        drop(attendee);
        drop(told);
    }
}

impl WorkerState {
    fn attendance(&self) -> Attendance {
        match self.phase {
            // The next process takes what comes.
            Phase::Ready if self.share.is_used_up() => Attendance::Coming,
            Phase::Ready => Attendance::Here,
            _ if self.has_failed => Attendance::Gone,
            _ => Attendance::Coming,
        }
    }
}
