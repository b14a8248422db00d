//! What executes batches: one trait, many frameworks.

use std::any::Any;
use std::sync::Arc;

use crate::{Batch, Scratch};

/// What an engine can do, asked once when its runner starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capability {
    /// Several slots may execute on this one object at the same time.
    pub concurrent: bool,
    /// Short batches may run on an io thread: the engine computes on the calling thread alone and
    /// takes no lock of another language.
    pub inline: bool,
    /// A request may get any number of responses.
    pub decoupled: bool,
}

/// Contract: `execute` answers every request of the batch, now or later, from any thread. Returning
/// means that the slot is free, not that all is answered. A batch dropped unanswered, by an early
/// return or a panic, answers its requests with an error. An engine that is not
/// [`Capability::concurrent`] is never called by two slots at once.
pub trait Engine: Send + Sync + 'static {
    fn capability(&self) -> Capability;

    fn execute(&self, slot: &mut Slot, batch: Batch);
}

/// One instance of a model: where it runs and what it keeps between batches.
pub struct Slot {
    pub index: usize,
    /// Memory for joined inputs, reused from batch to batch.
    pub scratch: Scratch,
    /// Whatever the engine wants to keep for this slot.
    pub state: Option<Box<dyn Any + Send>>,
    pub(crate) engine: Arc<dyn Engine>,
}

impl Slot {
    pub fn new(index: usize, engine: Arc<dyn Engine>) -> Self {
        Self { index, scratch: Scratch::default(), state: None, engine }
    }
}
