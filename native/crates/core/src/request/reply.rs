//! The way back: 0..n responses and exactly one end.
//!
//! A [`Reply`] names a mailbox and a key in it. Whoever ends the request first wins the [`Claim`]:
//! the batch that answers it, the caller who gives up, or the deadline.

use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;

use crate::base::sync::atomic::{AtomicU8, Ordering};
use crate::request::credit::{Account, Wake};
use crate::{Credit, Error, Labels, ModelSpec, Parameter, Request, Tensor, Window};

/// Takes the answers of one thread's or event loop's requests. Mail of one batch arrives in one call.
///
/// Called from engine threads: it must not block, not panic and not call back into the core. It only collects: what
/// follows from mail is done where its asker holds no lock and no slot.
pub trait Mailbox: Send + Sync {
    fn deliver(&self, mail: Vec<Mail>);
}

/// One answer: a response, the end, or both at once (the usual, unary case).
pub struct Mail {
    pub key: u64,
    pub response: Option<Response>,
    pub end: Option<End>,
    /// With a response that others may follow. To be dropped once it is taken: whoever keeps it holds the next back.
    pub credit: Option<Credit>,
}

#[derive(Debug, Default)]
pub struct Response {
    /// Positions in the specification's outputs, ascending, with the request's share of each.
    pub outputs: SmallVec<[(u16, Tensor); 2]>,
    /// What the model says beside them.
    pub parameters: Vec<(String, Parameter)>,
    /// What the classes of an output are called, by its position, where whoever answers knows it and the specification
    /// does not.
    pub labels: Option<Arc<[Labels]>>,
}

impl Response {
    /// What the classes of the output at this position are called.
    pub fn labels_of<'a>(&'a self, spec: &'a ModelSpec, position: usize) -> &'a Labels {
        let stated = &spec.outputs[position].labels;
        let found = self.labels.as_ref().filter(|_| stated.is_empty());
        found.and_then(|labels| labels.get(position)).unwrap_or(stated)
    }

    pub fn byte_size(&self) -> usize {
        let parameter = |(name, value): &(String, Parameter)| match value {
            Parameter::String(text) => name.len() + text.len(),
            _ => name.len() + size_of::<Parameter>(),
        };
        let tensors = self.outputs.iter().map(|(_, tensor)| tensor.data.len()).sum::<usize>();
        tensors + self.parameters.iter().map(parameter).sum::<usize>()
    }
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
        Self::with_window(mailbox, key, Window::default())
    }

    /// For an asker that has room for more or fewer answers than others.
    pub fn with_window(mailbox: Arc<dyn Mailbox>, key: u64, window: Window) -> Self {
        Self { mailbox, key, claim: Arc::new(Claim::new(window)) }
    }
}

/// The fate of a request, decided once, and the credit for its answers until then.
pub struct Claim {
    fate: AtomicU8,
    pub(crate) account: Account,
}

const LIVE: u8 = 0;
const ANSWERED: u8 = 1;
const CANCELLED: u8 = 2;
const EXPIRED: u8 = 3;

impl Claim {
    pub(crate) fn new(window: Window) -> Self {
        Self { fate: AtomicU8::new(LIVE), account: Account::new(window) }
    }

    fn take(&self, fate: u8) -> bool {
        self.fate.compare_exchange(LIVE, fate, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    pub(crate) fn answer(&self) -> bool {
        self.take(ANSWERED)
    }

    pub(crate) fn cancel(&self) -> bool {
        self.give_up(CANCELLED)
    }

    pub(crate) fn expire(&self) -> bool {
        self.give_up(EXPIRED)
    }

    fn give_up(&self, fate: u8) -> bool {
        let decided = self.take(fate);
        if decided {
            self.account.give_up();
        }
        decided
    }

    /// Calls `wake` once there is room for an answer, or once nobody waits for one: at once where that is so already.
    pub(crate) fn when_room(&self, wake: Wake) {
        self.account.when_room(wake, || self.abandoned().is_some());
    }

    /// Calls `wake` once nobody waits for an answer any more: at once where that is so already.
    pub(crate) fn when_abandoned(&self, wake: Wake) {
        self.account.when_given_up(wake, || self.abandoned().is_some());
    }

    /// Why nobody waits for the answer any more, if that is so.
    pub fn abandoned(&self) -> Option<Error> {
        match self.fate.load(Ordering::Acquire) {
            CANCELLED => Some(Error::cancelled()),
            EXPIRED => Some(Error::expired()),
            _ => None,
        }
    }
}

#[cfg(all(test, loom))]
mod loom_tests;
