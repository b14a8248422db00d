//! Runners that a reload replaced or an unload removed: they finish what they began.
//!
//! Each set leaves on a thread of the control plane's, where its engines are dropped, so that neither
//! an io thread nor whoever gave the order waits for them.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use kushi_core::{Runner, os_text};

/// How long a runner may take to finish what it began.
const PATIENCE: Duration = Duration::from_secs(30);

#[derive(Clone, Default)]
pub(crate) struct Leaving(Arc<Hall>);

#[derive(Default)]
struct Hall {
    inside: Mutex<Vec<Arc<Runner>>>,
    changed: Condvar,
}

impl Leaving {
    pub(crate) fn retire(&self, runners: &[Arc<Runner>]) {
        if runners.is_empty() {
            return;
        }
        self.inside().extend(runners.iter().cloned());
        let (leaving, leave) = (self.clone(), runners.to_vec());
        let work = move || leaving.see_all_off(&leave);
        if let Err(error) = thread::Builder::new().name("kushi-retire".into()).spawn(work) {
            log::warn!("cannot start a thread that retires a model: {}", os_text(&error));
            self.see_all_off(runners);
        }
    }

    fn see_all_off(&self, runners: &[Arc<Runner>]) {
        for runner in runners {
            self.see_off(runner);
        }
    }

    fn see_off(&self, runner: &Arc<Runner>) {
        let spec = runner.spec();
        if runner.retire(PATIENCE) {
            log::info!("successfully unloaded '{}' version {}", spec.name, spec.version);
        } else {
            log::warn!("'{}' version {} did not finish in time and was left behind", spec.name, spec.version);
        }
        self.inside().retain(|inside| !Arc::ptr_eq(inside, runner));
        self.0.changed.notify_all();
    }

    /// Waits for all to leave. Answers how many requests are inside those that have not by then.
    pub(crate) fn wait_until_gone(&self, patience: Duration) -> usize {
        let until = Instant::now() + patience;
        let mut inside = self.inside();
        while !inside.is_empty() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            (inside, _) = self.0.changed.wait_timeout(inside, left).unwrap_or_else(PoisonError::into_inner);
        }
        inside.iter().map(|runner| runner.inside()).sum()
    }

    pub(crate) fn end_runs(&self) {
        // Runners call mailboxes: not under the lock.
        let inside = self.inside().clone();
        for runner in inside {
            runner.end_runs();
        }
    }

    fn inside(&self) -> MutexGuard<'_, Vec<Arc<Runner>>> {
        self.0.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
