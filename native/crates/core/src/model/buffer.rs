//! Bytes with an owner.
//!
//! A buffer is cheap to clone and to slice; the memory goes back when its last clone drops. Input
//! buffers travel back to the asker inside the [`End`](crate::End), so that memory owned by another
//! language is released on the asker's thread.

use std::ops::Range;

use bytes::Bytes;

#[derive(Clone, Debug)]
pub struct Buffer(Bytes);

impl Buffer {
    /// Host memory owned by `bytes`: a request body, a slice of one, a vector, or anything that
    /// [`Bytes::from_owner`] wraps.
    pub fn host(bytes: impl Into<Bytes>) -> Self {
        Self(bytes.into())
    }

    /// Host memory borrowed from `owner`, which is dropped with the last slice of it.
    pub fn from_owner(owner: impl AsRef<[u8]> + Send + 'static) -> Self {
        Self::host(Bytes::from_owner(owner))
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Shares part of the memory without copying.
    #[must_use]
    pub fn slice(&self, range: Range<usize>) -> Self {
        Self(self.0.slice(range))
    }

    /// The bytes themselves, to be sent without a copy.
    pub fn into_bytes(self) -> Bytes {
        self.0
    }
}
