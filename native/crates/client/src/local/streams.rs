//! Streams for callers that wait in threads of theirs: one for each call, kept for the next one.

use std::ops::ControlFlow;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use kushi_core::{Error, ErrorKind};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use super::connection::{Connection, Ended, Outcome};
use super::door::Door;
use super::texts;
use crate::call::{Answer, Call, CallAnswer, InferCall};

/// More idle streams than this are not kept.
const MAX_IDLE: usize = 64;
/// How long a caller without a deadline waits for a busy server to take its connection.
const CONNECT_PATIENCE: Duration = Duration::from_secs(5);

/// The connections of one client to the socket at one path, for calls that wait. Serves any thread.
pub struct Streams {
    door: Arc<Door>,
    idle: Mutex<Vec<Connection<()>>>,
}

/// Asked whenever a waiting caller wakes up: `Break` gives the call up.
pub type Interrupted<'a> = &'a dyn Fn() -> ControlFlow<()>;

impl Streams {
    pub fn new(door: Arc<Door>) -> Self {
        Self { door, idle: Mutex::default() }
    }

    /// `call.patience` covers connecting, waiting and computing.
    pub fn infer(&self, call: &InferCall, interrupted: Interrupted<'_>) -> Result<Answer, Error> {
        let began = Instant::now();
        let deadline = call.patience.and_then(|patience| began.checked_add(patience));
        let placed = self.door.arena().place(call);
        let issue =
            |connection: &mut Connection<()>, now| connection.infer(call, placed.clone(), (), deadline, now);
        match self.run(issue, deadline, interrupted)? {
            Outcome::Answer(answer) => Ok(answer),
            Outcome::CallAnswer(_) | Outcome::End => Err(texts::mixed_up()),
        }
    }

    pub fn call(&self, call: &Call, interrupted: Interrupted<'_>) -> Result<CallAnswer, Error> {
        let deadline = call.patience.and_then(|patience| Instant::now().checked_add(patience));
        let issue = |connection: &mut Connection<()>, now| connection.call(call, (), deadline, now);
        match self.run(issue, deadline, interrupted)? {
            Outcome::CallAnswer(answer) => Ok(answer),
            Outcome::Answer(_) | Outcome::End => Err(texts::mixed_up()),
        }
    }

    /// Lets go of idle streams.
    pub fn clear(&self) {
        let idle = std::mem::take(&mut *self.idle.lock().unwrap_or_else(PoisonError::into_inner));
        drop(idle);
    }

    /// A socket whose other end is gone takes nothing: a dead idle stream costs no call.
    fn run(
        &self,
        issue: impl Fn(&mut Connection<()>, Instant) -> Result<u64, Error>,
        deadline: Option<Instant>,
        interrupted: Interrupted<'_>,
    ) -> Result<Outcome, Error> {
        while let Some(mut connection) = self.take_idle() {
            let id = issue(&mut connection, Instant::now())?;
            match wait(&mut connection, id, interrupted) {
                Ok(outcome) => {
                    self.keep(connection);
                    return outcome;
                }
                Err(error) => self.give_up(connection, &error)?,
            }
        }
        let mut connection = self.connect(deadline)?;
        let id = issue(&mut connection, Instant::now())?;
        match wait(&mut connection, id, interrupted) {
            Ok(outcome) => {
                self.keep(connection);
                outcome
            }
            Err(error) => Err(self.door.explain(error)),
        }
    }

    /// `Ok` when nothing of the call has been sent, so that another stream may be tried.
    fn give_up(&self, connection: Connection<()>, error: &Error) -> Result<(), Error> {
        let unsent = connection.wreck(error, &mut Vec::new());
        if unsent.is_empty() { Err(self.door.explain(error.clone())) } else { Ok(()) }
    }

    fn connect(&self, deadline: Option<Instant>) -> Result<Connection<()>, Error> {
        let patience = deadline.map_or(CONNECT_PATIENCE, |deadline| deadline - Instant::now());
        let late =
            |error| if deadline.is_some_and(|at| at <= Instant::now()) { Error::expired() } else { error };
        self.door.connect(Some(patience)).map_err(late)
    }

    fn take_idle(&self) -> Option<Connection<()>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop()
    }

    /// The connection may still have a call in flight that was given up.
    fn keep(&self, connection: Connection<()>) {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < MAX_IDLE {
            idle.push(connection);
        } else {
            drop(idle);
        }
    }
}

/// Waits for the end of one call; fails when the stream does.
fn wait(
    connection: &mut Connection<()>,
    id: u64,
    interrupted: Interrupted<'_>,
) -> Result<Result<Outcome, Error>, Error> {
    let mut ended: Vec<Ended<()>> = Vec::new();
    loop {
        let now = Instant::now();
        let wake = connection.tick(now, &mut ended)?;
        let all_sent = connection.flush(now)?;
        // Calls that were given up are not reported, so it is ours.
        if let Some(Ended { outcome, .. }) = ended.pop() {
            return Ok(outcome);
        }
        sleep(connection, all_sent, wake);
        connection.receive(Instant::now(), &mut ended)?;
        if let Some(Ended { outcome, .. }) = ended.pop() {
            return Ok(outcome);
        }
        if interrupted().is_break() {
            connection.cancel(id);
            connection.flush(Instant::now())?;
            return Ok(Err(Error::new(ErrorKind::Cancelled, "")));
        }
    }
}

/// Until the socket has something, takes something, or the time has come.
fn sleep(connection: &Connection<()>, all_sent: bool, wake: Option<Instant>) {
    let flags = if all_sent { PollFlags::IN } else { PollFlags::IN | PollFlags::OUT };
    let patience = wake.map_or(Duration::ZERO, |wake| wake.saturating_duration_since(Instant::now()));
    let patience =
        Timespec { tv_sec: patience.as_secs() as i64, tv_nsec: i64::from(patience.subsec_nanos()) };
    let stream: &UnixStream = connection.stream();
    match poll(&mut [PollFd::new(stream, flags)], Some(&patience)) {
        Ok(_) | Err(Errno::INTR) => {}
        Err(error) => log::debug!("cannot wait for a socket: {error}"),
    }
}
