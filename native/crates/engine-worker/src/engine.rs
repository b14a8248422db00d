//! Executes the core's batches in another process.

use std::sync::Arc;

use kushi_core::{Attendee, Batch, Capability, Engine, Error, ErrorKind, Readiness, Slot, SlotToken};

use crate::Worker;

/// One instance, in a process of its own.
pub struct WorkerEngine {
    worker: Worker,
}

impl WorkerEngine {
    pub fn new(worker: Worker) -> Self {
        Self { worker }
    }
}

impl Engine for WorkerEngine {
    fn capability(&self) -> Capability {
        Capability { concurrent: false, inline: false, keeps_slots: true }
    }

    fn readiness(&self) -> Option<Arc<dyn Readiness>> {
        Some(self.worker.readiness())
    }

    fn attend(&self, attendee: Attendee) {
        self.worker.attend(attendee);
    }

    /// Never called: the slot is kept until the worker gives it back.
    fn execute(&self, _slot: &mut Slot, batch: Batch) {
        batch.fail(&Error::new(ErrorKind::Internal, "a worker keeps its slot"));
    }

    fn begin(&self, token: SlotToken, batch: Batch) {
        self.worker.begin(token, batch);
    }

    /// Its process ends, with all that the model has learnt: not for a caller that has gone.
    fn stop_run(&self, _slot: usize) -> bool {
        self.worker.stop();
        true
    }

    fn begin_to_leave(&self) {
        self.worker.close();
    }

    fn stop_unanswered(&self) {
        if self.worker.owes_answers() {
            self.worker.stop();
        }
    }
}
