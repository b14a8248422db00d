//! Bounds the batches that an engine has not answered when it gives their slots back.

use std::sync::{Arc, Weak};

use crate::Runner;
use crate::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// So many batches for each slot may be unanswered. A model may return and answer later, many requests at a time.
pub const UNANSWERED_PER_SLOT: usize = if cfg!(loom) { 2 } else { 1024 };

pub(crate) struct Unanswered {
    batches: AtomicUsize,
    bound: usize,
    /// Work has not begun because of the bound.
    held_back: AtomicBool,
    runner: Weak<Runner>,
}

/// One batch of them, until it is dropped: not under the hand-over's lock, which it may take.
pub(crate) struct OneUnanswered(Arc<Unanswered>);

impl Unanswered {
    pub(crate) fn new(slots: usize, runner: Weak<Runner>) -> Self {
        Self {
            batches: AtomicUsize::default(),
            bound: slots * UNANSWERED_PER_SLOT,
            held_back: AtomicBool::default(),
            runner,
        }
    }

    /// Under the hand-over's lock. Whoever answers the next batch looks for what is held back by this.
    pub(crate) fn is_full(&self) -> bool {
        if self.batches.load(Ordering::SeqCst) < self.bound {
            return false;
        }
        self.held_back.store(true, Ordering::SeqCst);
        // It may have been answered in between, by somebody who saw nothing held back.
        self.batches.load(Ordering::SeqCst) >= self.bound
    }

    pub(crate) fn begin(self: &Arc<Self>) -> OneUnanswered {
        self.batches.fetch_add(1, Ordering::SeqCst);
        OneUnanswered(self.clone())
    }
}

impl Drop for OneUnanswered {
    fn drop(&mut self) {
        self.0.batches.fetch_sub(1, Ordering::SeqCst);
        if !self.0.held_back.load(Ordering::SeqCst) {
            return;
        }
        self.0.held_back.store(false, Ordering::SeqCst);
        if let Some(runner) = self.0.runner.upgrade() {
            runner.look_again();
        }
    }
}
