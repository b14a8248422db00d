//! The way of an answer from any thread to an event loop: a burst costs one wake-up.

use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use kushi_client::{Answer, CallAnswer, InferCall};
use kushi_core::{Error, Inbox, Mail, Mailbox};
use rustix::event::{EventfdFlags, eventfd};

/// Answers are pushed as owed: each belongs to a call in flight, and those are bounded elsewhere.
const CAPACITY: usize = 0;

/// What has come for the calls of one event loop.
pub(crate) enum Arrival {
    /// From the core in this process, as a batch sent it.
    Mail(Vec<Mail>),
    /// From a client's thread, with the key of the call.
    Outcome(u64, Outcome),
}

/// How a call of a client ended. An inference comes back with what it borrowed.
pub(crate) enum Outcome {
    /// With the call, whose arrays are released where the end is taken.
    Infer(#[expect(dead_code, reason = "kept to be dropped")] Box<InferCall>, Result<Answer, Error>),
    Call(Result<CallAnswer, Error>),
    /// Something has come of a stream, which is taken from there.
    Come,
}

/// Any thread puts answers in; the event loop, woken by the file descriptor, takes them out.
pub(crate) struct Arrivals {
    inbox: Inbox<Arrival>,
    bell: Arc<OwnedFd>,
    /// The event loop is gone: nobody looks any more.
    closed: AtomicBool,
}

impl Arrivals {
    pub(crate) fn new() -> std::io::Result<Self> {
        let bell = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let ring = bell.clone();
        // Full is as good as rung.
        let wake = move || {
            let _ = rustix::io::write(&*ring, &1_u64.to_ne_bytes());
        };
        Ok(Self { inbox: Inbox::new(CAPACITY, wake), bell, closed: AtomicBool::new(false) })
    }

    pub(crate) fn descriptor(&self) -> RawFd {
        self.bell.as_raw_fd()
    }

    fn push(&self, arrival: Arrival) {
        // A race with `close` leaves an answer in the inbox, which goes with it.
        if !self.closed.load(Ordering::Acquire) {
            self.inbox.push_owed(arrival);
        }
    }

    /// Swaps what has come into `into`, which must be empty.
    pub(crate) fn drain(&self, into: &mut Vec<Arrival>) {
        // The bell first: whatever comes after this look rings again.
        let _ = rustix::io::read(&*self.bell, &mut [0_u8; 8]);
        self.inbox.drain(into);
    }

    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Release);
    }
}

impl Mailbox for Arrivals {
    fn deliver(&self, mail: Vec<Mail>) {
        self.push(Arrival::Mail(mail));
    }
}

/// Takes the outcome of one call of a client to its event loop, from any thread. Dropped unused, it
/// leaves the call waiting: whoever holds it answers.
pub(crate) struct Completer {
    pub(crate) arrivals: Arc<Arrivals>,
    pub(crate) key: u64,
}

impl Completer {
    pub(crate) fn complete(self, outcome: Outcome) {
        self.arrivals.push(Arrival::Outcome(self.key, outcome));
    }
}
