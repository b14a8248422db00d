//! The requests of a batch, each by itself.

use std::time::Instant;

use crate::{Batch, Plan, Seat};

impl Batch {
    /// The next open request as a batch of its own, which `begin` hears of by its number. Those that nobody
    /// waits for any more end here.
    pub(crate) fn next_alone(&mut self, mut begin: impl FnMut(u64, Instant)) -> Option<Self> {
        loop {
            let now = self.ledger.clock.now();
            let index = self.seats.iter().position(|seat| seat.entry.is_some())?;
            begin(self.seats[index].entry.as_ref()?.number, now);
            // Whoever gives it up from here on finds that it has begun.
            if let Some(error) = self.request(index).and_then(|request| request.useless(now)) {
                self.end(index, Err(error));
                continue;
            }
            let seat = Seat::from(self.seats[index].entry.take()?);
            let plan = Plan { seats: vec![seat], inputs: Vec::new() };
            self.open -= 1;
            let mut alone = Self::part(self.ledger.clone(), plan, self.sequence, now);
            alone.dequeued = self.dequeued;
            return Some(alone);
        }
    }

    /// Its requests, each as a batch of its own, which may outlive this one and bounds nothing that an engine may owe. For
    /// an engine that has nothing to join.
    pub fn take_apart(mut self) -> impl Iterator<Item = Self> {
        std::iter::from_fn(move || self.next_alone(|_, _| ()))
    }
}
