//! What a caller asks for and what comes back, the same over every transport.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use kushi_core::{Error, ErrorKind, Parameter, Tensor, Timings};
use smallvec::SmallVec;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// One inference request.
#[derive(Clone, Debug, Default)]
pub struct InferCall {
    pub model: String,
    /// Empty: the latest.
    pub version: String,
    /// Empty: none.
    pub id: String,
    pub inputs: SmallVec<[Draft; 4]>,
    /// Empty: all.
    pub outputs: Vec<WantedOutput>,
    pub parameters: Vec<(String, Parameter)>,
    /// 0 is the model's default level.
    pub priority: u32,
    /// The parameter `timeout`: a wish for the queue.
    pub timeout_us: Option<u64>,
    /// From now until the answer is of no more use; covers connecting, waiting and computing.
    pub patience: Option<Duration>,
    /// The trace that the caller is part of.
    pub trace: Option<Carried>,
}

/// A trace, as the headers of W3C Trace Context say it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Carried {
    pub parent: String,
    /// Often empty.
    pub state: String,
}

#[derive(Clone, Debug)]
pub struct Draft {
    /// `None`: the input at this position of the model.
    pub name: Option<String>,
    pub tensor: Tensor,
}

#[derive(Clone, Debug)]
pub struct WantedOutput {
    pub name: String,
    /// How many of its best classes come in its place, as text; 0: the output as it is.
    pub classes: usize,
}

#[derive(Clone, Debug)]
pub struct Answer {
    pub model: String,
    pub version: String,
    pub id: String,
    pub parameters: Vec<(String, Parameter)>,
    pub outputs: Vec<(String, Tensor)>,
    /// `None` from servers that do not tell.
    pub timings: Option<Timings>,
}

/// What comes of a call that may have any number of answers.
#[derive(Debug)]
pub enum Streamed {
    Answer(Answer, Held),
    /// The last thing that comes.
    End(Result<(), Error>),
}

/// The room that an answer takes, until it is dropped: the server waits where there is none.
#[derive(Debug)]
pub struct Held(#[expect(dead_code, reason = "kept to be dropped")] OwnedSemaphorePermit);

/// What may have come of a stream and not been taken: bytes, of which each answer counts for so many at least.
pub(crate) const WINDOW_BYTES: u32 = 1 << 20;
const LEAST_BYTES: u32 = WINDOW_BYTES / 64;

/// The room of one stream.
pub(crate) struct Room(Arc<Semaphore>);

impl Room {
    pub(crate) fn new() -> Self {
        Self(Arc::new(Semaphore::new(WINDOW_BYTES as usize)))
    }

    /// Waits until an answer of so many bytes has room.
    pub(crate) async fn hold(&self, bytes: usize) -> Result<Held, Error> {
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX).clamp(LEAST_BYTES, WINDOW_BYTES);
        let held = self.0.clone().acquire_many_owned(bytes).await;
        held.map(Held).map_err(|_| Error::new(ErrorKind::Internal, "the window of a stream is closed"))
    }
}

/// Anything but inference: a verb.
#[derive(Clone, Debug, Default)]
pub struct Call {
    /// The name of its gRPC method.
    pub verb: String,
    /// A JSON object of the fields of that method's request; empty: none.
    pub arguments: Bytes,
    pub patience: Option<Duration>,
}

/// A refusal is an answer too.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallAnswer {
    pub status: u16,
    /// Of a refusal, whose body is `{"error": "…"}`.
    pub kind: Option<ErrorKind>,
    pub body: Bytes,
}
