//! One state of the settings, and which requests are traced by it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::{Destination, Outlet, TraceSetting};

/// It lives until its last trace has ended, and then tells the outlet.
pub(crate) struct Sampling {
    pub(crate) number: u64,
    pub(crate) setting: TraceSetting,
    is_on: bool,
    pub(crate) outlet: Arc<dyn Outlet>,
    counts: Mutex<Counts>,
}

struct Counts {
    /// Requests that were looked at.
    seen: u64,
    /// -1: no end.
    left: i32,
    made: u64,
    ended: u64,
}

impl Sampling {
    pub(crate) fn new(number: u64, setting: TraceSetting, outlet: Arc<dyn Outlet>) -> Self {
        let counts = Mutex::new(Counts { seen: 0, left: setting.count, made: 0, ended: 0 });
        let has_place = setting.destination != Destination::File(String::new());
        Self { number, is_on: has_place && !setting.level.is_off(), setting, outlet, counts }
    }

    /// Whether any request can be traced.
    pub(crate) fn is_on(&self) -> bool {
        self.is_on
    }

    /// How many traces are left to be made.
    pub(crate) fn left(&self) -> i32 {
        self.counts().left
    }

    /// Whether the next request is traced. `forced`: it is one that is, and counts as the others do.
    pub(crate) fn samples(&self, forced: bool) -> bool {
        if !self.is_on() {
            return false;
        }
        let mut counts = self.counts();
        let mut hit = false;
        if self.setting.rate != 0 && (counts.left != 0 || forced) {
            counts.seen += 1;
            hit = counts.seen.is_multiple_of(u64::from(self.setting.rate)) && counts.left != 0;
            if hit && counts.left > 0 {
                counts.left -= 1;
            }
        }
        let samples = hit || forced;
        counts.made += u64::from(samples);
        samples
    }

    pub(crate) fn is_counted(&self) -> bool {
        self.setting.count >= 0
    }

    /// Hands a trace on; whether it was the last one is decided in the order in which they are handed on.
    pub(crate) fn hand_on(&self, put: impl FnOnce(bool)) {
        let mut counts = self.counts();
        counts.ended += 1;
        put(self.is_counted() && counts.left == 0 && counts.ended == counts.made);
    }

    fn counts(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Sampling {
    fn drop(&mut self) {
        self.outlet.retire(self.number);
    }
}
