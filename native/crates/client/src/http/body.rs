//! Bodies: the pieces of a request on their way out, and an answer read whole, within bounds.

use std::cell::Cell;
use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::{Body, Frame, Incoming, SizeHint};

/// An answer that is put together starts so that its tensor data is aligned for every element type.
const ALIGNMENT: usize = 64;
/// What the length in a head may make the client set aside before the bytes arrive.
const TRUSTED_LENGTH: usize = 64 << 20;
/// Answers up to this size are copied: what was read in one piece holds the whole buffer of its
/// connection, for as long as somebody keeps a result.
const COPIED_BYTES: usize = 2 << 10;

/// A request's body in pieces, which are sent without joining them.
pub(super) struct OutgoingBody {
    pieces: VecDeque<Bytes>,
    left: u64,
    sent: Rc<Cell<bool>>,
}

impl OutgoingBody {
    pub(super) fn new(pieces: impl IntoIterator<Item = Bytes>) -> Self {
        let pieces: VecDeque<Bytes> = pieces.into_iter().filter(|piece| !piece.is_empty()).collect();
        let left = pieces.iter().map(|piece| piece.len() as u64).sum();
        let sent = Rc::new(Cell::new(pieces.is_empty()));
        Self { pieces, left, sent }
    }

    /// Becomes true when the connection has taken the last piece.
    pub(super) fn sent(&self) -> Rc<Cell<bool>> {
        self.sent.clone()
    }
}

impl Body for OutgoingBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let piece = self.pieces.pop_front();
        self.left -= piece.as_ref().map_or(0, |piece| piece.len() as u64);
        self.sent.set(self.pieces.is_empty());
        Poll::Ready(piece.map(|piece| Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.pieces.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left)
    }
}

pub(super) enum ReadError {
    Broken(hyper::Error),
    /// More than this many bytes.
    TooLarge(usize),
    /// There is no memory for this many bytes.
    NoMemory(usize),
}

/// `json_length`: where the tensor data begins, if the head says so.
pub(super) async fn read(
    mut body: Incoming,
    json_length: Option<usize>,
    max_bytes: usize,
) -> Result<Bytes, ReadError> {
    let declared = body.size_hint().exact().map(|length| usize::try_from(length).unwrap_or(usize::MAX));
    if declared.is_some_and(|length| length > max_bytes) {
        return Err(ReadError::TooLarge(max_bytes));
    }
    let Some(first) = next(&mut body).await? else {
        return Ok(Bytes::new());
    };
    if body.is_end_stream() && first.len() <= max_bytes {
        let small = first.len() <= COPIED_BYTES;
        return Ok(if small { Bytes::copy_from_slice(&first) } else { first });
    }
    let room = declared.unwrap_or(0).clamp(first.len(), TRUSTED_LENGTH.max(first.len()));
    let mut whole = Aligned::new(room, json_length)?;
    let mut piece = Some(first);
    while let Some(bytes) = piece {
        let length = whole.len() + bytes.len();
        if length > max_bytes {
            return Err(ReadError::TooLarge(max_bytes));
        }
        if length > whole.room() {
            let room = declared.unwrap_or(2 * length).clamp(length, 2 * length);
            whole = whole.grown(room, json_length)?;
        }
        whole.bytes.extend_from_slice(&bytes);
        piece = next(&mut body).await?;
    }
    Ok(whole.finish())
}

async fn next(body: &mut Incoming) -> Result<Option<Bytes>, ReadError> {
    while let Some(frame) = body.frame().await {
        if let Ok(data) = frame.map_err(ReadError::Broken)?.into_data() {
            return Ok(Some(data));
        }
    }
    Ok(None)
}

/// A buffer whose byte at `json_length` is aligned.
struct Aligned {
    bytes: Vec<u8>,
    start: usize,
}

impl Aligned {
    fn new(length: usize, json_length: Option<usize>) -> Result<Self, ReadError> {
        let mut bytes: Vec<u8> = Vec::new();
        bytes.try_reserve_exact(length + ALIGNMENT).map_err(|_| ReadError::NoMemory(length))?;
        let data = bytes.as_ptr().wrapping_add(json_length.unwrap_or(0));
        let start = data.align_offset(ALIGNMENT).min(ALIGNMENT);
        bytes.resize(start, 0);
        Ok(Self { bytes, start })
    }

    fn len(&self) -> usize {
        self.bytes.len() - self.start
    }

    fn room(&self) -> usize {
        self.bytes.capacity() - self.start
    }

    fn grown(&self, length: usize, json_length: Option<usize>) -> Result<Self, ReadError> {
        let mut larger = Self::new(length, json_length)?;
        larger.bytes.extend_from_slice(&self.bytes[self.start..]);
        Ok(larger)
    }

    fn finish(self) -> Bytes {
        Bytes::from(self.bytes).slice(self.start..)
    }
}
