//! A request on its way through the core.

use std::time::Instant;

use smallvec::SmallVec;

use crate::{Bound, Classes, Context, Error, Reply, Sequence, Tensor};

/// By position in [`ModelSpec::inputs`](crate::ModelSpec::inputs); `None` is an optional input left out.
pub type Inputs = SmallVec<[Option<Tensor>; 2]>;

/// Positions in [`ModelSpec::outputs`](crate::ModelSpec::outputs), ascending; empty means all.
pub type Wanted = SmallVec<[u16; 8]>;

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
        self.inputs.iter().flatten().map(|input| input.data.len()).sum()
    }
}
