//! Keeps answers in the order of their batches, for models that ask for it.
//!
//! Batches are numbered as they leave the queue, under its lock. Mail of a batch waits here until
//! every earlier batch has finished. Delivery happens under this lock: otherwise two threads that
//! leave it in order could still deliver out of order.

use std::collections::BTreeMap;

use crate::outbox::Outbox;
use crate::sync::{Mutex, lock};

#[derive(Default)]
pub(crate) struct Ordering {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    next: u64,
    held: BTreeMap<u64, Held>,
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
        let mut guard = lock(&self.state);
        let State { next, held: waiting } = &mut *guard;
        let held = waiting.entry(sequence).or_default();
        held.outbox.append(outbox);
        held.ended += ended;
        held.of = of;
        while let Some(first) = waiting.get_mut(next) {
            std::mem::take(&mut first.outbox).deliver();
            if first.ended < first.of {
                break;
            }
            waiting.remove(next);
            *next += 1;
        }
    }
}
