//! Calls that wait for their answer in the thread that makes them, without the GIL.
//!
//! A caller that is handed a lease drives it itself until its own answer has come.

use std::cell::Cell;
use std::sync::Arc;
use std::time::Instant;

use kushi_client::{Answer, InferCall};
use kushi_core::{Alarm, Error, ErrorKind, Lease, Reply, Step};
use kushi_dataplane::OneCall;
use kushi_server::Server;
use pyo3::prelude::*;

use crate::errors::{About, raise_about};
use crate::submission::{Submitted, answer, submit};
use crate::turns::{SIGNAL_PATIENCE, in_turns};

thread_local! {
    /// Serves one call after the other; a call inside a signal handler finds none and makes its own.
    static ONE_CALL: Cell<Option<Arc<OneCall>>> = const { Cell::new(None) };
}

pub(crate) fn infer(py: Python<'_>, server: &Server, call: InferCall, about: &About) -> PyResult<Answer> {
    let one_call = ONE_CALL.take().unwrap_or_default();
    let key = one_call.next_key();
    let submitted = submit(server, call, || Reply::new(one_call.clone(), key));
    let outcome = submitted.map_err(|error| raise_about(py, &error, about)).and_then(|submitted| {
        let mut wait = Wait::new(server, submitted, &one_call);
        let outcome = in_turns(py, || wait.turn());
        let outcome = outcome.inspect_err(|_| {
            wait.submitted.ticket.cancel();
        })?;
        outcome.map_err(|error| raise_about(py, &error, about))
    });
    one_call.next_key();
    ONE_CALL.set(Some(one_call));
    outcome
}

struct Wait<'a> {
    server: &'a Server,
    submitted: Submitted,
    one_call: &'a OneCall,
    alarm: Alarm,
}

impl<'a> Wait<'a> {
    fn new(server: &'a Server, submitted: Submitted, one_call: &'a OneCall) -> Self {
        Self { alarm: Alarm::of(&submitted.ticket), server, submitted, one_call }
    }

    /// Waits for the answer, though no longer than a signal may; `None`: go on.
    fn turn(&mut self) -> Option<Result<Answer, Error>> {
        let until = Instant::now() + SIGNAL_PATIENCE;
        while let Some(lease) = self.submitted.lease.take() {
            self.lead(lease);
            if self.one_call.has_end() || Instant::now() >= until {
                break;
            }
            if self.ring() {
                return Some(Err(Error::expired()));
            }
        }
        loop {
            let look = self.alarm.when().map_or(until, |alarm| alarm.min(until));
            if self.one_call.wait(look) {
                return Some(self.open());
            }
            if self.ring() {
                return Some(Err(Error::expired()));
            }
            if Instant::now() >= until {
                return None;
            }
        }
    }

    /// Runs one batch. Once the own answer is there, others may lead.
    fn lead(&mut self, lease: Lease) {
        if let Step::Again(lease) = lease.run() {
            if self.one_call.has_end() {
                self.server.drivers().offer(lease);
            } else {
                self.submitted.lease = Some(lease);
            }
        }
    }

    /// Whether the call's time has run out and nobody needs to wait for its end.
    fn ring(&mut self) -> bool {
        let is_due = self.alarm.when().is_some_and(|when| when <= Instant::now());
        is_due && self.alarm.ring(&self.submitted.ticket)
    }

    fn open(&self) -> Result<Answer, Error> {
        if let Some((only, mut end)) = self.one_call.take() {
            return answer(&self.submitted.spec, only, &mut end);
        }
        Err(Error::new(ErrorKind::Internal, "a call ended without an end"))
    }
}

impl Drop for Wait<'_> {
    fn drop(&mut self) {
        if let Some(lease) = self.submitted.lease.take() {
            self.server.drivers().offer(lease);
        }
    }
}
