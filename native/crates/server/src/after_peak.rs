//! Memory that much traffic has left behind goes back to the system, once that traffic is over: the allocator keeps it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use kushi_net::Budget;

/// Less is kept for the next requests.
const PEAK_BYTES: usize = 64 << 20;
/// Traffic is over when it holds this part of its peak, at so many looks one after the other.
const CALM_PART: usize = 8;
const CALM_LOOKS: u32 = 10;

pub(crate) struct AfterPeak {
    budget: Arc<Budget>,
    peak: AtomicUsize,
    calm_looks: AtomicU32,
    give_back: fn(),
}

impl AfterPeak {
    pub(crate) fn new(budget: &Arc<Budget>, give_back: fn()) -> Self {
        Self { budget: budget.clone(), peak: AtomicUsize::new(0), calm_looks: AtomicU32::new(0), give_back }
    }

    pub(crate) fn look(&self) {
        if self.is_over(self.budget.take_peak(), self.budget.held()) {
            (self.give_back)();
        }
    }

    /// `most`: that was held since the last look. By one thread at a time.
    fn is_over(&self, most: usize, held: usize) -> bool {
        let peak = self.peak.fetch_max(most, Ordering::Relaxed).max(most);
        let is_calm = most <= peak / CALM_PART && peak >= PEAK_BYTES;
        let looks = if is_calm { self.calm_looks.load(Ordering::Relaxed) + 1 } else { 0 };
        let is_over = looks >= CALM_LOOKS;
        if is_over {
            self.peak.store(held, Ordering::Relaxed);
        }
        self.calm_looks.store(if is_over { 0 } else { looks }, Ordering::Relaxed);
        is_over
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_goes_back_once_behind_each_peak() {
        let after = AfterPeak::new(&Arc::new(Budget::new(1 << 30)), || {});
        let looks = |held: usize, count: u32| (0..count).filter(|_| after.is_over(held, held)).count();
        assert_eq!(looks(PEAK_BYTES - 1, 3) + looks(0, 100), 0, "that was little");
        assert_eq!(looks(PEAK_BYTES, 3) + looks(0, CALM_LOOKS - 1), 0);
        assert_eq!(looks(PEAK_BYTES / 2, 1) + looks(0, CALM_LOOKS - 1), 0, "it has not been over");
        assert_eq!(looks(0, 1), 1);
        assert_eq!(looks(0, 100), 0, "it was given back");
        assert_eq!(looks(PEAK_BYTES, 1) + looks(PEAK_BYTES / CALM_PART, CALM_LOOKS), 1);
    }
}
