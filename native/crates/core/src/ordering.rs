//! Keeps answers in the order of their batches, for models that ask for it.
//!
//! Batches are numbered as they leave the queue, under its lock. Mail of a batch waits here until every earlier batch
//! has finished. It is put in order under the lock here and delivered without it, by one thread at a time: whoever
//! passes mail while another thread delivers leaves it to that one. So a delivery may pass mail again from inside.
//!
//! Whoever delivers has not counted its own request as ended yet: when no request is inside any more, all mail has
//! been delivered. Checked by the loom tests.

use std::collections::BTreeMap;

use crate::outbox::Outbox;
use crate::sync::{Mutex, lock};

#[derive(Default)]
pub(crate) struct Ordering {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The first batch that has not finished.
    next: u64,
    held: BTreeMap<u64, Held>,
    /// A thread is about to look for what is next.
    delivering: bool,
}

#[derive(Default)]
struct Held {
    outbox: Outbox,
    ended: usize,
    of: usize,
}

impl Ordering {
    /// Mail of the batch with this number, in which so many requests `ended`, of all `of` that it has.
    pub(crate) fn pass(&self, sequence: u64, outbox: Outbox, ended: usize, of: usize) {
        let mut state = lock(&self.state);
        let held = state.held.entry(sequence).or_default();
        held.outbox.append(outbox);
        held.ended += ended;
        held.of = of;
        if std::mem::replace(&mut state.delivering, true) {
            return;
        }
        while let Some(outbox) = state.take_next() {
            drop(state);
            outbox.deliver();
            state = lock(&self.state);
        }
        state.delivering = false;
    }
}

impl State {
    /// What may leave now.
    fn take_next(&mut self) -> Option<Outbox> {
        let mut next = Outbox::default();
        while let Some(first) = self.held.get_mut(&self.next) {
            next.append(std::mem::take(&mut first.outbox));
            if first.ended < first.of {
                break;
            }
            self.held.remove(&self.next);
            self.next += 1;
        }
        (!next.is_empty()).then_some(next)
    }
}

#[cfg(all(test, loom))]
mod loom_tests;
