//! How a drain learns that what it waits for has ended.
//!
//! Whoever ends something writes its count and then reads whether a drain has begun. A drain says that it has begun
//! and then reads the counts. Only sequential consistency keeps both from missing the other. Checked by the loom
//! tests, on this very module.

use std::time::Instant;

use crate::base::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use crate::base::sync::{Condvar, Mutex, lock};

/// What has begun and has not ended.
#[derive(Debug, Default)]
pub struct Count(AtomicUsize);

impl Count {
    pub fn begin(&self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }

    /// Begins where nothing else has; answers whether it did.
    pub fn begin_only_one(&self) -> bool {
        self.0.compare_exchange(0, 1, Ordering::SeqCst, Ordering::Relaxed).is_ok()
    }

    /// Answers how many are left. A drain that may wait for them is told afterwards: [`Drain::something_ended`].
    pub fn end(&self, ended: usize) -> usize {
        self.0.fetch_sub(ended, Ordering::SeqCst) - ended
    }

    pub fn get(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

/// Waits until counts are zero.
#[derive(Debug, Default)]
pub struct Drain {
    begun: AtomicBool,
    waiting: Mutex<()>,
    ended: Condvar,
}

impl Drain {
    /// From now on, ends are told. Before [`Drain::wait_until_none`].
    pub fn begin(&self) {
        self.begun.store(true, Ordering::SeqCst);
    }

    pub fn has_begun(&self) -> bool {
        self.begun.load(Ordering::SeqCst)
    }

    /// Counts one more if no drain has begun: a drain that begins later waits for it. False: it is not counted.
    pub fn admit(&self, count: &Count) -> bool {
        count.begin();
        let admitted = !self.has_begun();
        if !admitted {
            count.end(1);
            self.something_ended();
        }
        admitted
    }

    /// Tells a drain to look again.
    pub fn something_ended(&self) {
        if self.has_begun() {
            // A drain that has looked and does not sleep yet holds the lock.
            drop(lock(&self.waiting));
            self.ended.notify_all();
        }
    }

    /// Waits until `left` is zero, looking again whenever something ends; answers what is left.
    pub fn wait_until_none(&self, left: impl Fn() -> usize, until: Instant) -> usize {
        let mut waiting = lock(&self.waiting);
        loop {
            let pause = until.saturating_duration_since(Instant::now());
            let left = left();
            if left == 0 || pause.is_zero() {
                return left;
            }
            let woken = self.ended.wait_timeout(waiting, pause);
            (waiting, _) = woken.unwrap_or_else(std::sync::PoisonError::into_inner);
        }
    }
}

#[cfg(all(test, loom))]
mod loom_tests;
