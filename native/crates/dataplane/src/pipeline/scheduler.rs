//! Hands out all that waits: an ensemble joins nothing itself, and its steps have queues of their own.

use std::time::Instant;

use kushi_core::{Action, Backlog, Due, Entry, Error, FreeSlots, Next, Queue, QueueSpec, Scheduler};

pub(crate) struct AllAtOnce {
    queue: Queue,
}

impl AllAtOnce {
    pub(crate) fn new(queue: &QueueSpec) -> Self {
        Self { queue: Queue::new(queue) }
    }
}

impl Scheduler for AllAtOnce {
    fn admit(&mut self, entry: Entry) -> Result<(), (Error, Entry)> {
        self.queue.admit(entry)
    }

    fn is_full(&self, bytes: usize) -> bool {
        self.queue.is_full(bytes)
    }

    fn next(&mut self, now: Instant, _slot: usize) -> Next {
        let dropped = self.queue.settle(now);
        let action = match self.queue.backlog().requests {
            0 => Action::Idle,
            all => Action::Run(self.queue.take(all)),
        };
        Next { action, dropped }
    }

    fn due(&self, _now: Instant, _free: &FreeSlots) -> Due {
        match self.queue.backlog().requests {
            0 => Due::Nothing,
            _ => Due::Any { whole_batch: false },
        }
    }

    fn done(&mut self, _slot: usize) {}

    fn cancel(&mut self, number: u64) -> Option<Entry> {
        self.queue.cancel(number)
    }

    fn clear(&mut self) -> Vec<Entry> {
        self.queue.clear()
    }

    fn backlog(&self) -> Backlog {
        self.queue.backlog()
    }

    fn oldest(&self) -> Option<Instant> {
        self.queue.oldest()
    }
}
