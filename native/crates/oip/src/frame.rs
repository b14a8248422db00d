//! Frames: `[u32 body length][u8 kind][3 bytes of zero][u64 id]` and the body, little-endian.
//!
//! The id is the client's number for a request; answers carry it back in any order. Frames about the
//! connection itself have the id 0.

use std::fmt;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use prost::Message;

pub const HEADER_BYTES: usize = 16;
/// Tensors larger than this travel in slots.
pub const MAX_BODY_BYTES: usize = 64 << 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// Both ways, first: [`Hello`](crate::Hello).
    Hello = 1,
    /// To the engine: [`ModelInferRequest`](crate::ModelInferRequest).
    Infer = 2,
    /// To the engine, no body: nobody waits for the answer of this id any more. An end still comes.
    Cancel = 3,
    /// To the engine: [`Call`](crate::Call).
    Call = 4,
    /// To the client: [`ModelInferResponse`](crate::ModelInferResponse).
    Answer = 5,
    /// To the client: [`Failure`](crate::Failure).
    Failure = 6,
    /// To the client: [`CallAnswer`](crate::CallAnswer).
    CallAnswer = 7,
    /// Either way, with a file descriptor: [`Slot`](crate::Slot).
    Slot = 8,
    /// Either way: the sender of these slots has dropped them, [`Release`](crate::Release).
    Forget = 9,
    /// To the engine: the client has dropped its views, [`Release`](crate::Release).
    Release = 10,
    /// Either way, no body; answered by a [`Kind::Pong`] with the same id.
    Ping = 11,
    Pong = 12,
    /// To the engine: [`ModelInferRequest`](crate::ModelInferRequest) to a model that may give any number of answers, which
    /// come as parts. An end follows: this or a failure.
    Stream = 13,
    /// To the client: [`ModelInferResponse`](crate::ModelInferResponse), one of any number.
    Part = 14,
    /// To the client, no body: the last part has come.
    End = 15,
}

impl Kind {
    const ALL: [Self; 15] = [
        Self::Hello,
        Self::Infer,
        Self::Cancel,
        Self::Call,
        Self::Answer,
        Self::Failure,
        Self::CallAnswer,
        Self::Slot,
        Self::Forget,
        Self::Release,
        Self::Ping,
        Self::Pong,
        Self::Stream,
        Self::Part,
        Self::End,
    ];

    /// Of a body. What is read at once on the thread of many connections is short.
    fn most_bytes(self) -> usize {
        match self {
            Self::Hello | Self::Cancel | Self::Slot | Self::Ping | Self::Pong | Self::End => 1 << 10,
            Self::Forget | Self::Release => 64 << 10,
            // one that loads a model may bring its configuration
            Self::Call => (2 << 20) + (64 << 10),
            Self::Infer | Self::Stream | Self::Answer | Self::Part | Self::Failure | Self::CallAnswer => {
                MAX_BODY_BYTES
            }
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    pub kind: Kind,
    pub id: u64,
    pub body: Bytes,
}

/// What the other side sent is no frame; nothing behind it can be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameError {
    UnknownKind(u8),
    TooLarge(Kind, usize),
}

impl fmt::Display for FrameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownKind(kind) => write!(f, "a frame of the unknown kind {kind}"),
            Self::TooLarge(kind, length) => {
                write!(f, "a frame {kind:?} of {length} bytes, at most {} are allowed", kind.most_bytes())
            }
        }
    }
}

impl std::error::Error for FrameError {}

pub fn write_frame(out: &mut BytesMut, kind: Kind, id: u64, body: &[u8]) {
    out.reserve(HEADER_BYTES + body.len());
    write_header(out, kind, id, body.len());
    out.extend_from_slice(body);
}

/// The caller keeps messages below [`MAX_BODY_BYTES`].
pub fn write_message(out: &mut BytesMut, kind: Kind, id: u64, message: &impl Message) {
    let length = message.encoded_len();
    out.reserve(HEADER_BYTES + length);
    write_header(out, kind, id, length);
    message.encode_raw(out);
}

/// What stands before so many bytes of a body.
pub fn write_header(out: &mut impl BufMut, kind: Kind, id: u64, length: usize) {
    out.put_u32_le(length as u32);
    out.put_u32_le(kind as u32);
    out.put_u64_le(id);
}

/// Cuts a stream of bytes into frames without copying their bodies.
#[derive(Default)]
pub struct Reader {
    bytes: BytesMut,
}

impl Reader {
    /// Where to read into; never empty.
    pub fn room(&mut self, at_least: usize) -> &mut BytesMut {
        self.bytes.reserve(at_least);
        &mut self.bytes
    }

    /// Whether no frame has begun.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// What has come of frames that are not whole.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// How many more bytes the frame that has begun needs, as far as is known.
    pub fn missing(&self) -> usize {
        let length = self.bytes.first_chunk().map_or(0, |length| u32::from_le_bytes(*length) as usize);
        (HEADER_BYTES + length.min(MAX_BODY_BYTES)).saturating_sub(self.bytes.len())
    }

    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// The next whole frame, if it has come.
    pub fn next_frame(&mut self) -> Result<Option<Frame>, FrameError> {
        let Some(header) = self.bytes.first_chunk::<HEADER_BYTES>() else {
            return Ok(None);
        };
        let mut header = &header[..];
        let (length, kind, id) = (header.get_u32_le() as usize, header.get_u32_le(), header.get_u64_le());
        let known = Kind::ALL.into_iter().find(|known| *known as u32 == kind);
        let kind = known.ok_or(FrameError::UnknownKind(kind as u8))?;
        if length > kind.most_bytes() {
            return Err(FrameError::TooLarge(kind, length));
        }
        if self.bytes.len() < HEADER_BYTES + length {
            return Ok(None);
        }
        self.bytes.advance(HEADER_BYTES);
        let body = self.bytes.split_to(length).freeze();
        Ok(Some(Frame { kind, id, body }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Hello, SlotRange};

    #[test]
    fn frames_survive_any_cut() {
        let mut sent = BytesMut::new();
        write_message(&mut sent, Kind::Hello, 0, &Hello { protocol: 1, version: "x".into() });
        write_frame(&mut sent, Kind::Ping, 7, b"");
        for cut in 0..sent.len() {
            let mut reader = Reader::default();
            let mut frames = Vec::new();
            for part in [&sent[..cut], &sent[cut..]] {
                reader.push(part);
                while let Some(frame) = reader.next_frame().unwrap() {
                    frames.push((frame.kind, frame.id, frame.body.len()));
                }
            }
            assert_eq!(frames, [(Kind::Hello, 0, 5), (Kind::Ping, 7, 0)]);
            assert_eq!(reader.missing(), HEADER_BYTES);
        }
    }

    #[test]
    fn what_is_no_frame_is_refused() {
        for (bytes, error) in [
            ([0, 0, 0, 0, 99, 0, 0, 0], FrameError::UnknownKind(99)),
            ([255, 255, 255, 255, 2, 0, 0, 0], FrameError::TooLarge(Kind::Infer, u32::MAX as usize)),
        ] {
            let mut reader = Reader::default();
            reader.push(&bytes);
            reader.push(&[0; 8]);
            assert_eq!(reader.next_frame(), Err(error));
        }
    }

    #[test]
    fn our_own_fields_are_skipped_by_others() {
        let tensor = crate::InferInputTensor {
            name: "X".into(),
            slot: Some(SlotRange { slot: 1, offset: 2, length: 3 }),
            ..Default::default()
        };
        let read = crate::InferRequestedOutputTensor::decode(&tensor.encode_to_vec()[..]).unwrap();
        assert_eq!(read.name, "X");
    }
}
