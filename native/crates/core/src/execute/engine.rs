//! What executes batches: one trait, many frameworks.

use std::any::Any;
use std::sync::Arc;

use crate::execute::handover::Indexed;
use crate::{Attendee, Batch, Error, Readiness, Scratch, SlotToken, Tensor, Texts};

/// What an engine can do, asked once when its runner starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capability {
    /// Several slots may execute on this one object at the same time.
    pub concurrent: bool,
    /// Short batches may run on an io thread: the engine computes on the calling thread alone and
    /// takes no lock of another language.
    pub inline: bool,
    /// It never blocks, see [`Engine::begin`]: any thread may call it, and it needs none of its own.
    pub keeps_slots: bool,
}

/// Contract: every request of the batch is answered, now or later, from any thread. A batch dropped
/// unanswered, by an early return or a panic, answers its requests with an error. An engine that is not
/// [`Capability::concurrent`] is never called by two slots at once.
///
/// A failure that the data of a single request may have caused goes to [`Slot::fail`] before the slot
/// is given back: the requests are then executed once more, each alone. Any other failure goes to
/// [`Batch::fail`]: the engine itself is broken or closed, it keeps state between batches, or it
/// answers later.
pub trait Engine: Send + Sync + 'static {
    fn capability(&self) -> Capability;

    /// Asked once, when its runner starts; `None`: it always can. What it answers with does not keep the engine alive.
    fn readiness(&self) -> Option<Arc<dyn Readiness>> {
        None
    }

    /// Asked once, when its runner starts, of an engine that takes texts. What it answers with does not keep the engine
    /// alive.
    fn texts(&self) -> Option<Arc<dyn Texts>> {
        None
    }

    /// How many instances may share it, however many its specification has: [`Runner::resize`](crate::Runner::resize).
    /// 0: as many as it was made for.
    fn most_instances(&self) -> usize {
        0
    }

    /// Told before there are so many, [`Self::most_instances`] at most. Where it fails, there are as many as before.
    fn make_room(&self, _instances: usize) -> Result<(), Error> {
        Ok(())
    }

    /// Told once, when its runner has started, to an engine with [`Capability::keeps_slots`]: it may say there whether
    /// it has somebody to execute. Until then it does.
    fn attend(&self, _attendee: Attendee) {}

    /// Executes a batch. Returning means that the slot is free, not that all is answered; but an engine
    /// that answers later should be one that keeps its slots, since nothing else bounds what it owes.
    fn execute(&self, slot: &mut Slot, batch: Batch);

    /// What an engine with [`Capability::keeps_slots`] is asked instead. It returns at once; the slot is
    /// free when the token is dropped. Batches that are still unanswered then are bounded: at
    /// [`UNANSWERED_PER_SLOT`](crate::UNANSWERED_PER_SLOT) for each slot no further batch begins, but those of
    /// [`Slot::fail`], which are executed once more.
    fn begin(&self, mut slot: SlotToken, batch: Batch) {
        self.execute(&mut slot, batch);
    }

    /// Ends what a slot executes as soon as the engine can; the batch goes to [`Slot::fail`] then. False
    /// where the engine cannot. Called from any thread, under a lock that answers and tokens may take, too: it must
    /// not wait, and takes no lock under which the engine ends a request or drops a token.
    fn end_run(&self, _slot: usize) -> bool {
        false
    }

    /// The same where the model goes, so that nothing is executed on the slot any more.
    fn stop_run(&self, slot: usize) -> bool {
        self.end_run(slot)
    }

    /// Ends the batches that an engine with [`Capability::keeps_slots`] has not answered, where it has any, though it may
    /// have given their slots back: the model goes. Called under no lock, and it does not wait.
    fn stop_unanswered(&self) {}

    /// The model goes, and nothing is executed any more: what takes long may begin. Called under no lock, and it does not
    /// wait.
    fn begin_to_leave(&self) {}

    /// Takes [`Engine::end_run`] back before the slot's next run, whether or not it has been obeyed.
    fn revoke_end(&self, _slot: usize) {}
}

/// One instance of a model: where it runs and what it keeps between batches.
pub struct Slot {
    pub index: usize,
    /// Memory for joined inputs, reused from batch to batch.
    pub scratch: Scratch,
    /// Whatever the engine wants to keep for this slot.
    pub state: Option<Box<dyn Any + Send>>,
    pub(crate) engine: Arc<dyn Engine>,
    /// What becomes of it is still to be settled.
    pub(crate) failed: Option<Box<(Batch, Error)>>,
}

impl Indexed for Slot {
    fn index(&self) -> usize {
        self.index
    }

    fn rest(&mut self) {
        self.scratch = Scratch::default();
    }
}

impl Slot {
    pub fn new(index: usize, engine: Arc<dyn Engine>) -> Self {
        Self { index, scratch: Scratch::default(), state: None, engine, failed: None }
    }

    /// What the engine kept may be half written.
    pub(crate) fn forget_state(&mut self) {
        *self = Self::new(self.index, self.engine.clone());
    }

    /// Takes back a batch that failed on this slot, perhaps because of the data of one of its
    /// requests: they are executed once more, each alone, and one that fails then ends with its own error.
    /// Where that cannot be, `error` ends them all: the slot has state or has taken one back already, a
    /// response has left, or the request was alone.
    pub fn fail(&mut self, batch: Batch, error: &Error) {
        if self.state.is_none() && self.failed.is_none() && batch.may_run_again() {
            self.failed = Some(Box::new((batch, error.clone())));
        } else {
            batch.fail(error);
        }
    }

    /// Answers a batch as [`Batch::scatter`] does. Outputs that have not as many rows as the batch are a
    /// failure that the data of one request may have caused, see [`Self::fail`].
    pub fn scatter(&mut self, batch: Batch, outputs: &[Option<Tensor>]) {
        let spec = batch.shared_spec();
        let rows = batch.rows() as i64;
        match batch.split(&spec, outputs) {
            Ok(shares) => batch.answer(shares),
            Err(error) if outputs.iter().flatten().any(|output| output.shape.first() != Some(&rows)) => {
                self.fail(batch, &error);
            }
            Err(error) => batch.fail(&error),
        }
    }
}
