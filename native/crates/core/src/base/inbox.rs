//! A bounded queue towards one thread or event loop, with one wake-up for a burst.
//!
//! Any thread pushes; one thread drains. The wake callback runs only when the inbox was empty, so
//! whatever arrives before the drain costs no further wake-up. Checked by the loom tests.

use crate::base::sync::{Mutex, MutexGuard, lock};

pub struct Inbox<T> {
    items: Mutex<Items<T>>,
    capacity: usize,
    wake: Box<dyn Fn() + Send + Sync>,
}

struct Items<T> {
    waiting: Vec<T>,
    /// Those of them that the capacity bounds.
    pushed: usize,
    closed: bool,
}

/// The item comes back to the pusher, who decides what becomes of it.
pub struct InboxFull<T>(pub T);

impl<T> Inbox<T> {
    pub fn new(capacity: usize, wake: impl Fn() + Send + Sync + 'static) -> Self {
        let items = Items { waiting: Vec::new(), pushed: 0, closed: false };
        Self { items: Mutex::new(items), capacity, wake: Box::new(wake) }
    }

    pub fn push(&self, item: T) -> Result<(), InboxFull<T>> {
        let mut items = lock(&self.items);
        if items.closed || items.pushed >= self.capacity {
            return Err(InboxFull(item));
        }
        items.pushed += 1;
        self.append(items, item);
        Ok(())
    }

    /// Takes what the reader itself asked for, an answer say: bounded by its own requests in flight, and
    /// no reason to turn others away. Drops it once closed.
    pub fn push_owed(&self, item: T) {
        let items = lock(&self.items);
        if !items.closed {
            self.append(items, item);
        }
    }

    fn append(&self, mut items: MutexGuard<'_, Items<T>>, item: T) {
        let was_empty = items.waiting.is_empty();
        items.waiting.push(item);
        drop(items);
        if was_empty {
            (self.wake)();
        }
    }

    /// Whether nothing waits to be drained.
    pub fn is_empty(&self) -> bool {
        lock(&self.items).waiting.is_empty()
    }

    /// Swaps everything that has arrived into `into`, which must be empty and lends its memory to
    /// the next burst.
    pub fn drain(&self, into: &mut Vec<T>) {
        debug_assert!(into.is_empty());
        let mut items = lock(&self.items);
        items.pushed = 0;
        std::mem::swap(&mut items.waiting, into);
    }

    /// Nobody reads it any more: drops what is here, and what still comes is not kept.
    pub fn close(&self) {
        let left = {
            let mut items = lock(&self.items);
            items.closed = true;
            std::mem::take(&mut items.waiting)
        };
        drop(left);
    }
}

#[cfg(all(test, loom))]
mod loom_tests;
#[cfg(all(test, not(loom)))]
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
            inbox.push_owed(7);
            for item in 0..3 {
                assert!(inbox.push(item).is_ok(), "what is owed takes no place");
            }
            assert!(matches!(inbox.push(9), Err(InboxFull(9))));
            inbox.push_owed(3);
            inbox.drain(&mut burst);
            assert_eq!(burst, [7, 0, 1, 2, 3]);
            burst.clear();
            assert_eq!(wakes.load(Ordering::Relaxed), round);
        }
    }

    #[test]
    fn a_closed_inbox_keeps_nothing() {
        let inbox = Inbox::new(3, || ());
        let item = Arc::new(());
        assert!(inbox.push(item.clone()).is_ok());
        inbox.close();
        assert!(inbox.push(item.clone()).is_err());
        inbox.push_owed(item.clone());
        assert_eq!(Arc::strong_count(&item), 1);
    }
}
