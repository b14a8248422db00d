//! The caller's hold on a request that it has submitted.

use std::sync::Arc;
use std::time::Instant;

use crate::{Claim, Error, Runner};

/// A request's place, held by whoever waits for the answer.
pub struct Ticket {
    pub(crate) runner: Arc<Runner>,
    pub(crate) number: u64,
    pub(crate) claim: Arc<Claim>,
    /// When to call [`Ticket::expire`].
    pub expires: Option<Instant>,
    /// When to call it again, for a request that was executing by then.
    pub deadline: Option<Instant>,
}

impl Ticket {
    /// The caller is gone. Frees the queue place at once; an executing request is told. False when
    /// the answer is already on its way.
    pub fn cancel(&self) -> bool {
        if !self.claim.cancel() {
            return false;
        }
        if !self.leave_queue(Error::cancelled()) {
            self.leave_run();
        }
        true
    }

    /// To be called once [`Ticket::expires`] has come. A queued request ends now. An executing one is
    /// given up only when its own deadline has passed; then this answers true, and no one needs to
    /// wait for its end.
    pub fn expire(&self) -> bool {
        if self.leave_queue(Error::expired()) {
            return false;
        }
        let past = |deadline| self.runner.now() >= deadline;
        let given_up = self.deadline.is_some_and(past) && self.claim.expire();
        if given_up {
            self.leave_run();
        }
        given_up
    }

    /// Whether an answer cannot be sent before another one is taken.
    pub fn is_full(&self) -> bool {
        self.claim.account.is_waited_for()
    }

    fn leave_run(&self) {
        let now = self.runner.now();
        self.runner.handover.with(|state| state.runs.abandon(self.number, now));
    }

    fn leave_queue(&self, error: Error) -> bool {
        let entry = self.runner.handover.with(|state| state.scheduler.cancel(self.number));
        let left = entry.is_some();
        if let Some(entry) = entry {
            self.runner.ledger.end_in_queue(entry.request, error);
            self.runner.end_useless_waits();
        }
        left
    }
}
