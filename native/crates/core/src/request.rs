//! A request, and its way back: who waits for it, what he is told, and what is counted of it.

mod classes;
pub(crate) mod context;
mod credit;
pub(crate) mod ledger;
mod observer;
mod only_response;
pub(crate) mod ordering;
pub(crate) mod outbox;
mod reply;
mod sequence;
mod span;
pub(crate) mod statistics;

use std::time::Instant;

use crate::{Bound, Error, Inputs, Tensor, Wanted};

pub use classes::Classes;
pub use context::Context;
pub use credit::{Credit, Window};
pub use observer::{Answered, Observer};
pub use only_response::OnlyResponse;
pub use ordering::MOST_WAITING;
pub use reply::{Claim, End, Mail, Mailbox, Reply, Response, Timings};
pub use sequence::{Sequence, SequenceId};
pub use span::{Computed, Course, Span};
pub use statistics::{BatchRow, Snapshot, Totals};

#[derive(Clone, Debug, PartialEq)]
pub enum Parameter {
    Bool(bool),
    Int(i64),
    Double(f64),
    String(String),
}

pub struct Request {
    /// As the client gave it; empty when it gave none.
    pub id: String,
    pub inputs: Inputs,
    pub wanted: Wanted,
    /// What whoever takes the answer makes of its outputs.
    pub classes: Classes,
    /// Rows of the batch dimension; 1 for a model without one.
    pub rows: usize,
    pub parameters: Vec<(String, Parameter)>,
    /// 0 is the model's default level.
    pub priority: u32,
    /// The parameter `timeout`: a wish for the queue, weighed by [`QueuePolicy`](crate::QueuePolicy).
    pub timeout_us: Option<u64>,
    /// `None` where it says nothing about one.
    pub sequence: Option<Box<Sequence>>,
    /// When the answer is of no more use, wherever the request is by then.
    pub deadline: Option<Instant>,
    /// When the request reached the server; the queue time counts from here.
    pub arrived: Instant,
    /// Whose child it is, if it is one.
    pub context: Context,
    pub reply: Reply,
}

impl Request {
    /// One that says nothing beside its tensors.
    pub fn new(bound: Bound, arrived: Instant, reply: Reply) -> Self {
        let Bound { inputs, wanted, rows } = bound;
        Self {
            id: String::new(),
            inputs,
            wanted,
            classes: Classes::default(),
            rows,
            parameters: Vec::new(),
            priority: 0,
            timeout_us: None,
            sequence: None,
            deadline: None,
            arrived,
            context: Context::default(),
            reply,
        }
    }

    /// Why its answer is of no use to anybody any more, if that is so: caller gone first, then deadline
    /// passed.
    pub(crate) fn useless(&self, now: Instant) -> Option<Error> {
        let gone = self.reply.claim.abandoned();
        gone.or_else(|| self.deadline.is_some_and(|deadline| deadline <= now).then(Error::expired))
    }

    pub fn byte_size(&self) -> usize {
        self.inputs.iter().flatten().map(Tensor::weight).sum()
    }
}
