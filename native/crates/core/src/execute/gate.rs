//! Inline execution is earned: short batches move a model onto io threads, long ones move it back.
//!
//! The gate judges a window of batches. What a model costs is its processor time: on a machine that
//! others use too, the clock stretches short batches as well, and that is no fault of the model. So
//! a model on threads is promoted by the processor time of its batches, their p99. An inline one is
//! watched by the clock, which costs nothing; a long batch makes the gate look at processor times
//! for a while. Several long ones send the model back, and so does much time on the clock, however
//! it was spent.

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
/// Of the window's batches, at most so many may pass [`SHORT`] for promotion: its p99.
const NOT_SHORT_ALLOWED: usize = WINDOW / 100;
/// So many above [`LONG`] end inline execution.
const LONG_ENDS: usize = WINDOW * 4 / 100;
/// The same by the clock alone, which other processes stretch.
const STRETCHED_ENDS: usize = WINDOW / 4;
/// The time beyond [`LONG`], all batches of the window together, that io threads can spare.
const EXCESS_ENDS: Duration = Duration::from_millis(100);

#[derive(Clone, Copy, Default)]
struct Weighed {
    not_short: bool,
    long: bool,
    stretched: bool,
    excess: Duration,
}

pub struct Gate {
    allowed: bool,
    placement: Placement,
    window: [Weighed; WINDOW],
    filled: usize,
    at: usize,
    /// Batches for which processor time is still looked at.
    suspicious: usize,
}

impl Gate {
    /// `allowed`: the engine's capability and the model's configuration permit inline execution.
    pub fn new(allowed: bool) -> Self {
        Self {
            allowed,
            placement: Placement::Threads,
            window: [Weighed::default(); WINDOW],
            filled: 0,
            at: 0,
            suspicious: 0,
        }
    }

    /// For an engine that keeps no thread: it is inline for ever.
    pub fn always_inline() -> Self {
        Self { placement: Placement::Inline, ..Self::new(false) }
    }

    /// Whether the configuration permits it from now on. A model that has earned it and may keep it does.
    pub fn permit(&mut self, allowed: bool) {
        if self.allowed != allowed {
            *self = Self::new(allowed);
        }
    }

    pub fn placement(&self) -> Placement {
        self.placement
    }

    /// Whether the next batch's processor time matters; reading it is a system call.
    pub fn wants_processor_time(&self) -> bool {
        self.allowed && (self.placement == Placement::Threads || self.suspicious > 0)
    }

    /// Weighs one more batch and says where the next one runs.
    pub fn record(&mut self, took: Duration, processor: Option<Duration>) -> Placement {
        if !self.allowed {
            return self.placement;
        }
        let cost = processor.map_or(took, |processor| processor.min(took));
        let weighed = Weighed {
            not_short: cost > SHORT,
            long: cost > LONG,
            stretched: took > LONG,
            excess: took.saturating_sub(LONG),
        };
        self.window[self.at] = weighed;
        self.at = (self.at + 1) % WINDOW;
        self.filled = (self.filled + 1).min(WINDOW);
        self.suspicious = if weighed.stretched { WINDOW } else { self.suspicious.saturating_sub(1) };
        // A short batch makes no window worse: the usual case costs no counting.
        match self.placement {
            Placement::Threads if self.filled == WINDOW && self.has_earned_inline() => {
                self.placement = Placement::Inline;
                self.suspicious = 0;
            }
            Placement::Inline if weighed.stretched && self.has_lost_inline() => {
                self.placement = Placement::Threads;
                // A whole new window has to earn the way back.
                self.filled = 0;
            }
            _ => {}
        }
        self.placement
    }

    fn count(&self, what: impl Fn(&Weighed) -> bool) -> usize {
        self.window.iter().filter(|weighed| what(weighed)).count()
    }

    fn has_earned_inline(&self) -> bool {
        self.count(|batch| batch.not_short) <= NOT_SHORT_ALLOWED && !self.has_lost_inline()
    }

    fn has_lost_inline(&self) -> bool {
        self.count(|batch| batch.long) >= LONG_ENDS
            || self.count(|batch| batch.stretched) >= STRETCHED_ENDS
            || self.window.iter().map(|batch| batch.excess).sum::<Duration>() >= EXCESS_ENDS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn us(us: u64) -> Duration {
        Duration::from_micros(us)
    }

    /// Batches whose time on the clock is all their own.
    fn after(gate: &mut Gate, took: Duration, batches: usize) -> Placement {
        (0..batches).fold(gate.placement(), |_, _| gate.record(took, Some(took)))
    }

    fn inline() -> Gate {
        let mut gate = Gate::new(true);
        assert_eq!(after(&mut gate, us(100), WINDOW), Placement::Inline);
        gate
    }

    #[test]
    fn a_whole_window_of_short_batches_earns_inline() {
        let mut gate = Gate::new(true);
        assert_eq!(after(&mut gate, us(100), WINDOW - 1), Placement::Threads);
        assert_eq!(after(&mut gate, us(100), 1), Placement::Inline);
    }

    #[test]
    fn batches_stretched_by_others_earn_inline_all_the_same() {
        let mut gate = Gate::new(true);
        for batch in 0..WINDOW {
            let took = if batch % 8 == 0 { us(4_000) } else { us(100) };
            gate.record(took, Some(us(100)));
        }
        assert_eq!(gate.placement(), Placement::Inline);
        for batch in 0..4 * WINDOW {
            let took = if batch % 8 == 0 { us(4_000) } else { us(100) };
            let processor = gate.wants_processor_time().then_some(us(100));
            assert_eq!(gate.record(took, processor), Placement::Inline);
        }
    }

    #[test]
    fn processor_time_is_looked_at_on_threads_and_after_a_long_batch() {
        let mut gate = Gate::new(true);
        assert!(gate.wants_processor_time());
        after(&mut gate, us(100), WINDOW);
        assert!(!gate.wants_processor_time());
        gate.record(us(2_000), None);
        assert!(gate.wants_processor_time());
        after(&mut gate, us(100), WINDOW);
        assert!(!gate.wants_processor_time());
    }

    #[test]
    fn batches_between_the_thresholds_keep_the_placement() {
        let mut gate = Gate::new(true);
        assert_eq!(after(&mut gate, us(700), 4 * WINDOW), Placement::Threads);
        assert_eq!(after(&mut inline(), us(700), 4 * WINDOW), Placement::Inline);
    }

    #[test]
    fn several_long_batches_move_it_back_and_a_window_of_short_ones_forth_again() {
        let mut gate = inline();
        assert_eq!(after(&mut gate, us(2_000), LONG_ENDS - 1), Placement::Inline);
        assert_eq!(after(&mut gate, us(2_000), 1), Placement::Threads);
        assert_eq!(after(&mut gate, us(100), WINDOW - 1), Placement::Threads);
        assert_eq!(after(&mut gate, us(100), 1), Placement::Inline);
    }

    #[test]
    fn a_very_long_batch_moves_it_back_at_once() {
        assert_eq!(inline().record(us(101_000), Some(us(100))), Placement::Threads);
    }

    #[test]
    fn an_engine_that_sleeps_is_no_longer_inline_either() {
        let mut gate = inline();
        for _ in 0..STRETCHED_ENDS {
            gate.record(us(1_500), Some(us(10)));
        }
        assert_eq!(gate.placement(), Placement::Threads);
        for _ in 0..4 * WINDOW {
            assert_eq!(gate.record(us(1_500), Some(us(10))), Placement::Threads);
        }
    }

    #[test]
    fn a_model_that_may_not_never_runs_inline() {
        let mut gate = Gate::new(false);
        assert!(!gate.wants_processor_time());
        assert_eq!(after(&mut gate, us(1), 4 * WINDOW), Placement::Threads);
    }
}
