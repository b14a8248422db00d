//! The messages of an answer, as they come in.

use bytes::{Buf, Bytes, BytesMut};
use h2::RecvStream;
use hyper::header::HeaderMap;

use crate::encode::GRPC_HEAD_BYTES;

/// What a length may have set aside before the bytes are there.
const TRUSTED_BYTES: usize = 64 << 20;
/// Messages up to this size are copied: what was read in one piece holds the whole buffer of its connection, for as long
/// as somebody keeps a result.
const COPIED_BYTES: usize = 2 << 10;

/// Why there is no message.
#[derive(Debug)]
pub(super) enum IncomingFault {
    Broken(h2::Error),
    Compressed,
    TooLarge(usize),
    CutShort,
}

pub(super) struct Incoming {
    body: RecvStream,
    max_bytes: usize,
    pieces: Pieces,
}

/// What has come and was not taken: one piece as it is, or several in one.
enum Pieces {
    One(Bytes),
    Joined(BytesMut),
}

impl Incoming {
    pub(super) fn new(body: RecvStream, max_bytes: usize) -> Self {
        Self { body, max_bytes, pieces: Pieces::One(Bytes::new()) }
    }

    /// The next message, without a copy where it came in one piece. `None`: there are no more.
    pub(super) async fn next(&mut self) -> Result<Option<Bytes>, IncomingFault> {
        loop {
            let head = self.pieces.as_slice().first_chunk::<GRPC_HEAD_BYTES>();
            let announced = head.map(|head| self.announced(*head)).transpose()?;
            let needed = GRPC_HEAD_BYTES + announced.unwrap_or(0);
            let come = self.pieces.as_slice().len();
            if announced.is_some() && come >= needed {
                let mut message = self.pieces.split_to(needed);
                message.advance(GRPC_HEAD_BYTES);
                let is_short = message.len() <= COPIED_BYTES;
                return Ok(Some(if is_short { Bytes::copy_from_slice(&message) } else { message }));
            }
            match self.body.data().await {
                Some(Ok(piece)) => {
                    let length = piece.len();
                    self.pieces.push(piece, needed);
                    // A failure is one of the connection, which ends.
                    let _ = self.body.flow_control().release_capacity(length);
                }
                Some(Err(error)) => return Err(IncomingFault::Broken(error)),
                None if come == 0 => return Ok(None),
                None => return Err(IncomingFault::CutShort),
            }
        }
    }

    pub(super) async fn trailers(&mut self) -> Result<HeaderMap, IncomingFault> {
        self.body.trailers().await.map(Option::unwrap_or_default).map_err(IncomingFault::Broken)
    }

    fn announced(&self, [compressed, length @ ..]: [u8; GRPC_HEAD_BYTES]) -> Result<usize, IncomingFault> {
        let length = u32::from_be_bytes(length) as usize;
        if compressed != 0 {
            return Err(IncomingFault::Compressed);
        }
        if length > self.max_bytes { Err(IncomingFault::TooLarge(self.max_bytes)) } else { Ok(length) }
    }
}

impl Pieces {
    fn as_slice(&self) -> &[u8] {
        match self {
            Self::One(bytes) => bytes,
            Self::Joined(bytes) => bytes,
        }
    }

    /// `needed`: how many bytes there will be at least.
    fn push(&mut self, piece: Bytes, needed: usize) {
        if self.as_slice().is_empty() {
            *self = Self::One(piece);
            return;
        }
        if let Self::One(first) = self {
            let room = needed.min(TRUSTED_BYTES).max(first.len() + piece.len());
            let mut joined = BytesMut::with_capacity(room);
            joined.extend_from_slice(first);
            *self = Self::Joined(joined);
        }
        if let Self::Joined(joined) = self {
            joined.extend_from_slice(&piece);
        }
    }

    fn split_to(&mut self, length: usize) -> Bytes {
        match self {
            Self::One(bytes) => bytes.split_to(length),
            Self::Joined(bytes) => {
                let message = bytes.split_to(length).freeze();
                // What is left is the beginning of the next one.
                *self = Self::One(std::mem::take(bytes).freeze());
                message
            }
        }
    }
}
