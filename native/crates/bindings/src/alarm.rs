//! The times of an event loop's calls, of which the loop knows the earliest.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Instant;

use pyo3::prelude::*;

/// So many more times than calls are kept before those of calls that have ended are thrown out.
const STALE: usize = 1024;

#[derive(Default)]
pub(crate) struct Alarm {
    times: BinaryHeap<Reverse<(Instant, u64)>>,
    /// What the loop will call, and when.
    armed: Option<(Instant, Py<PyAny>)>,
}

impl Alarm {
    /// Whether the loop has to be told of an earlier time. `calls` are in flight.
    pub(crate) fn add(&mut self, when: Instant, key: u64, calls: usize, lives: impl Fn(u64) -> bool) -> bool {
        if self.times.len() > 2 * calls + STALE {
            self.times.retain(|Reverse((_, key))| lives(*key));
        }
        self.push(when, key);
        self.armed.as_ref().is_none_or(|&(armed, _)| when < armed)
    }

    pub(crate) fn push(&mut self, when: Instant, key: u64) {
        self.times.push(Reverse((when, key)));
    }

    /// The earliest time, and the handle of what the loop was going to call.
    pub(crate) fn disarm(&mut self) -> (Option<Instant>, Option<Py<PyAny>>) {
        let next = self.times.peek().map(|Reverse((when, _))| *when);
        (next, self.armed.take().map(|(_, handle)| handle))
    }

    pub(crate) fn armed(&mut self, when: Instant, handle: Py<PyAny>) {
        self.armed = Some((when, handle));
    }

    pub(crate) fn handle(&self) -> Option<&Py<PyAny>> {
        self.armed.as_ref().map(|(_, handle)| handle)
    }

    /// Takes out what is due by `now`.
    pub(crate) fn due(&mut self, now: Instant) -> Vec<(Instant, u64)> {
        let mut due = Vec::new();
        while let Some(&Reverse((when, key))) = self.times.peek()
            && when <= now
        {
            self.times.pop();
            due.push((when, key));
        }
        due
    }
}
