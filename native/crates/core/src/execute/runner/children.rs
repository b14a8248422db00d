//! Requests that are made on behalf of others: a drain waits for those, and so for these.

use std::sync::Arc;

use smallvec::SmallVec;

use crate::request::context::Pin;
use crate::{Batch, Context, Error, Runner, State};

impl Runner {
    /// For several requests that belong together and have no parent: a drain that begins after this takes all of them in.
    /// They get a context of this, whose span is that of `own`.
    pub fn keep(&self, own: &Context) -> Result<Context, Error> {
        let pin = self.handover.with(|_| match self.ledger.state() {
            State::Ready => Ok(Pin::new(&self.ledger)),
            _ => Err(Error::shutting_down()),
        })?;
        Ok(Context::pinning([pin]).below(own))
    }

    /// From now on a drain waits for what comes of this. On behalf of a request that was admitted: where a child would be
    /// taken in.
    pub(crate) fn pin(&self) -> Result<Pin, Error> {
        // Under the lock, as in `submit`.
        self.handover.with(|state| match self.ledger.state() {
            State::Ready => Ok(Pin::new(&self.ledger)),
            State::Draining if !state.closed => Ok(Pin::new(&self.ledger)),
            _ => Err(Error::shutting_down()),
        })
    }
}

impl Batch {
    /// As [`Batch::child_context`], for requests to these models: a drain of any of them that has not ended waits for it.
    /// Fails when one of them takes none any more.
    pub fn child_context_in(&self, index: usize, steps: &[Arc<Runner>]) -> Result<Context, Error> {
        let parent =
            self.request(index).filter(|_| !self.is_abandoned(index)).ok_or_else(Error::cancelled)?;
        let pins = steps.iter().map(|runner| runner.pin()).collect::<Result<SmallVec<[Pin; 4]>, _>>()?;
        Ok(Context::pinning(pins).below(&parent.context))
    }
}
