//! Reads a request body: bounded, and without a copy where it arrives in one piece.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use hyper::HeaderMap;
use hyper::body::{Body, Incoming};
use hyper::header::EXPECT;
use kushi_core::Error;

use crate::http::body_memory::BodyMemory;

/// A body that is put together starts so that its tensor data is aligned for every element type.
const ALIGNMENT: usize = 64;
/// What the length in a head may make the server set aside before the bytes arrive.
const TRUSTED_LENGTH: usize = 1 << 20;

/// The largest body that Triton takes.
pub(crate) const MAX_BODY_BYTES: usize = i32::MAX as usize;
/// How long a refused client may go on sending.
const DISCARD_PATIENCE: Duration = Duration::from_secs(30);
/// How much more it may send when it has not told how much there is.
const DISCARDED_UNTOLD: u64 = 16 << 20;

pub(crate) struct Limits {
    /// For the whole body.
    pub max_bytes: usize,
    /// What to say beyond it.
    pub refusal: fn(usize, usize) -> Error,
}

pub(crate) enum ReadError {
    /// The client went away or broke the protocol: there is nobody to answer.
    Broken,
    TooLarge(Error),
}

impl From<ReadError> for Error {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::TooLarge(error) => error,
            ReadError::Broken => Self::invalid("the request body ended early"),
        }
    }
}

/// `json_length`: where the tensor data begins, if the head says so.
pub(crate) async fn read(
    body: &mut Incoming,
    json_length: Option<usize>,
    limits: &Limits,
    memory: &BodyMemory,
) -> Result<Bytes, ReadError> {
    let too_large = |bytes| ReadError::TooLarge((limits.refusal)(bytes, limits.max_bytes));
    let declared = body.size_hint().exact().map(|length| usize::try_from(length).unwrap_or(usize::MAX));
    if let Some(length) = declared.filter(|&length| length > limits.max_bytes) {
        return Err(too_large(length));
    }
    let Some(first) = next(body).await? else {
        return Ok(Bytes::new());
    };
    if first.len() > limits.max_bytes {
        return Err(too_large(first.len()));
    }
    if body.is_end_stream() {
        return Ok(first);
    }
    let room = declared.unwrap_or(0).clamp(first.len(), TRUSTED_LENGTH.max(first.len()));
    let mut whole = Aligned::new(room, json_length, memory);
    whole.bytes.extend_from_slice(&first);
    drop(first);
    while let Some(piece) = next(body).await? {
        let length = whole.len() + piece.len();
        if length > limits.max_bytes {
            return Err(too_large(length));
        }
        if length > whole.room() {
            let room = declared.unwrap_or(2 * length).clamp(length, 2 * length);
            whole = whole.grown(room, json_length, memory);
        }
        whole.bytes.extend_from_slice(&piece);
    }
    Ok(whole.finish(memory))
}

/// Takes in what is left of a body that was answered early: the connection would be reset otherwise,
/// and a client that is still sending would never read the answer.
pub(crate) fn discard(headers: &HeaderMap, mut body: Incoming) {
    let waits_for_leave = headers.contains_key(EXPECT);
    let length = body.size_hint().exact().unwrap_or(DISCARDED_UNTOLD);
    if body.is_end_stream() || waits_for_leave || length > MAX_BODY_BYTES as u64 {
        return;
    }
    tokio::task::spawn_local(tokio::time::timeout(DISCARD_PATIENCE, async move {
        let mut left = length;
        while left > 0
            && let Ok(Some(piece)) = next(&mut body).await
        {
            left = left.saturating_sub(piece.len() as u64);
        }
    }));
}

async fn next(body: &mut Incoming) -> Result<Option<Bytes>, ReadError> {
    while let Some(frame) = body.frame().await {
        // Trailers say nothing that an inference request could use.
        if let Ok(data) = frame.map_err(|_| ReadError::Broken)?.into_data() {
            return Ok(Some(data));
        }
    }
    Ok(None)
}

/// A buffer whose byte at `json_length` is aligned.
pub(super) struct Aligned {
    pub bytes: BytesMut,
    start: usize,
}

impl Aligned {
    pub(super) fn new(length: usize, json_length: Option<usize>, memory: &BodyMemory) -> Self {
        let mut bytes = memory.take(length + ALIGNMENT);
        let data = bytes.as_ptr().wrapping_add(json_length.unwrap_or(0));
        let start = data.align_offset(ALIGNMENT).min(ALIGNMENT);
        bytes.resize(start, 0);
        Self { bytes, start }
    }

    fn len(&self) -> usize {
        self.bytes.len() - self.start
    }

    fn room(&self) -> usize {
        self.bytes.capacity() - self.start
    }

    fn grown(&self, length: usize, json_length: Option<usize>, memory: &BodyMemory) -> Self {
        let mut larger = Self::new(length, json_length, memory);
        larger.bytes.extend_from_slice(&self.bytes[self.start..]);
        larger
    }

    pub(super) fn finish(self, memory: &BodyMemory) -> Bytes {
        memory.freeze(self.bytes).slice(self.start..)
    }
}
