//! What tests of the core and of engines stand on: a [`PuppetEngine`] that is told how batches end, a
//! [`ManualClock`], a [`Letterbox`] for answers, and a [`Scene`] that puts them round a runner.
//!
//! Tests wait for conditions, never for time to pass; [`PATIENCE`] only ends a test that hangs.
#![forbid(unsafe_code)]

pub mod conformance;

mod clock;
mod leasebox;
mod letterbox;
mod library;
mod puppet;
mod scene;
mod slow_reader;

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

pub use clock::ManualClock;
pub use leasebox::LeaseBox;
pub use letterbox::{Answer, Letterbox};
pub use library::library;
pub use puppet::{Act, PuppetEngine, Seen, copy_inputs, respond};
pub use scene::{Scene, drive, echo_spec, int32, queue_of, tensor_spec, wide};
pub use slow_reader::{SlowReader, send_when_room};

/// How long a test waits for what must come.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// Waits for something that gives no signal.
pub fn until(what: &str, condition: impl Fn() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < end, "waited in vain for {what}");
        std::thread::yield_now();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn wait_until<'a, T>(
    mutex: &'a Mutex<T>,
    changed: &Condvar,
    what: &str,
    condition: impl Fn(&T) -> bool,
) -> MutexGuard<'a, T> {
    let waited = changed.wait_timeout_while(lock(mutex), PATIENCE, |state| !condition(state));
    let (guard, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
    assert!(!timeout.timed_out(), "waited in vain for {what}");
    guard
}
