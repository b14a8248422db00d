//! A bounded queue towards one thread or event loop, with one wake-up for a burst.
//!
//! Any thread pushes; one thread drains. The wake callback runs only when the inbox was empty, so
//! whatever arrives before the drain costs no further wake-up.

use crate::sync::{Mutex, MutexGuard, lock};

pub struct Inbox<T> {
    items: Mutex<Vec<T>>,
    capacity: usize,
    wake: Box<dyn Fn() + Send + Sync>,
}

/// The item comes back to the pusher, who decides what becomes of it.
pub struct InboxFull<T>(pub T);

impl<T> Inbox<T> {
    pub fn new(capacity: usize, wake: impl Fn() + Send + Sync + 'static) -> Self {
        Self { items: Mutex::new(Vec::new()), capacity, wake: Box::new(wake) }
    }

    pub fn push(&self, item: T) -> Result<(), InboxFull<T>> {
        let items = lock(&self.items);
        if items.len() >= self.capacity {
            return Err(InboxFull(item));
        }
        self.append(items, item);
        Ok(())
    }

    /// Takes what the reader itself asked for, an answer say: bounded by its own requests in flight.
    pub fn push_owed(&self, item: T) {
        self.append(lock(&self.items), item);
    }

    fn append(&self, mut items: MutexGuard<'_, Vec<T>>, item: T) {
        let was_empty = items.is_empty();
        items.push(item);
        drop(items);
        if was_empty {
            (self.wake)();
        }
    }

    /// Swaps everything that has arrived into `into`, which must be empty and lends its memory to
    /// the next burst.
    pub fn drain(&self, into: &mut Vec<T>) {
        debug_assert!(into.is_empty());
        std::mem::swap(&mut *lock(&self.items), into);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn a_burst_costs_one_wake_up_and_a_full_inbox_gives_back() {
        let wakes = Arc::new(AtomicUsize::new(0));
        let counter = wakes.clone();
        let inbox = Inbox::new(3, move || {
            counter.fetch_add(1, Ordering::Relaxed);
        });
        let mut burst = Vec::new();
        for round in 1..=2 {
            for item in 0..3 {
                assert!(inbox.push(item).is_ok());
            }
            assert!(matches!(inbox.push(9), Err(InboxFull(9))));
            inbox.push_owed(3);
            inbox.drain(&mut burst);
            assert_eq!(burst, [0, 1, 2, 3]);
            burst.clear();
            assert_eq!(wakes.load(Ordering::Relaxed), round);
        }
    }
}
