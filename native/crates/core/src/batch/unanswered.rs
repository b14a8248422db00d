//! Bounds the batches that an engine has not answered when it gives their slots back.

use std::sync::Arc;

use crate::base::held_back::{HeldBack, LookAgain};
use crate::base::sync::atomic::{AtomicUsize, Ordering};

/// So many batches for each slot may be unanswered. A model may return and answer later, many requests at a time.
pub const UNANSWERED_PER_SLOT: usize = if cfg!(loom) { 2 } else { 1024 };

pub(crate) struct Unanswered {
    batches: AtomicUsize,
    bound: usize,
    held_back: HeldBack,
}

/// One batch of them, until it is dropped: not under the hand-over's lock, which it may take.
pub(crate) struct OneUnanswered(Arc<Unanswered>);

impl Unanswered {
    pub(crate) fn new(slots: usize, look_again: LookAgain) -> Self {
        Self {
            batches: AtomicUsize::default(),
            bound: slots * UNANSWERED_PER_SLOT,
            held_back: HeldBack::new(look_again),
        }
    }

    /// Under the hand-over's lock.
    pub(crate) fn hold_back(&self) -> bool {
        self.held_back.is_so_while(|| self.batches.load(Ordering::SeqCst) >= self.bound)
    }

    pub(crate) fn begin(self: &Arc<Self>) -> OneUnanswered {
        self.batches.fetch_add(1, Ordering::SeqCst);
        OneUnanswered(self.clone())
    }
}

impl Drop for OneUnanswered {
    fn drop(&mut self) {
        self.0.batches.fetch_sub(1, Ordering::SeqCst);
        self.0.held_back.let_go();
    }
}
