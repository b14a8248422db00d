//! Keeps answers in the order of their batches, for models that ask for it.
//!
//! Batches are numbered as they leave the queue, under its lock. Mail of a batch waits here until every earlier batch
//! has finished: until each of its requests has ended, or nobody waits for it any more. Mail is put in order under the
//! lock here and delivered without it, by one thread at a time: whoever passes mail while another thread delivers leaves
//! it to that one. So a delivery may pass mail again from inside.
//!
//! Whoever delivers has not counted its own request as ended yet, or holds the count up: when no request is inside any
//! more, all mail has been delivered. Checked by the loom tests.

use std::collections::{BTreeMap, HashSet};

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
    /// Of requests that nobody waits for, of batches that others have passed.
    late: Outbox,
    /// A thread is about to look for what is next.
    delivering: bool,
}

struct Held {
    outbox: Outbox,
    /// The numbers of the requests that others wait for.
    open: HashSet<u64>,
}

impl Ordering {
    /// The batch with this number has these requests. To be called before anything else about it.
    pub(crate) fn begin(&self, sequence: u64, requests: impl Iterator<Item = u64>) {
        let held = Held { outbox: Outbox::default(), open: requests.collect() };
        lock(&self.state).held.insert(sequence, held);
    }

    /// Mail of the batch with this number, in which these requests have ended.
    pub(crate) fn pass(&self, sequence: u64, outbox: Outbox, ended: &[u64]) {
        self.change(|state| match state.held.get_mut(&sequence) {
            Some(held) => {
                held.outbox.append(outbox);
                for number in ended {
                    held.open.remove(number);
                }
            }
            None => state.late.append(outbox),
        });
    }

    /// Nobody waits for this request any more, so that no other one waits for its end.
    pub(crate) fn give_up(&self, sequence: u64, request: u64) {
        self.change(|state| {
            if let Some(held) = state.held.get_mut(&sequence) {
                held.open.remove(&request);
            }
        });
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        let mut state = lock(&self.state);
        change(&mut state);
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
        let mut next = std::mem::take(&mut self.late);
        while let Some(first) = self.held.get_mut(&self.next) {
            next.append(std::mem::take(&mut first.outbox));
            if !first.open.is_empty() {
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
