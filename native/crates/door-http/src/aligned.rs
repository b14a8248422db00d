//! Memory in which a body is put together.

use bytes::{Bytes, BytesMut};
use kushi_net::BodyMemory;

/// A body that is put together starts so that its tensor data is aligned for every element type.
const ALIGNMENT: usize = 64;
/// What the length in a head may make the server set aside before the bytes arrive. Longer bodies are
/// collected in segments of this, and put together where nobody waits.
pub(crate) const TRUSTED_LENGTH: usize = 1 << 20;

/// A buffer whose byte at `json_length` is aligned.
pub(crate) struct Aligned {
    pub bytes: BytesMut,
    start: usize,
}

impl Aligned {
    /// For a body of which so many bytes have arrived: for all of it where memory is at hand or little
    /// is needed.
    pub(crate) fn begin(
        declared: Option<usize>,
        arrived: usize,
        json_length: Option<usize>,
        memory: &BodyMemory,
    ) -> Self {
        if let Some(length) = declared
            && length > TRUSTED_LENGTH
            && let Some(bytes) = memory.take_kept(length + ALIGNMENT)
        {
            return Self::within(bytes, json_length);
        }
        let trusted = TRUSTED_LENGTH.max(arrived);
        Self::new(declared.unwrap_or(0).clamp(arrived, trusted), json_length, memory)
    }

    pub(crate) fn new(length: usize, json_length: Option<usize>, memory: &BodyMemory) -> Self {
        Self::within(memory.take(length + ALIGNMENT), json_length)
    }

    fn within(mut bytes: BytesMut, json_length: Option<usize>) -> Self {
        let data = bytes.as_ptr().wrapping_add(json_length.unwrap_or(0));
        let start = data.align_offset(ALIGNMENT).min(ALIGNMENT);
        bytes.resize(start, 0);
        Self { bytes, start }
    }

    pub(crate) fn len(&self) -> usize {
        self.bytes.len() - self.start
    }

    pub(crate) fn room(&self) -> usize {
        self.bytes.capacity() - self.start
    }

    pub(crate) fn grown(&self, length: usize, json_length: Option<usize>, memory: &BodyMemory) -> Self {
        let mut larger = Self::new(length, json_length, memory);
        larger.bytes.extend_from_slice(&self.bytes[self.start..]);
        larger
    }

    pub(crate) fn finish(self, memory: &BodyMemory) -> Bytes {
        memory.freeze(self.bytes).slice(self.start..)
    }
}
