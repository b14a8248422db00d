//! Inline execution is earned: short batches move a model onto io threads, long ones move it back.
//!
//! The gate judges the last batches as a window, so that a single one stretched by another process
//! does not count, and the way back needs more evidence than a moment: promotion at a p99 below half
//! a millisecond, demotion when several percent pass a whole one, or at once for a very long one.

use std::time::Duration;

/// Who runs a model's batches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// Threads of its own.
    Threads,
    /// The io thread that brings the work.
    Inline,
}

const WINDOW: usize = 128;
const SHORT: Duration = Duration::from_micros(500);
const LONG: Duration = Duration::from_millis(1);
const FAR_TOO_LONG: Duration = Duration::from_millis(20);
/// Of the window's batches, at most so many may pass [`SHORT`]: its p99.
const NOT_SHORT_ALLOWED: usize = WINDOW / 100;
/// So many above [`LONG`] end inline execution.
const LONG_ALLOWED: usize = WINDOW * 4 / 100;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Class {
    Short,
    Between,
    Long,
}

pub struct Gate {
    allowed: bool,
    placement: Placement,
    window: [Class; WINDOW],
    filled: usize,
    at: usize,
    not_short: usize,
    long: usize,
}

impl Gate {
    /// `allowed`: the engine's capability and the model's configuration permit inline execution.
    pub fn new(allowed: bool) -> Self {
        Self {
            allowed,
            placement: Placement::Threads,
            window: [Class::Short; WINDOW],
            filled: 0,
            at: 0,
            not_short: 0,
            long: 0,
        }
    }

    pub fn placement(&self) -> Placement {
        self.placement
    }

    /// Weighs one more batch and says where the next one runs.
    pub fn record(&mut self, took: Duration) -> Placement {
        if !self.allowed {
            return self.placement;
        }
        let class = match took {
            t if t <= SHORT => Class::Short,
            t if t <= LONG => Class::Between,
            _ => Class::Long,
        };
        let forgotten = std::mem::replace(&mut self.window[self.at], class);
        self.count(forgotten, -1);
        self.count(class, 1);
        self.at = (self.at + 1) % WINDOW;
        self.filled = (self.filled + 1).min(WINDOW);
        match self.placement {
            Placement::Threads if self.filled == WINDOW && self.not_short <= NOT_SHORT_ALLOWED => {
                self.placement = Placement::Inline;
            }
            Placement::Inline if took >= FAR_TOO_LONG || self.long >= LONG_ALLOWED => {
                self.placement = Placement::Threads;
                // A whole new window has to earn the way back.
                self.filled = 0;
            }
            _ => {}
        }
        self.placement
    }

    fn count(&mut self, class: Class, change: isize) {
        if class != Class::Short {
            self.not_short = self.not_short.saturating_add_signed(change);
        }
        if class == Class::Long {
            self.long = self.long.saturating_add_signed(change);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn us(us: u64) -> Duration {
        Duration::from_micros(us)
    }

    fn after(gate: &mut Gate, took: Duration, batches: usize) -> Placement {
        (0..batches).fold(gate.placement(), |_, _| gate.record(took))
    }

    #[test]
    fn a_whole_window_of_short_batches_earns_inline() {
        let mut gate = Gate::new(true);
        assert_eq!(after(&mut gate, us(100), WINDOW - 1), Placement::Threads);
        assert_eq!(gate.record(us(100)), Placement::Inline);
    }

    #[test]
    fn one_stretched_batch_neither_prevents_nor_ends_inline() {
        let mut gate = Gate::new(true);
        gate.record(us(4_000));
        assert_eq!(after(&mut gate, us(100), WINDOW - 1), Placement::Inline);
        assert_eq!(gate.record(us(4_000)), Placement::Inline);
    }

    #[test]
    fn batches_between_the_thresholds_keep_the_placement() {
        let mut gate = Gate::new(true);
        assert_eq!(after(&mut gate, us(700), 4 * WINDOW), Placement::Threads);
        after(&mut gate, us(100), WINDOW);
        assert_eq!(after(&mut gate, us(700), 4 * WINDOW), Placement::Inline);
    }

    #[test]
    fn long_batches_move_it_back_and_a_very_long_one_at_once() {
        let mut gate = Gate::new(true);
        after(&mut gate, us(100), WINDOW);
        assert_eq!(after(&mut gate, us(2_000), LONG_ALLOWED - 1), Placement::Inline);
        assert_eq!(gate.record(us(2_000)), Placement::Threads);
        assert_eq!(after(&mut gate, us(100), 2 * WINDOW), Placement::Inline);
        assert_eq!(gate.record(us(20_000)), Placement::Threads);
    }

    #[test]
    fn a_model_that_may_not_never_runs_inline() {
        let mut gate = Gate::new(false);
        assert_eq!(after(&mut gate, us(1), 4 * WINDOW), Placement::Threads);
    }
}
