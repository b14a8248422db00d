//! How a runner ends: it drains, and what does not end by itself is ended.

use std::time::{Duration, Instant};

use crate::base::sync::lock;
use crate::{Error, Runner, State};

/// A run that takes longer than this leaves the io thread, and goes on for so long with those who have left.
const LONGEST: Duration = Duration::from_millis(500);
/// How often a runner that retires looks for such runs.
const LOOK: Duration = Duration::from_millis(500);
/// What executes has at least so long to end by itself.
const GRACE: Duration = Duration::from_millis(100);
/// How long a run that was ended may take to come back: it ends before its next operator.
const END_PATIENCE: Duration = Duration::from_secs(2);

impl Runner {
    /// Stops admitting and waits until every request inside has ended, and every one that may still have children
    /// here, `patience` at most. Answers how many have not.
    pub fn drain(&self, patience: Duration) -> usize {
        self.stop_admitting();
        self.ledger.wait_until_quiet(Instant::now() + patience)
    }

    /// Before it retires: where nothing is inside, and nothing that may have children here, its engines may begin to end.
    /// Admits nothing any more.
    pub fn begin_to_leave(&self) {
        self.stop_admitting();
        if self.close_if_quiet() {
            for engine in self.handover.with(|state| state.runs.engines()) {
                engine.begin_to_leave();
            }
        }
    }

    /// Drains, ends what is still queued with an error, then what is still executed, stops the threads and
    /// drops the engines, all on the calling thread. Answers false when an engine did not come back in time.
    pub fn retire(&self, patience: Duration) -> bool {
        let begun = Instant::now();
        self.stop_admitting();
        while begun.elapsed() < patience {
            let left = self.drain(LOOK.min(patience.saturating_sub(begun.elapsed())));
            if left == 0 && self.close_if_quiet() {
                break;
            }
            self.renew_runs();
        }
        self.refuse_queued();
        self.handover.close();
        let until = (begun + patience).max(Instant::now() + GRACE);
        let collected = self.handover.collect(until, Instant::now).or_else(|| {
            let ends = self.end_runs();
            ends.then(|| self.handover.collect(Instant::now() + END_PATIENCE, Instant::now)).flatten()
        });
        if collected.is_none() {
            // From now on, whoever brings a slot home ends what would run again on it.
            self.ledger.advance(State::Failed);
        }
        // A run may have left an io thread meanwhile.
        self.refuse_queued();
        let Some(slots) = collected else {
            return false;
        };
        // What engines keep beyond the return of their slots.
        if self.keeps_slots && self.ledger.wait_until_quiet(until) > 0 {
            self.stop_unanswered();
        }
        for thread in lock(&self.threads).drain(..) {
            if thread.join().is_err() {
                log::error!("an instance thread of model '{}' panicked", self.ledger.spec.name);
            }
        }
        self.give_permits_back();
        drop(slots);
        self.ledger.advance(State::Unloaded);
        true
    }

    /// Ends with an error what is executed, as far as engines can, and what waits. Answers whether there is
    /// a run that will end by it.
    pub fn end_runs(&self) -> bool {
        self.refuse_queued();
        let ends = self.handover.with(|state| state.runs.stop());
        self.stop_unanswered();
        ends
    }

    fn stop_unanswered(&self) {
        if self.keeps_slots && self.inside() > 0 {
            for engine in self.handover.with(|state| state.runs.engines()) {
                engine.stop_unanswered();
            }
        }
    }

    /// A run that keeps an io thread for long, or goes on for long after one of its callers has left, is ended
    /// and begins again on an instance thread with those who still wait. To be called now and then.
    pub fn renew_runs(&self) {
        let now = self.now();
        self.handover.with(|state| state.runs.move_longer_than(LONGEST, now));
    }

    /// Refuses children, too, unless there is one that came while the drain ended.
    fn close_if_quiet(&self) -> bool {
        self.handover.with(|state| {
            state.closed |= self.ledger.unfinished() == 0;
            state.closed
        })
    }

    fn refuse_queued(&self) {
        let (entries, moved) = self.handover.with(|state| {
            state.closed = true;
            (state.scheduler.clear(), std::mem::take(&mut state.moved))
        });
        for entry in entries {
            self.ledger.end_in_queue(entry.request, Error::shutting_down());
        }
        for (_, batch) in moved {
            batch.fail(&Error::shutting_down());
        }
        self.stop_waiting();
    }
}
