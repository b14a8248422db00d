//! Bytes with a place and an owner.
//!
//! A buffer is cheap to clone and to slice; the memory goes back when its last clone drops. Input
//! buffers travel back to the asker inside the [`End`](crate::End), so that memory owned by another
//! language is released on the asker's thread.

use std::ops::Range;

use bytes::Bytes;

/// Where the bytes live. Engines that run elsewhere than on the host add their places here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Place {
    Host,
}

#[derive(Clone, Debug)]
pub struct Buffer {
    place: Place,
    bytes: Bytes,
}

impl Buffer {
    /// Host memory owned by `bytes`: a request body, a slice of one, a vector, or anything that
    /// [`Bytes::from_owner`] wraps.
    pub fn host(bytes: impl Into<Bytes>) -> Self {
        Self { place: Place::Host, bytes: bytes.into() }
    }

    /// Host memory borrowed from `owner`, which is dropped with the last slice of it.
    pub fn from_owner(owner: impl AsRef<[u8]> + Send + 'static) -> Self {
        Self::host(Bytes::from_owner(owner))
    }

    pub fn place(&self) -> Place {
        self.place
    }

    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Shares part of the memory without copying.
    #[must_use]
    pub fn slice(&self, range: Range<usize>) -> Self {
        Self { place: self.place, bytes: self.bytes.slice(range) }
    }

    /// The bytes themselves, to be sent without a copy.
    pub fn into_bytes(self) -> Bytes {
        self.bytes
    }
}
