//! The receiver's side: another process's slot, mapped here once it is known to be safe.
//!
//! The sender keeps its descriptor and may do with it whatever the kernel lets it. So a view is made
//! of memory only that cannot be cut short while somebody here reads it.

use std::fmt;
use std::io;
use std::os::fd::OwnedFd;

use bytes::Bytes;
use memmap2::{MmapOptions, MmapRaw};
use rustix::fs::{SealFlags, fcntl_get_seals, fstat, fstatfs};

/// What `fstatfs` says of a memfd, but not of one on huge pages, where a read may find no page.
const TMPFS_MAGIC: u64 = 0x0102_1994;

/// A mapping of a slot that another process made. Clones and [`View::range`]s share it.
#[derive(Clone, Debug)]
pub struct View {
    bytes: Bytes,
}

#[derive(Debug)]
pub enum ViewError {
    /// Not a memfd, or one that can be cut short.
    NotSealed,
    WrongLength {
        announced: u64,
        found: u64,
    },
    System(io::Error),
}

impl fmt::Display for ViewError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotSealed => {
                write!(f, "the file descriptor of a slot is no memfd sealed against shrinking and growing")
            }
            Self::WrongLength { announced, found } => {
                write!(f, "a slot of {found} bytes was announced as one of {announced} bytes")
            }
            Self::System(error) => write!(f, "cannot map a slot: {error}"),
        }
    }
}

impl std::error::Error for ViewError {}

impl<E: Into<io::Error>> From<E> for ViewError {
    fn from(error: E) -> Self {
        Self::System(error.into())
    }
}

impl View {
    /// To read and to write. The descriptor is closed either way.
    pub fn map(descriptor: OwnedFd, announced_length: u64) -> Result<Self, ViewError> {
        Self::map_as(descriptor, announced_length, |options, descriptor| options.map_raw(descriptor))
    }

    /// To read only. The descriptor is closed either way.
    pub fn map_read_only(descriptor: OwnedFd, announced_length: u64) -> Result<Self, ViewError> {
        let read_only = |options: &MmapOptions, descriptor: &OwnedFd| options.map_raw_read_only(descriptor);
        Self::map_as(descriptor, announced_length, read_only)
    }

    fn map_as(
        descriptor: OwnedFd,
        announced: u64,
        map: impl FnOnce(&MmapOptions, &OwnedFd) -> io::Result<MmapRaw>,
    ) -> Result<Self, ViewError> {
        // Only memfds have seals; other files answer with an error.
        let seals = fcntl_get_seals(&descriptor).map_err(|_| ViewError::NotSealed)?;
        if !seals.contains(SealFlags::SHRINK | SealFlags::GROW)
            || fstatfs(&descriptor)?.f_type as u64 != TMPFS_MAGIC
        {
            return Err(ViewError::NotSealed);
        }
        // Sealed first, measured second.
        let found = fstat(&descriptor)?.st_size as u64;
        let length = usize::try_from(found).ok().filter(|&length| length > 0 && found == announced);
        let length = length.ok_or(ViewError::WrongLength { announced, found })?;
        let map = map(MmapOptions::new().len(length), &descriptor)?;
        drop(descriptor);
        Ok(Self { bytes: Bytes::from_owner(Map(map)) })
    }

    /// The same view, which drops `guard` when its last clone and range have gone.
    #[must_use]
    pub fn guarded(self, guard: impl Send + 'static) -> Self {
        Self { bytes: Bytes::from_owner(Guarded { bytes: self.bytes, _guard: guard }) }
    }

    #[allow(clippy::len_without_is_empty, reason = "an empty one cannot be mapped")]
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Bytes that keep the mapping alive; `None` for a range outside.
    pub fn range(&self, offset: u64, length: u64) -> Option<Bytes> {
        let end = usize::try_from(offset.checked_add(length)?).ok()?;
        let inside = end <= self.bytes.len();
        inside.then(|| self.bytes.slice(offset as usize..end))
    }
}

struct Guarded<G> {
    bytes: Bytes,
    _guard: G,
}

impl<G> AsRef<[u8]> for Guarded<G> {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

struct Map(MmapRaw);

impl AsRef<[u8]> for Map {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: the mapping has this length and lives as long as `self`; the seals that were checked
        // keep the memory behind it. Others may write to it, as said on the crate: every byte is a
        // valid one.
        unsafe { std::slice::from_raw_parts(self.0.as_ptr(), self.0.len()) }
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use rustix::fs::{MemfdFlags, fcntl_add_seals, ftruncate, memfd_create};

    use super::*;
    use crate::Slot;

    fn copy_of(slot: &Slot) -> OwnedFd {
        slot.fd().as_fd().try_clone_to_owned().unwrap()
    }

    fn memfd(length: u64, seals: SealFlags) -> OwnedFd {
        let descriptor = memfd_create("test", MemfdFlags::ALLOW_SEALING).unwrap();
        ftruncate(&descriptor, length).unwrap();
        fcntl_add_seals(&descriptor, seals).unwrap();
        descriptor
    }

    #[test]
    fn both_sides_see_the_same_bytes() {
        let slot = Slot::new(4096).unwrap();
        let view = View::map_read_only(copy_of(&slot), slot.len() as u64).unwrap();
        assert!(slot.write(10, b"fire"));
        let range = view.range(10, 4).unwrap();
        drop((slot, view));
        assert_eq!(&range[..], b"fire");
    }

    #[test]
    fn ranges_stay_inside() {
        let slot = Slot::new(4096).unwrap();
        let length = slot.len() as u64;
        let view = View::map(copy_of(&slot), length).unwrap();
        assert!(view.range(0, length).is_some());
        assert_eq!(view.range(length, 0).map(|bytes| bytes.len()), Some(0));
        for (offset, length) in [
            (0, length + 1),
            (1, length),
            (length + 1, 0),
            (u64::MAX, 1),
            (1, u64::MAX),
            (u64::MAX, u64::MAX),
        ] {
            assert!(view.range(offset, length).is_none(), "{offset} {length}");
        }
    }

    #[test]
    fn a_guard_lives_as_long_as_anything_that_is_seen() {
        let slot = Slot::new(4096).unwrap();
        let guard = std::sync::Arc::new(());
        let view = View::map(copy_of(&slot), slot.len() as u64).unwrap().guarded(guard.clone());
        let range = view.range(1, 2).unwrap();
        drop(view);
        assert_eq!(std::sync::Arc::strong_count(&guard), 2);
        drop(range);
        assert_eq!(std::sync::Arc::strong_count(&guard), 1);
    }

    #[test]
    fn a_length_other_than_announced_is_refused() {
        let slot = Slot::new(4096).unwrap();
        let length = slot.len() as u64;
        for announced in [0, 1, length - 1, length + 1, u64::MAX] {
            let refused = View::map(copy_of(&slot), announced);
            assert!(matches!(refused, Err(ViewError::WrongLength { .. })), "{announced}");
        }
        let empty = memfd(0, SealFlags::SHRINK | SealFlags::GROW);
        assert!(matches!(View::map(empty, 0), Err(ViewError::WrongLength { .. })));
    }

    #[test]
    fn memory_that_could_be_cut_short_is_refused() {
        for seals in [SealFlags::empty(), SealFlags::SHRINK, SealFlags::GROW, SealFlags::SEAL] {
            let refused = View::map(memfd(4096, seals), 4096);
            assert!(matches!(refused, Err(ViewError::NotSealed)), "{seals:?}");
        }
    }

    #[test]
    fn what_is_no_memfd_is_refused() {
        let (reader, _writer) = std::io::pipe().unwrap();
        let (socket, _other) = std::os::unix::net::UnixStream::pair().unwrap();
        let file = std::fs::File::open("/proc/self/exe");
        for descriptor in [OwnedFd::from(reader), OwnedFd::from(socket), OwnedFd::from(file.unwrap())] {
            assert!(matches!(View::map(descriptor, 4096), Err(ViewError::NotSealed)));
        }
    }

    #[test]
    fn a_view_outlives_what_its_sender_tries() {
        let slot = Slot::new(8192).unwrap();
        let theirs = copy_of(&slot);
        let view = View::map_read_only(copy_of(&slot), slot.len() as u64).unwrap();
        assert!(ftruncate(&theirs, 0).is_err(), "a truncated slot would end its reader");
        drop((slot, theirs));
        let all = view.range(0, 8192).unwrap();
        assert!(all.iter().all(|&byte| byte == 0));
    }
}
