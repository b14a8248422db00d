//! When a request that waits for its answer has run out of time.

use std::time::Instant;

use crate::Ticket;

/// When to look at a request again. It may expire twice: once its queue has lost patience, and once its own
/// deadline has come while it was executed.
#[derive(Clone, Copy, Debug, Default)]
pub struct Alarm(Option<Instant>);

impl Alarm {
    pub fn of(ticket: &Ticket) -> Self {
        Self(ticket.expires)
    }

    /// `None`: never.
    pub fn when(self) -> Option<Instant> {
        self.0
    }

    /// To be called once that time has come. Answers true when nobody needs to wait for the end of the request any
    /// more; otherwise the end is on its way, or there is another time to look.
    pub fn ring(&mut self, ticket: &Ticket) -> bool {
        let rung = self.0.take();
        if ticket.expire() {
            return true;
        }
        self.0 = ticket.deadline.filter(|&deadline| rung.is_some_and(|rung| deadline > rung));
        false
    }
}
