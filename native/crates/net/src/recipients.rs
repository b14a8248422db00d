//! Tasks of io threads that ask models, and hear their answers.

use std::rc::Rc;

use kushi_core::{Lease, Recipient, Reply, Ticket};

use crate::io::IoContext;
use crate::pending::{Sink, Waiting};

/// The answers to each request go to the task that has made it.
impl Recipient for IoContext {
    type Place = Waiting;
    type Waiting = Waiting;

    fn open(&self) -> (Waiting, Reply) {
        self.with_reply(self.pending.open())
    }

    /// With a lease this thread drives the model.
    fn queued(&self, mut waiting: Waiting, ticket: Ticket, lease: Option<Lease>) -> Waiting {
        waiting.hold(ticket);
        if let Some(lease) = lease {
            self.lead(lease);
        }
        waiting
    }
}

/// The answers to a request go to a [`Sink`], under a name.
pub struct ToSink<'a> {
    io: &'a IoContext,
    sink: &'a Rc<Sink>,
    name: u64,
}

impl Recipient for ToSink<'_> {
    type Place = Waiting;
    type Waiting = Waiting;

    fn open(&self) -> (Waiting, Reply) {
        self.io.with_reply(self.io.pending.open_to(self.sink, self.name))
    }

    fn queued(&self, waiting: Waiting, ticket: Ticket, lease: Option<Lease>) -> Waiting {
        self.io.queued(waiting, ticket, lease)
    }
}

impl IoContext {
    /// For the answers to requests that one task waits for.
    pub fn to<'a>(&'a self, sink: &'a Rc<Sink>, name: u64) -> ToSink<'a> {
        ToSink { io: self, sink, name }
    }
}
