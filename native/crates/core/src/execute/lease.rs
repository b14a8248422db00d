//! The right to run one slot of a model, and what running it means.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::batch::unanswered::{OneUnanswered, Unanswered};
use crate::execute::handover::Begin;
use crate::execute::runner::RunnerState;
use crate::execute::runs::Ending;
use crate::schedule::scheduler::{Action, Next};
use crate::{Afterwards, Batch, Error, Placement, Plan, Runner, Slot, SlotToken, State};

/// Takes a second lease when one io thread leaves a whole batch behind. A driver that does not want
/// it drops it, and a thread of the model takes over.
pub trait Drivers: Send + Sync {
    fn offer(&self, lease: Lease);
}

/// The right to run one slot.
pub struct Lease {
    runner: Arc<Runner>,
    slot: Option<Slot>,
    /// Whoever drives it has nothing else to do.
    of_instance_thread: bool,
}

enum Work {
    New(Plan, u64),
    /// Its run was ended.
    Moved(Box<Batch>),
}

/// What a slot is to execute.
struct BegunBatch {
    slot: Slot,
    batch: Batch,
    /// Where engines keep their slots.
    unanswered: Option<OneUnanswered>,
    /// Whether its time on a processor is to be measured.
    is_metered: bool,
}

pub enum Step {
    /// A batch ran and more is due. An io thread looks after its connections before the next.
    Again(Lease),
    Done,
}

impl Lease {
    pub(crate) fn new(runner: Arc<Runner>, slot: Slot) -> Self {
        Self { runner, slot: Some(slot), of_instance_thread: false }
    }

    pub(crate) fn of_instance_thread(runner: Arc<Runner>, slot: Slot) -> Self {
        Self { runner, slot: Some(slot), of_instance_thread: true }
    }

    pub(crate) fn for_io_thread(mut self) -> Self {
        self.of_instance_thread = false;
        self
    }

    /// The lease of a slot that has come back after a batch, if there is more for it.
    pub(crate) fn after(runner: &Arc<Runner>, mut slot: Slot, started: Instant) -> Option<Self> {
        let moved = take_back(runner, &mut slot);
        let slot = finish(runner, slot, started, None, moved)?;
        Some(Self::new(runner.clone(), slot))
    }

    /// Runs it on this thread, once that holds no slot and no lock of the core; see [`Afterwards`]. Where no scope is
    /// open, others run it.
    pub fn run_afterwards(self) {
        if let Err(lease) = Afterwards::lead(self) {
            lease.leave_to_others();
        }
    }

    /// For a thread that does not lead itself.
    pub(crate) fn leave_to_others(self) {
        if let Some(drivers) = self.runner.drivers.clone() {
            drivers.offer(self);
        }
    }

    /// Runs at most one batch, and what follows from its answers.
    pub fn run(self) -> Step {
        let _afterwards = Afterwards::open();
        self.run_batch()
    }

    fn run_batch(mut self) -> Step {
        let Some(slot) = self.slot.take() else {
            return Step::Done;
        };
        let runner = self.runner.clone();
        let Some(slot) = runner.permitted(slot) else {
            return Step::Done;
        };
        let started = runner.ledger.clock.now();
        let Some(BegunBatch { mut slot, mut batch, unanswered, is_metered }) = self.begin(slot, started)
        else {
            return Step::Done;
        };
        if runner.keeps_slots {
            batch.set_unanswered(unanswered);
            let back = begin_once(&runner, slot, batch, started);
            let lease = back.and_then(|slot| Self::after(&runner, slot, started));
            return lease.map_or(Step::Done, Step::Again);
        }
        let processor_time = || runner.ledger.clock.processor_time();
        let before = is_metered.then(processor_time);
        let moved = if batch.open() > 0 { self.execute(&mut slot, batch) } else { Vec::new() };
        let leaves = !moved.is_empty();
        let processor = before.map(|before| processor_time().saturating_sub(before));
        self.slot = finish(&runner, slot, started, processor, moved);
        // What has moved is left to an instance thread, and the slot with it.
        if self.slot.is_some() && !leaves { Step::Again(self) } else { Step::Done }
    }

    /// Takes the next batch for this slot, which goes home where there is none. What has ended in the queue is answered.
    #[inline]
    fn begin(&self, slot: Slot, started: Instant) -> Option<BegunBatch> {
        let Self { runner, .. } = self;
        let index = slot.index;
        // On a thread that has other work too.
        let inline = !self.of_instance_thread && !runner.keeps_slots;
        let mut dropped = Vec::new();
        let mut useless_waits = Vec::new();
        let begin = runner.handover.begin(started, slot, |state, slot| {
            state.clear_marks(slot.index);
            let work = if !inline && let Some(batch) = state.take_moved(slot.index) {
                state.runs.begin(slot, batch.numbers(), started, inline);
                Work::Moved(batch)
            } else if state.is_held_back() || state.is_left_to_others(slot.index) {
                return None;
            } else {
                let next: Next = state.scheduler.next(started, slot.index);
                dropped = next.dropped;
                let Action::Run(plan) = next.action else {
                    return None;
                };
                let sequence = state.next_sequence;
                state.next_sequence += 1;
                state.runs.begin(slot, plan.numbers(), started, inline);
                Work::New(plan, sequence)
            };
            let unanswered = state.unanswered.as_ref().map(Unanswered::begin);
            // This batch may be one too many for others to begin.
            useless_waits = state.useless_waits(started);
            Some((work, unanswered, state.gate.wants_processor_time()))
        });
        for (entry, error) in dropped {
            runner.ledger.end_in_queue(entry.request, error);
        }
        let Begin::Run((work, unanswered, is_metered), slot, second) = begin else {
            // Others may have waited for what had expired.
            runner.end_useless_waits();
            runner.permit_unused(index);
            return None;
        };
        runner.withdraw(useless_waits);
        let batch = self.batch(work, started);
        if let Some(second) = second {
            runner.lease(second).leave_to_others();
        }
        Some(BegunBatch { slot, batch, unanswered, is_metered })
    }

    #[inline]
    fn batch(&self, work: Work, started: Instant) -> Batch {
        match work {
            Work::New(plan, sequence) => {
                let batch = Batch::new(self.runner.ledger.clone(), plan, sequence, started);
                batch.let_others_pass();
                batch
            }
            Work::Moved(mut batch) => {
                let ended = batch.end_useless(started);
                if !ended.is_empty() {
                    let forget =
                        |state: &mut RunnerState| ended.into_iter().for_each(|it| state.runs.forget(it));
                    self.runner.handover.with(forget);
                }
                *batch
            }
        }
    }

    /// Executes a batch; one that fails because of its data, as far as the engine knows, request by request.
    /// Answers what is to be executed on an instance thread.
    fn execute(&self, slot: &mut Slot, batch: Batch) -> Vec<Batch> {
        execute_once(slot, batch);
        let Some((mut batch, error)) = slot.failed.take().map(|failed| *failed) else {
            return Vec::new();
        };
        match self.ending(slot) {
            Some(Ending::Moved) => return vec![batch],
            Some(why) => batch.fail(&why.error(&self.runner.spec().name)),
            None if batch.open() == 1 => batch.fail(&error),
            None => {
                log_once_more(&batch);
                let moved = self.execute_each_alone(slot, &mut batch);
                return moved.map_or_else(Vec::new, |alone| vec![alone, batch]);
            }
        }
        Vec::new()
    }

    /// Until one is to be executed on an instance thread, as are those behind it.
    fn execute_each_alone(&self, slot: &mut Slot, batch: &mut Batch) -> Option<Batch> {
        let begin = |slot: &Slot, number, now| {
            let inline = !self.of_instance_thread;
            self.runner.handover.with(|state| state.runs.begin(slot, std::iter::once(number), now, inline));
        };
        while let Some(alone) = batch.next_alone(|number, now| begin(slot, number, now)) {
            execute_once(slot, alone);
            let Some((alone, error)) = slot.failed.take().map(|failed| *failed) else {
                continue;
            };
            match self.ending(slot) {
                Some(Ending::Moved) => return Some(alone),
                Some(why) => alone.fail(&why.error(&self.runner.spec().name)),
                None => alone.fail(&error),
            }
        }
        None
    }

    fn ending(&self, slot: &Slot) -> Option<Ending> {
        self.runner.handover.with(|state| state.runs.ending(slot.index))
    }
}

/// After a batch. Answers the slot if there is more for it.
#[inline]
fn finish(
    runner: &Arc<Runner>,
    slot: Slot,
    started: Instant,
    processor: Option<Duration>,
    moved: Vec<Batch>,
) -> Option<Slot> {
    let ended = runner.ledger.clock.now();
    let took = ended.saturating_duration_since(started);
    let mut too_late = Vec::new();
    let index = slot.index;
    let slot = runner.handover.finish(ended, slot, |state, slot| {
        state.scheduler.done(slot.index);
        state.runs.finish(slot.index);
        if !moved.is_empty() && runner.state() == State::Failed {
            too_late = moved;
        } else {
            state.moved.extend(moved.into_iter().map(|batch| (slot.index, Box::new(batch))));
        }
        state.gate.record(took, processor) == Placement::Inline
    });
    for batch in too_late {
        batch.fail(&Error::shutting_down());
    }
    runner.permit_used(index, slot)
}

/// What failed on a slot that was kept, and is to be executed once more on it.
fn take_back(runner: &Runner, slot: &mut Slot) -> Vec<Batch> {
    let Some((mut batch, error)) = slot.failed.take().map(|failed| *failed) else {
        return Vec::new();
    };
    batch.set_unanswered(None);
    match runner.handover.with(|state| state.runs.ending(slot.index)) {
        Some(Ending::Moved) => return vec![batch],
        Some(why) => batch.fail(&why.error(&runner.spec().name)),
        None if batch.open() == 1 => batch.fail(&error),
        None => {
            log_once_more(&batch);
            return std::iter::from_fn(|| batch.next_alone(|_, _| ())).collect();
        }
    }
    Vec::new()
}

fn log_once_more(batch: &Batch) {
    let (model, requests) = (&batch.spec().name, batch.len());
    log::debug!(
        "a batch of model '{model}' failed: its {requests} requests are executed once more, each alone"
    );
}

/// Answers the slot if the engine gave it back before it returned, or had nothing to do.
fn begin_once(runner: &Arc<Runner>, slot: Slot, batch: Batch, started: Instant) -> Option<Slot> {
    if batch.open() == 0 {
        return Some(slot);
    }
    // Not to be held beyond the slot's return: the last one to hold an engine drops it.
    let engine = slot.engine.clone();
    let (token, stay) = SlotToken::new(runner.clone(), slot, started);
    // A panic drops the token, or somebody has it who will.
    let _ = catch_unwind(AssertUnwindSafe(|| engine.begin(token, batch)));
    drop(engine);
    stay.call_returned()
}

fn execute_once(slot: &mut Slot, batch: Batch) {
    // Not to be held beyond the slot's return: the last one to hold an engine drops it.
    let engine = slot.engine.clone();
    if catch_unwind(AssertUnwindSafe(|| engine.execute(slot, batch))).is_err() {
        slot.forget_state();
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if let Some(slot) = self.slot.take() {
            self.runner.handover.give_back(slot, self.runner.ledger.clock.now());
        }
    }
}
