//! Calls that wait for their answer in the thread that makes them, without the GIL.
//!
//! A caller that is handed a lease drives it itself until its own answer has come.

use std::cell::Cell;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use kushi_client::{Answer, InferCall};
use kushi_core::{Error, ErrorKind, Lease, Mail, Mailbox, Reply, Step};
use kushi_dataplane::{Alarm, OnlyResponse};
use kushi_server::Server;
use pyo3::prelude::*;

use crate::errors::{About, raise_about};
use crate::locks::lock;
use crate::submission::{Submitted, answer, submit};
use crate::turns::{SIGNAL_PATIENCE, in_turns};

thread_local! {
    /// Serves one call after the other; a call inside a signal handler finds none and makes its own.
    static LETTERBOX: Cell<Option<Arc<Letterbox>>> = const { Cell::new(None) };
}

#[derive(Default)]
struct Letterbox {
    letters: Mutex<Letters>,
    arrived: Condvar,
}

#[derive(Default)]
struct Letters {
    /// Of the call that is being waited for; answers to earlier ones are thrown away.
    key: u64,
    mail: Vec<Mail>,
}

impl Letterbox {
    fn letters(&self) -> MutexGuard<'_, Letters> {
        lock(&self.letters)
    }

    /// From now on the answers of another call are waited for, or of none.
    fn next_key(&self) -> u64 {
        let mut letters = self.letters();
        letters.key += 1;
        let late = std::mem::take(&mut letters.mail);
        let key = letters.key;
        drop(letters);
        drop(late);
        key
    }

    fn has_end(&self) -> bool {
        self.letters().mail.iter().any(|mail| mail.end.is_some())
    }

    /// Waits for the end of the call, until `until` at most.
    fn wait(&self, until: Instant) -> bool {
        let mut letters = self.letters();
        loop {
            if letters.mail.iter().any(|mail| mail.end.is_some()) {
                return true;
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            (letters, _) = self.arrived.wait_timeout(letters, left).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Mailbox for Letterbox {
    fn deliver(&self, mail: Vec<Mail>) {
        let mut letters = self.letters();
        let key = letters.key;
        letters.mail.extend(mail.into_iter().filter(|mail| mail.key == key));
        drop(letters);
        self.arrived.notify_one();
    }
}

pub(crate) fn infer(py: Python<'_>, server: &Server, call: InferCall, about: &About) -> PyResult<Answer> {
    let letterbox = LETTERBOX.take().unwrap_or_default();
    let key = letterbox.next_key();
    let submitted = submit(server, call, || Reply::new(letterbox.clone(), key));
    let outcome = submitted.map_err(|error| raise_about(py, &error, about)).and_then(|submitted| {
        let mut wait = Wait::new(server, submitted, &letterbox);
        let outcome = in_turns(py, || wait.turn());
        let outcome = outcome.inspect_err(|_| {
            wait.submitted.ticket.cancel();
        })?;
        outcome.map_err(|error| raise_about(py, &error, about))
    });
    letterbox.next_key();
    LETTERBOX.set(Some(letterbox));
    outcome
}

struct Wait<'a> {
    server: &'a Server,
    submitted: Submitted,
    letterbox: &'a Letterbox,
    alarm: Alarm,
}

impl<'a> Wait<'a> {
    fn new(server: &'a Server, submitted: Submitted, letterbox: &'a Letterbox) -> Self {
        Self { alarm: Alarm::of(&submitted.ticket), server, submitted, letterbox }
    }

    /// Waits for the answer, though no longer than a signal may; `None`: go on.
    fn turn(&mut self) -> Option<Result<Answer, Error>> {
        let until = Instant::now() + SIGNAL_PATIENCE;
        while let Some(lease) = self.submitted.lease.take() {
            self.lead(lease);
            if self.letterbox.has_end() || Instant::now() >= until {
                break;
            }
            if self.ring() {
                return Some(Err(Error::expired()));
            }
        }
        loop {
            let look = self.alarm.when().map_or(until, |alarm| alarm.min(until));
            if self.letterbox.wait(look) {
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
            if self.letterbox.has_end() {
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
        let mail = std::mem::take(&mut self.letterbox.letters().mail);
        let mut only = OnlyResponse::default();
        for Mail { response, end, .. } in mail {
            if let Some(response) = response {
                only.put(response);
            }
            if let Some(mut end) = end {
                return answer(&self.submitted.spec, only, &mut end);
            }
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
