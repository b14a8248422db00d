//! Work that does not begin because of a bound, until somebody makes room below it.

use std::sync::Weak;

use crate::Runner;
use crate::sync::atomic::{AtomicBool, Ordering};

pub(crate) struct HeldBack {
    is_so: AtomicBool,
    runner: Weak<Runner>,
}

impl HeldBack {
    pub(crate) fn new(runner: Weak<Runner>) -> Self {
        Self { is_so: AtomicBool::default(), runner }
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

    /// There is room again. Not to be called under the hand-over's lock, which it may take.
    pub(crate) fn let_go(&self) {
        if !self.is_so.load(Ordering::SeqCst) {
            return;
        }
        self.is_so.store(false, Ordering::SeqCst);
        if let Some(runner) = self.runner.upgrade() {
            runner.look_again();
        }
    }
}
