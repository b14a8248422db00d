//! The sender's side: memory made to be shared, sealed so that its receiver can rely on its length.

use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use memmap2::{MmapOptions, MmapRaw};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};

/// A sealed memfd and its mapping here. Clones share both; they go with the last clone or view.
#[derive(Clone, Debug)]
pub struct Slot(Arc<Memory>);

#[derive(Debug)]
struct Memory {
    id: u64,
    descriptor: OwnedFd,
    map: MmapRaw,
}

impl Slot {
    /// Room for `length` bytes, rounded up to whole pages; all zero. The kernel sets memory aside page
    /// by page, at the first use of each.
    pub fn new(length: usize) -> io::Result<Self> {
        static NEXT_ID: AtomicU64 = AtomicU64::new(1);
        let length = length.max(1).checked_next_multiple_of(rustix::param::page_size());
        let length = length.ok_or(io::ErrorKind::InvalidInput)?;
        let descriptor = memfd_create("kushi-slot", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        ftruncate(&descriptor, length as u64)?;
        fcntl_add_seals(&descriptor, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        let map = MmapOptions::new().len(length).map_raw(&descriptor)?;
        Ok(Self(Arc::new(Memory { id: NEXT_ID.fetch_add(1, Ordering::Relaxed), descriptor, map })))
    }

    /// Never used for another slot of this process.
    pub fn id(&self) -> u64 {
        self.0.id
    }

    /// Whole pages.
    #[allow(clippy::len_without_is_empty, reason = "a slot has at least one page")]
    pub fn len(&self) -> usize {
        self.0.map.len()
    }

    pub fn fd(&self) -> BorrowedFd<'_> {
        self.0.descriptor.as_fd()
    }

    /// The first of [`Slot::len`] bytes, which live as long as the slot.
    pub fn as_mut_ptr(&self) -> *mut u8 {
        self.0.map.as_mut_ptr()
    }

    pub fn address(&self) -> usize {
        self.0.map.as_ptr().addr()
    }

    /// Copies `bytes` in from `offset` on; false, and nothing written, when they do not fit.
    pub fn write(&self, offset: usize, bytes: &[u8]) -> bool {
        if offset.checked_add(bytes.len()).is_none_or(|end| end > self.len()) {
            return false;
        }
        // SAFETY: the range was checked against the mapping, which lives as long as `self`. The source
        // may be a view of the same slot, so the ranges may overlap.
        unsafe { std::ptr::copy(bytes.as_ptr(), self.as_mut_ptr().add(offset), bytes.len()) };
        true
    }

    /// A view without a copy, which keeps the slot alive; `None` for a range outside.
    pub fn bytes(&self, range: Range<usize>) -> Option<Bytes> {
        let inside = range.start <= range.end && range.end <= self.len();
        inside.then(|| Bytes::from_owner(self.clone()).slice(range))
    }
}

impl AsRef<[u8]> for Slot {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: the mapping has this length and lives as long as `self`; its seals keep the memory
        // behind it. Others may write to it, as said on the crate: every byte is a valid one.
        unsafe { std::slice::from_raw_parts(self.0.map.as_ptr(), self.0.map.len()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::fcntl_get_seals;

    #[test]
    fn a_slot_is_whole_pages_and_nobody_can_change_its_length() {
        let slot = Slot::new(1).unwrap();
        assert_eq!(slot.len(), rustix::param::page_size());
        let seals = fcntl_get_seals(slot.fd()).unwrap();
        assert_eq!(seals, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL);
        for length in [0, slot.len() as u64 / 2, slot.len() as u64 * 2] {
            assert!(ftruncate(slot.fd(), length).is_err());
        }
        assert!(Slot::new(usize::MAX).is_err());
    }

    #[test]
    fn views_keep_the_slot_alive_and_stay_inside() {
        let slot = Slot::new(4096).unwrap();
        assert!(slot.write(4090, b"skewer"));
        let length = slot.len();
        let view = slot.bytes(4090..4096).unwrap();
        assert!(slot.bytes(0..length).is_some());
        assert!(slot.bytes(0..length + 1).is_none());
        #[allow(clippy::reversed_empty_ranges, reason = "that is what is refused")]
        let reversed = slot.bytes(2..1);
        assert!(reversed.is_none());
        drop(slot);
        assert_eq!(&view[..], b"skewer");
    }

    #[test]
    fn writes_outside_change_nothing() {
        let slot = Slot::new(1).unwrap();
        assert!(!slot.write(slot.len() - 1, b"ab"));
        assert!(!slot.write(usize::MAX, b"a"));
        assert!(slot.write(slot.len(), b""));
        assert!(slot.as_ref().iter().all(|&byte| byte == 0));
    }
}
