//! Time that stands still until a test moves it.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use kushi_core::Clock;

use crate::lock;

/// A thread of the core that sleeps towards a time still sleeps in real time, and looks at this clock
/// when it wakes: keep delays in tests to milliseconds.
pub struct ManualClock {
    start: Instant,
    passed: Mutex<Passed>,
}

#[derive(Default)]
struct Passed {
    time: Duration,
    computing: Duration,
}

impl ManualClock {
    /// Time passes while every thread computes.
    pub fn advance(&self, by: Duration) {
        let mut passed = lock(&self.passed);
        passed.time += by;
        passed.computing += by;
    }

    /// Time passes while other processes have the processors.
    pub fn stall(&self, by: Duration) {
        lock(&self.passed).time += by;
    }
}

impl Default for ManualClock {
    fn default() -> Self {
        Self { start: Instant::now(), passed: Mutex::default() }
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Instant {
        self.start + lock(&self.passed).time
    }

    fn processor_time(&self) -> Duration {
        lock(&self.passed).computing
    }
}
