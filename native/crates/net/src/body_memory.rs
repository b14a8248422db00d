//! Memory for large bodies, used again and again.
//!
//! Fresh memory of that size costs more than copying into it: the kernel hands it out page by page,
//! and takes it back from all threads. Each thread that reads bodies keeps what it has handed out, and lends it again
//! once nobody else holds a part of it.

use std::cell::RefCell;

use bytes::{Bytes, BytesMut};

/// What a thread keeps at most, in use or not.
const KEPT_BYTES: usize = 32 << 20;
/// Capacities are whole multiples of this, so that bodies of similar length share.
const GRAIN: usize = 64 << 10;

#[derive(Default)]
pub struct BodyMemory {
    kept: RefCell<Vec<Kept>>,
}

struct Kept {
    bytes: Bytes,
    capacity: usize,
}

impl BodyMemory {
    /// An empty buffer with room for `length` bytes.
    pub fn take(&self, length: usize) -> BytesMut {
        self.take_kept(length).unwrap_or_else(|| BytesMut::with_capacity(length.next_multiple_of(GRAIN)))
    }

    /// The same, if it is here.
    pub fn take_kept(&self, length: usize) -> Option<BytesMut> {
        let mut kept = self.kept.borrow_mut();
        let fits = |piece: &Kept| {
            (length..=length.saturating_mul(4)).contains(&piece.capacity) && piece.bytes.is_unique()
        };
        let index = kept.iter().position(fits)?;
        let mut buffer = kept.swap_remove(index).bytes.try_into_mut().ok()?;
        buffer.clear();
        Some(buffer)
    }

    /// Freezes a filled buffer, to be lent again later.
    pub fn freeze(&self, buffer: BytesMut) -> Bytes {
        let capacity = buffer.capacity();
        let bytes = buffer.freeze();
        let mut kept = self.kept.borrow_mut();
        let mut total: usize = kept.iter().map(|piece| piece.capacity).sum();
        // The oldest go first, those in use as well: they are freed when they are no longer needed.
        while !kept.is_empty() && total + capacity > KEPT_BYTES {
            total -= kept.remove(0).capacity;
        }
        if capacity <= KEPT_BYTES {
            kept.push(Kept { bytes: bytes.clone(), capacity });
        }
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(memory: &BodyMemory, length: usize) -> Bytes {
        let mut buffer = memory.take(length);
        buffer.resize(length, 7);
        memory.freeze(buffer)
    }

    #[test]
    fn memory_is_lent_again_once_nobody_holds_a_part_of_it() {
        let memory = BodyMemory::default();
        let first = filled(&memory, 600_000);
        let address = first.as_ptr();
        let part = first.slice(100..200);
        drop(first);
        assert_ne!(filled(&memory, 600_000).as_ptr(), address, "a part is still in use");
        drop(part);
        let again = [filled(&memory, 500_000), filled(&memory, 500_000)];
        assert!(again.iter().any(|body| body.as_ptr() == address));
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let memory = BodyMemory::default();
        let held: Vec<Bytes> = (0..100).map(|_| filled(&memory, 1 << 20)).collect();
        drop(filled(&memory, KEPT_BYTES + 1));
        drop(held);
        let kept: usize = memory.kept.borrow().iter().map(|piece| piece.capacity).sum();
        assert!(kept <= KEPT_BYTES);
    }
}
