//! One inference, from the model that is asked to its place in a queue.

use std::sync::Arc;
use std::time::Instant;

use kushi_core::{Admission, Error, Lease, ModelSpec, Request, Runner, Ticket};

use crate::Registry;

/// A request on its way to a model version. Where a reload takes that version's place, it goes on to the next one:
/// no request is refused because of a reload.
pub struct Inference {
    runner: Arc<Runner>,
    /// As it was asked for; `None`: the latest.
    version: Option<u64>,
}

/// What became of a request that was handed in.
pub enum Submitted {
    /// It waits for its answer. With a lease, whoever asks drives it, or leaves it to others.
    Queued(Ticket, Option<Lease>),
    /// It came back: another version serves now. It has to be bound to [`Inference::spec`] again, and handed in again.
    Moved(Box<Request>),
}

impl Inference {
    /// Fails when no such model serves.
    pub fn find(registry: &Registry, model: &str, version: Option<u64>) -> Result<Self, Error> {
        Ok(Self::of(registry.find(model, version)?, version))
    }

    /// The same with a version that has been found.
    pub(crate) fn of(runner: Arc<Runner>, version: Option<u64>) -> Self {
        Self { runner, version }
    }

    /// What a request is bound to.
    pub fn spec(&self) -> &Arc<ModelSpec> {
        self.runner.spec()
    }

    /// Says that a request of at least so many bytes is being received. Fails when there will be no place for it: then
    /// it need not come.
    pub fn announce(&self, arrived: Instant, bytes: usize) -> Result<(), Error> {
        self.runner.announce(arrived, bytes)
    }

    /// Hands in a request that is bound to [`Inference::spec`]. Fails when the model takes no requests.
    pub fn submit(
        &mut self,
        registry: &Registry,
        request: impl Into<Box<Request>>,
    ) -> Result<Submitted, Error> {
        let (error, request) = match self.runner.submit(request) {
            Ok((ticket, Admission::Lead(lease))) => return Ok(Submitted::Queued(ticket, Some(lease))),
            Ok((ticket, Admission::Queued)) => return Ok(Submitted::Queued(ticket, None)),
            Err(refused) => refused,
        };
        match registry.moved(&self.runner, self.version) {
            Some(next) => self.runner = next?,
            None => return Err(error.of_request(&request.id)),
        }
        Ok(Submitted::Moved(request))
    }
}
