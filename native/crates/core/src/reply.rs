//! The way back: 0..n responses and exactly one end.
//!
//! A [`Reply`] names a mailbox and a key in it. Whoever ends the request first wins the [`Claim`]:
//! the batch that answers it, the caller who gives up, or the deadline.

use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;

use crate::sync::atomic::{AtomicU8, Ordering};
use crate::{Error, Request, Tensor};

/// Takes the answers of one thread's or event loop's requests. Mail of one batch arrives in one call.
///
/// Called from engine threads: it must not block, not panic and not call back into the core.
pub trait Mailbox: Send + Sync {
    fn deliver(&self, mail: Vec<Mail>);
}

/// One answer: a response, the end, or both at once (the usual, unary case).
pub struct Mail {
    pub key: u64,
    pub response: Option<Response>,
    pub end: Option<End>,
}

pub struct Response {
    /// Positions in the specification's outputs, ascending, with the request's share of each.
    pub outputs: SmallVec<[(u16, Tensor); 2]>,
}

/// The last word on a request.
pub struct End {
    pub result: Result<(), Error>,
    pub timings: Timings,
    /// The request goes back with its buffers, so that their owners are released on the asker's
    /// thread and never on an engine's.
    pub request: Box<Request>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Timings {
    pub queue: Duration,
    pub compute_input: Duration,
    pub compute_infer: Duration,
    pub compute_output: Duration,
}

pub struct Reply {
    pub(crate) mailbox: Arc<dyn Mailbox>,
    pub(crate) key: u64,
    pub(crate) claim: Arc<Claim>,
}

impl Reply {
    pub fn new(mailbox: Arc<dyn Mailbox>, key: u64) -> Self {
        Self { mailbox, key, claim: Arc::new(Claim::default()) }
    }
}

/// The fate of a request, decided once.
#[derive(Debug, Default)]
pub struct Claim(AtomicU8);

const LIVE: u8 = 0;
const ANSWERED: u8 = 1;
const CANCELLED: u8 = 2;
const EXPIRED: u8 = 3;

impl Claim {
    fn take(&self, fate: u8) -> bool {
        self.0.compare_exchange(LIVE, fate, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    pub(crate) fn answer(&self) -> bool {
        self.take(ANSWERED)
    }

    pub(crate) fn cancel(&self) -> bool {
        self.take(CANCELLED)
    }

    pub(crate) fn expire(&self) -> bool {
        self.take(EXPIRED)
    }

    /// Why nobody waits for the answer any more, if that is so.
    pub fn abandoned(&self) -> Option<Error> {
        match self.0.load(Ordering::Acquire) {
            CANCELLED => Some(Error::cancelled()),
            EXPIRED => Some(Error::expired()),
            _ => None,
        }
    }
}

#[cfg(all(test, loom))]
mod loom_tests;
