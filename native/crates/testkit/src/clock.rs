//! Time that stands still until a test moves it.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use kushi_core::Clock;

use crate::lock;

/// A thread of the core that sleeps towards a time still sleeps in real time, and looks at this clock
/// when it wakes: keep delays in tests to milliseconds.
pub struct ManualClock(Mutex<Instant>);

impl ManualClock {
    pub fn advance(&self, by: Duration) {
        *lock(&self.0) += by;
    }
}

impl Default for ManualClock {
    fn default() -> Self {
        Self(Mutex::new(Instant::now()))
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Instant {
        *lock(&self.0)
    }
}
