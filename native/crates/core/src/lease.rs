//! The right to run one slot of a model, and what running it means.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use crate::handover::Begin;
use crate::runner::Desk;
use crate::scheduler::{Action, Next};
use crate::{Batch, Placement, Runner, Slot};

/// Takes a second lease when one io thread leaves a whole batch behind. A driver that does not want
/// it drops it, and an instance thread takes over.
pub trait Drivers: Send + Sync {
    fn offer(&self, lease: Lease);
}

/// The right to run one slot.
pub struct Lease {
    runner: Arc<Runner>,
    slot: Option<Slot>,
}

pub enum Step {
    /// A batch ran and more is due. An io thread looks after its connections before the next.
    Again(Lease),
    Done,
}

impl Lease {
    pub(crate) fn new(runner: Arc<Runner>, slot: Slot) -> Self {
        Self { runner, slot: Some(slot) }
    }

    /// Runs at most one batch.
    pub fn run(mut self) -> Step {
        let Some(slot) = self.slot.take() else {
            return Step::Done;
        };
        let runner = self.runner.clone();
        let ledger = &runner.ledger;
        let started = ledger.clock.now();
        let mut dropped = Vec::new();
        let begin = runner.handover.begin(started, slot, |desk, slot| {
            let next: Next = desk.scheduler.next(started, slot.index);
            dropped = next.dropped;
            let Action::Run(entries) = next.action else {
                return None;
            };
            let sequence = desk.next_sequence;
            desk.next_sequence += 1;
            Some((entries, sequence, desk.gate.wants_processor_time()))
        });
        for (entry, error) in dropped {
            ledger.end_in_queue(entry, error);
        }
        let Begin::Run((entries, sequence, meter), mut slot, second) = begin else {
            return Step::Done;
        };
        let batch = Batch::new(ledger.clone(), entries, sequence, started);
        if let Some(second) = second {
            let second = runner.lease(second);
            if let Some(drivers) = &runner.drivers {
                drivers.offer(second);
            }
        }
        // Not to be held beyond the slot's return: the last one to hold an engine drops it.
        let engine = slot.engine.clone();
        let processor_before = meter.then(|| ledger.clock.processor_time());
        let executed = catch_unwind(AssertUnwindSafe(|| engine.execute(&mut slot, batch)));
        let processor = processor_before.map(|before| ledger.clock.processor_time().saturating_sub(before));
        drop(engine);
        if executed.is_err() {
            // What the engine kept may be half written.
            slot = Slot::new(slot.index, slot.engine);
        }
        let ended = ledger.clock.now();
        let took = ended.saturating_duration_since(started);
        let done = |desk: &mut Desk, slot: &Slot| {
            desk.scheduler.done(slot.index);
            desk.gate.record(took, processor) == Placement::Inline
        };
        match runner.handover.finish(ended, slot, done) {
            Some(slot) => {
                self.slot = Some(slot);
                Step::Again(self)
            }
            None => Step::Done,
        }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if let Some(slot) = self.slot.take() {
            self.runner.handover.give_back(slot, self.runner.ledger.clock.now());
        }
    }
}
