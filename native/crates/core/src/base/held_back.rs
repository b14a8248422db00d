//! Work that does not begin because of a bound, until somebody makes room below it.

use std::sync::Arc;

use crate::base::sync::atomic::{AtomicBool, Ordering};

/// Has somebody look whether there is work that may begin now. May take the hand-over's lock.
pub(crate) type LookAgain = Arc<dyn Fn() + Send + Sync>;

pub(crate) struct HeldBack {
    is_so: AtomicBool,
    look_again: LookAgain,
}

impl HeldBack {
    pub(crate) fn new(look_again: LookAgain) -> Self {
        Self { is_so: AtomicBool::default(), look_again }
    }

    /// Under the hand-over's lock. Where it is, whoever makes room next lets the work go.
    pub(crate) fn is_so_while(&self, is_full: impl Fn() -> bool) -> bool {
        if !is_full() {
            return false;
        }
        self.is_so.store(true, Ordering::SeqCst);
        // There may be room since, made by somebody who saw nothing held back.
        is_full()
    }

    /// There is room again. Not to be called under the hand-over's lock.
    pub(crate) fn let_go(&self) {
        if self.is_so.load(Ordering::SeqCst) {
            self.is_so.store(false, Ordering::SeqCst);
            (self.look_again)();
        }
    }
}
