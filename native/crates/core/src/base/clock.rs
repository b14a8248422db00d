//! Monotonic time, injected, so that a test can hold it.

use std::time::{Duration, Instant};

use rustix::time::ClockId;

pub trait Clock: Send + Sync + 'static {
    fn now(&self) -> Instant;

    /// What the calling thread has computed so far, whatever else the machine did meanwhile.
    fn processor_time(&self) -> Duration;
}

pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Instant {
        Instant::now()
    }

    fn processor_time(&self) -> Duration {
        let time = rustix::time::clock_gettime(ClockId::ThreadCPUTime);
        Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
    }
}
