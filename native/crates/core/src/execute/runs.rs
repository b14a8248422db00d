//! What the slots of a model execute, and the order to end it.
//!
//! Stands under the hand-over's lock, where every run begins and finishes: an order that comes late
//! never meets the next run of its slot.

use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use crate::{Engine, Error, ErrorKind, Slot};

/// Why a run was ended; the last one counts most.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Ending {
    /// It begins again on an instance thread, without those who have left: it kept a thread that others wait for,
    /// or went on for long after one of its callers had left, who may have been the reason.
    Moved,
    /// Nobody waits for any of its requests.
    Abandoned,
    /// The model goes, and the time for what it had accepted is over.
    Stopped,
}

impl Ending {
    pub(crate) fn error(self, model: &str) -> Error {
        match self {
            Self::Stopped => Error::new(
                ErrorKind::ShuttingDown,
                format!("the run was ended, because model '{model}' is being stopped"),
            ),
            // Each has its own reason, which counts.
            Self::Abandoned | Self::Moved => Error::cancelled(),
        }
    }
}

/// One for each slot.
pub(crate) struct Runs {
    runs: Vec<Run>,
    /// Runs that begin are ended at once.
    stopped: bool,
}

struct Run {
    engine: Weak<dyn Engine>,
    /// `None`: nothing is executed.
    since: Option<Instant>,
    /// On a thread that has other work too.
    inline: bool,
    /// The requests that somebody may still wait for, by number.
    awaited: Vec<u64>,
    /// When the first of its callers left.
    left: Option<Instant>,
    ending: Option<Ending>,
}

impl Runs {
    pub(crate) fn new(engines: &[Arc<dyn Engine>]) -> Self {
        Self { runs: engines.iter().map(Run::new).collect(), stopped: false }
    }

    /// There are so many slots at least, all of this engine.
    pub(crate) fn grow(&mut self, count: usize, engine: &Arc<dyn Engine>) {
        while self.runs.len() < count {
            self.runs.push(Run::new(engine));
        }
    }

    /// Those that are still there.
    pub(crate) fn engines(&self) -> Vec<Arc<dyn Engine>> {
        self.runs.iter().filter_map(|run| run.engine.upgrade()).collect()
    }

    /// How many slots there are.
    pub(crate) fn count(&self) -> usize {
        self.runs.len()
    }

    pub(crate) fn begin(
        &mut self,
        slot: &Slot,
        requests: impl Iterator<Item = u64>,
        now: Instant,
        inline: bool,
    ) {
        let run = &mut self.runs[slot.index];
        run.awaited.clear();
        run.awaited.extend(requests);
        run.since = Some(now);
        run.inline = inline;
        run.left = None;
        run.revoke(slot.index);
        if self.stopped {
            run.end(slot.index, Ending::Stopped);
        }
    }

    pub(crate) fn finish(&mut self, slot: usize) {
        let run = &mut self.runs[slot];
        run.since = None;
        run.awaited.clear();
        run.revoke(slot);
    }

    /// Why what the slot executes was ended, if it was.
    pub(crate) fn ending(&self, slot: usize) -> Option<Ending> {
        self.runs[slot].ending
    }

    /// Nobody waits for this request any more. Its run ends where it was the last one.
    pub(crate) fn abandon(&mut self, request: u64, now: Instant) {
        if let Some(run) = self.take_out(request) {
            run.left.get_or_insert(now);
        }
    }

    /// The same for one that is no part of what is executed.
    pub(crate) fn forget(&mut self, request: u64) {
        self.take_out(request);
    }

    fn take_out(&mut self, request: u64) -> Option<&mut Run> {
        let awaits = |run: &Run| run.awaited.iter().position(|&number| number == request);
        let (index, at) =
            (self.runs.iter().enumerate()).find_map(|(index, run)| awaits(run).map(|at| (index, at)))?;
        let run = &mut self.runs[index];
        run.awaited.swap_remove(at);
        if run.awaited.is_empty() {
            run.end(index, Ending::Abandoned);
        }
        Some(run)
    }

    /// Ends the runs that are to begin again: those that keep a thread from its other work for longer than this,
    /// and those that go on for so long after a caller has left, but at least for as long as they took by then.
    pub(crate) fn move_longer_than(&mut self, longest: Duration, now: Instant) {
        for (index, run) in self.runs.iter_mut().enumerate() {
            let Some(since) = run.since else { continue };
            let took = now.saturating_duration_since(since);
            let goes_on = run.left.is_some_and(|left| {
                let before = left.saturating_duration_since(since);
                now.saturating_duration_since(left) > longest.max(before)
            });
            if run.inline && took > longest || goes_on {
                run.end(index, Ending::Moved);
            }
        }
    }

    /// Ends all runs, those to come as well. Answers whether one goes on that an engine can end.
    pub(crate) fn stop(&mut self) -> bool {
        self.stopped = true;
        let runs = self.runs.iter_mut().enumerate().filter(|(_, run)| run.since.is_some());
        runs.fold(false, |any, (index, run)| run.end(index, Ending::Stopped) || any)
    }
}

impl Run {
    fn new(engine: &Arc<dyn Engine>) -> Self {
        Self {
            engine: Arc::downgrade(engine),
            since: None,
            inline: false,
            awaited: Vec::new(),
            left: None,
            ending: None,
        }
    }

    /// A strong engine that is made here is never the last: the slot is out, and has one.
    fn end(&mut self, slot: usize, why: Ending) -> bool {
        let ends = self.engine.upgrade().is_some_and(|engine| match why {
            Ending::Stopped => engine.stop_run(slot),
            Ending::Moved | Ending::Abandoned => engine.end_run(slot),
        });
        if ends {
            self.ending = self.ending.max(Some(why));
        }
        ends
    }

    fn revoke(&mut self, slot: usize) {
        if self.ending.take().is_some()
            && let Some(engine) = self.engine.upgrade()
        {
            engine.revoke_end(slot);
        }
    }
}
