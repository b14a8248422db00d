//! Messages of gRPC, each behind a head of its own.

use bytes::{Bytes, BytesMut};
use smallvec::SmallVec;

/// Whether it is compressed, and its length.
pub(crate) const HEAD_BYTES: usize = 5;
/// What is sent without asking whether the client takes it, where nothing follows.
pub(crate) const SHORT_BYTES: usize = 16 << 10;

/// The pieces of a message, the first with its head.
pub(crate) type Message = SmallVec<[Bytes; 2]>;

/// A message with its head.
pub(crate) fn framed(pieces: &[Bytes]) -> Message {
    framed_as(false, pieces)
}

pub(crate) fn framed_as(compressed: bool, pieces: &[Bytes]) -> Message {
    let length: usize = pieces.iter().map(Bytes::len).sum();
    let mut head = [0; HEAD_BYTES];
    head[0] = u8::from(compressed);
    head[1..].copy_from_slice(&(length as u32).to_be_bytes());
    let Some((first, rest)) = pieces.split_first().filter(|(first, _)| first.len() <= SHORT_BYTES) else {
        return std::iter::once(Bytes::copy_from_slice(&head)).chain(pieces.iter().cloned()).collect();
    };
    // The kernel takes one piece faster than two.
    let mut joined = BytesMut::with_capacity(HEAD_BYTES + first.len());
    joined.extend_from_slice(&head);
    joined.extend_from_slice(first);
    std::iter::once(joined.freeze()).chain(rest.iter().cloned()).collect()
}
