//! The thread beside: it does what follows from an answer where whoever brought it must not, and takes the answers of
//! streams, so that they keep their order.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use kushi_core::{Afterwards, Error, ErrorKind, os_text};

type Job = Box<dyn FnOnce() + Send>;

/// One for all ensembles of a data plane. Its thread begins with the first of them.
#[derive(Default)]
pub(crate) struct Beside {
    jobs: Arc<JobQueue>,
    started: Mutex<bool>,
}

/// Anybody may leave a job, under any lock.
#[derive(Default)]
pub(crate) struct JobQueue {
    waiting: Mutex<WaitingJobs>,
    arrived: Condvar,
}

#[derive(Default)]
struct WaitingJobs {
    jobs: Vec<Job>,
    /// By their times, and in the order in which they came.
    later: BTreeMap<(Instant, u64), Job>,
    next_number: u64,
    closed: bool,
}

impl Beside {
    pub(crate) fn start(&self) -> Result<Arc<JobQueue>, Error> {
        let mut started = self.started.lock().unwrap_or_else(PoisonError::into_inner);
        if !*started {
            let jobs = self.jobs.clone();
            let thread = thread::Builder::new().name("kushi-ensembles".into()).spawn(move || jobs.run());
            thread.map_err(|error| {
                let text = format!("cannot start the thread of ensembles: {}", os_text(&error));
                Error::new(ErrorKind::Internal, text)
            })?;
            *started = true;
        }
        Ok(self.jobs.clone())
    }
}

impl JobQueue {
    /// Once the data plane has gone, nothing is done any more.
    pub(crate) fn push(&self, job: impl FnOnce() + Send + 'static) {
        let mut waiting = self.waiting();
        if waiting.closed {
            return;
        }
        waiting.jobs.push(Box::new(job));
        if waiting.jobs.len() == 1 {
            self.arrived.notify_one();
        }
    }

    /// The same, not before `when`. For what is of no use once the thing that it is about has gone: it is kept until then.
    pub(crate) fn push_at(&self, when: Instant, job: impl FnOnce() + Send + 'static) {
        let mut waiting = self.waiting();
        if waiting.closed {
            return;
        }
        let number = waiting.next_number;
        waiting.next_number += 1;
        waiting.later.insert((when, number), Box::new(job));
        if waiting.later.first_key_value().is_some_and(|(&first, _)| first == (when, number)) {
            self.arrived.notify_one();
        }
    }

    fn run(&self) {
        while let Some(jobs) = self.take() {
            let _afterwards = Afterwards::open();
            for job in jobs {
                if catch_unwind(AssertUnwindSafe(job)).is_err() {
                    log::error!("a job of an ensemble panicked");
                }
            }
        }
    }

    /// Waits for what is to be done; `None` once that is nothing any more.
    fn take(&self) -> Option<Vec<Job>> {
        let mut waiting = self.waiting();
        loop {
            let now = Instant::now();
            while let Some(first) = waiting.later.first_entry()
                && first.key().0 <= now
            {
                let job = first.remove();
                waiting.jobs.push(job);
            }
            if !waiting.jobs.is_empty() {
                return Some(std::mem::take(&mut waiting.jobs));
            }
            if waiting.closed {
                return None;
            }
            let pause = waiting.later.first_key_value().map(|((when, _), _)| *when - now);
            let woken = self.arrived.wait_timeout(waiting, pause.unwrap_or(Duration::MAX));
            (waiting, _) = woken.unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn waiting(&self) -> MutexGuard<'_, WaitingJobs> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The thread ends, and nobody waits for that: what it does last may need what its caller holds, such as an interpreter.
impl Drop for Beside {
    fn drop(&mut self) {
        self.jobs.waiting().closed = true;
        self.jobs.arrived.notify_one();
    }
}
