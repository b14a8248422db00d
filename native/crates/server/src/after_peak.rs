//! Memory that much traffic has left behind goes back to the system, once that traffic is over: the allocator keeps it.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use kushi_net::Budget;

/// Less is kept for the next requests.
const PEAK_BYTES: usize = 64 << 20;
/// Traffic is over when it holds this part of its peak, at so many looks one after the other.
const CALM_PART: usize = 8;
const CALM_LOOKS: u32 = 10;
/// Memory that comes again and again is waited for twice as long each time, up to this.
const MOST_LOOKS: u32 = 1 << 12;

pub(crate) struct AfterPeak {
    budget: Arc<Budget>,
    peak: AtomicUsize,
    /// What the process had in memory when it had least since memory was given back.
    least: AtomicUsize,
    calm_looks: AtomicU32,
    /// So many of them are needed.
    needed_looks: AtomicU32,
    give_back: fn(),
}

impl AfterPeak {
    pub(crate) fn new(budget: &Arc<Budget>, give_back: fn()) -> Self {
        Self {
            budget: budget.clone(),
            peak: AtomicUsize::new(0),
            least: AtomicUsize::new(usize::MAX),
            calm_looks: AtomicU32::new(0),
            needed_looks: AtomicU32::new(CALM_LOOKS),
            give_back,
        }
    }

    pub(crate) fn look(&self) {
        if self.is_over(self.budget.take_peak(), self.budget.held(), resident_bytes()) {
            (self.give_back)();
            self.least.store(resident_bytes(), Ordering::Relaxed);
        }
    }

    /// `most`: that was held since the last look. Much may have been held that does not count, by models as well: then
    /// the process has grown. By one thread at a time.
    fn is_over(&self, most: usize, held: usize, resident: usize) -> bool {
        let peak = self.peak.fetch_max(most, Ordering::Relaxed).max(most);
        let grown = resident - self.least.fetch_min(resident, Ordering::Relaxed).min(resident);
        let is_calm = most <= peak.max(PEAK_BYTES) / CALM_PART && peak.max(grown) >= PEAK_BYTES;
        let looks = if is_calm { self.calm_looks.load(Ordering::Relaxed) + 1 } else { 0 };
        let needed = self.needed_looks.load(Ordering::Relaxed);
        let is_over = looks >= if peak >= PEAK_BYTES { CALM_LOOKS } else { needed };
        if is_over {
            self.needed_looks.store((2 * needed).min(MOST_LOOKS), Ordering::Relaxed);
            self.peak.store(held, Ordering::Relaxed);
            self.least.store(resident, Ordering::Relaxed);
        }
        self.calm_looks.store(if is_over { 0 } else { looks }, Ordering::Relaxed);
        is_over
    }
}

/// Of this process; 0 where the system does not say it.
fn resident_bytes() -> usize {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kibibytes = line.and_then(|line| line.trim().strip_suffix("kB")?.trim().parse::<usize>().ok());
    kibibytes.unwrap_or_default() << 10
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_goes_back_once_behind_each_peak() {
        let after = AfterPeak::new(&Arc::new(Budget::new(1 << 30)), || {});
        let looks = |held: usize, count: u32| (0..count).filter(|_| after.is_over(held, held, 1)).count();
        assert_eq!(looks(PEAK_BYTES - 1, 3) + looks(0, 100), 0, "that was little");
        assert_eq!(looks(PEAK_BYTES, 3) + looks(0, CALM_LOOKS - 1), 0);
        assert_eq!(looks(PEAK_BYTES / 2, 1) + looks(0, CALM_LOOKS - 1), 0, "it has not been over");
        assert_eq!(looks(0, 1), 1);
        assert_eq!(looks(0, 100), 0, "it was given back");
        assert_eq!(looks(PEAK_BYTES, 1) + looks(PEAK_BYTES / CALM_PART, CALM_LOOKS), 1);
    }

    #[test]
    fn memory_that_nobody_has_counted_goes_back_as_well() {
        let after = AfterPeak::new(&Arc::new(Budget::new(1 << 30)), || {});
        let looks =
            |resident: usize, count: u32| (0..count).filter(|_| after.is_over(0, 0, resident)).count();
        assert_eq!(looks(PEAK_BYTES, 100) + looks(2 * PEAK_BYTES - 1, 100), 0);
        assert_eq!(looks(2 * PEAK_BYTES, CALM_LOOKS), 1);
        assert_eq!(looks(2 * PEAK_BYTES, 100), 0, "what did not go is in use");
        assert_eq!(looks(4 * PEAK_BYTES, CALM_LOOKS), 0, "it comes again");
        assert_eq!(looks(4 * PEAK_BYTES, CALM_LOOKS), 1);
        assert!(resident_bytes() > 0);
    }
}
