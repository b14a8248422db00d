//! A range of a client's POSIX shared memory object, opened by its key.
//!
//! It is never mapped here. Its owner can truncate, unlink, replace or rewrite it at any moment: a
//! mapping of a truncated object ends the reader with SIGBUS, and with it the server of all clients,
//! and mapped bytes may change between a check and the use that relies on it. So bytes come in by
//! `pread` into memory of our own and leave by `pwrite`, each one copy. What a client does to its
//! object meanwhile makes a clear error or stale bytes, never a fault. The descriptor stays open, so
//! that the region is the object which was registered, whatever its key names later.

use std::fmt;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;

use bytes::BytesMut;
use rustix::fs::{FileType, Mode, OFlags, fstat, open};
use rustix::io::{Errno, pread, pwrite};

const DIRECTORY: &str = "/dev/shm/";
/// Of the file system.
const MAX_NAME_BYTES: usize = 255;
const MAX_KEY_BYTES: usize = 4096;
/// Triton's Python backend keeps its own regions under such keys.
const RESERVED_PREFIX: &str = "triton_python_backend_shm_region_";

/// What went wrong with a region, in Triton's words where it has some.
#[derive(Debug)]
pub struct RegionError {
    pub fault: RegionFault,
    pub text: String,
    /// For the log of the server: what the text, which is Triton's, does not say.
    pub cause: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RegionFault {
    /// What was asked for cannot be right.
    Invalid,
    /// No region goes by that name.
    Unknown,
    /// The system refuses the memory.
    Unusable,
    /// There are as many regions as may be.
    Full,
}

/// What a client says of a region of system memory when it registers it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Registration {
    pub name: String,
    pub key: String,
    /// In the object.
    pub offset: u64,
    pub byte_size: u64,
}

#[derive(Debug)]
pub(crate) struct Region {
    pub registration: Registration,
    descriptor: OwnedFd,
}

impl RegionError {
    pub(crate) fn new(fault: RegionFault, text: String) -> Self {
        Self { fault, text, cause: None }
    }

    pub(crate) fn invalid(text: String) -> Self {
        Self::new(RegionFault::Invalid, text)
    }

    pub(crate) fn caused_by(self, cause: String) -> Self {
        Self { cause: Some(cause), ..self }
    }
}

impl fmt::Display for RegionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for RegionError {}

impl Registration {
    /// What is wrong with the key as a text.
    pub(crate) fn check_key(&self) -> Result<(), RegionError> {
        let Self { name, key, .. } = self;
        let file = key.trim_start_matches('/');
        if file.is_empty() {
            return Err(RegionError::invalid(format!(
                "cannot register shared memory region '{name}' - invalid shm key '{key}'"
            )));
        }
        if file.starts_with(RESERVED_PREFIX) {
            return Err(RegionError::invalid(format!(
                "cannot register shared memory region '{name}' with key '{key}' as the key contains the reserved \
                 prefix '{RESERVED_PREFIX}'"
            )));
        }
        Ok(())
    }

    /// Where the object lies; `None` for a key that would lead out of the directory of such objects.
    fn path(&self) -> Option<String> {
        let file = self.key.trim_start_matches('/');
        let is_name = file.len() <= MAX_NAME_BYTES && !file.contains(['/', '\0']);
        let is_name = is_name && !file.is_empty() && file != "." && file != "..";
        (is_name && self.key.len() <= MAX_KEY_BYTES).then(|| format!("{DIRECTORY}{file}"))
    }
}

impl Region {
    pub(crate) fn open(registration: Registration) -> Result<Self, RegionError> {
        let Registration { name, key, offset, byte_size } = &registration;
        let unusable = |text: &str| RegionError::new(RegionFault::Unusable, format!("{text}: '{key}'"));
        let unopened = || unusable("Unable to open shared memory region");
        // NONBLOCK for what is no memory: some pipe in that directory must not stop the thread.
        let how = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let path = registration.path().ok_or_else(unopened)?;
        let descriptor = open(path, how, Mode::empty()).map_err(|_| unopened())?;
        let object = fstat(&descriptor).ok().filter(|object| {
            FileType::from_raw_mode(object.st_mode) == FileType::RegularFile && object.st_size >= 0
        });
        let object = object.ok_or_else(|| unusable("Invalid shared memory region"))?;
        let refused =
            |why| RegionError::invalid(format!("failed to register shared memory region '{name}': {why}"));
        if offset.checked_add(*byte_size).is_none_or(|end| end > object.st_size as u64) {
            return Err(refused("invalid args"));
        }
        if *byte_size == 0 {
            // Triton's mapping of nothing fails, in these words.
            return Err(refused("unable to process address spaceInvalid argument"));
        }
        Ok(Self { registration, descriptor })
    }

    /// Appends the `byte_size` bytes from `offset` on. The range lies in the region.
    pub(crate) fn read(&self, offset: u64, byte_size: usize, into: &mut BytesMut) -> Result<(), RegionError> {
        into.reserve(byte_size);
        let mut done = 0;
        while done < byte_size {
            let room: &mut [MaybeUninit<u8>] = &mut into.spare_capacity_mut()[..byte_size - done];
            let at = self.registration.offset + offset + done as u64;
            let count = match pread(&self.descriptor, room, at) {
                Ok((read, _)) => read.len(),
                Err(Errno::INTR) => continue,
                Err(error) => return Err(self.failed("read from", error)),
            };
            if count == 0 {
                let length = self.object_length().map_err(|error| self.failed("read from", error))?;
                return Err(self.cut_short(length, offset + byte_size as u64));
            }
            done += count;
            // SAFETY: so many bytes behind the length have just been written, within the capacity.
            unsafe { into.set_len(into.len() + count) };
        }
        Ok(())
    }

    /// Writes `bytes` from `offset` on. The range lies in the region.
    pub(crate) fn write(&self, offset: u64, mut bytes: &[u8]) -> Result<(), RegionError> {
        let end = offset + bytes.len() as u64;
        let length = self.object_length().map_err(|error| self.failed("write to", error))?;
        // Writing behind the end would make the object longer. Who truncates it after this look gets
        // it back, which harms nobody.
        if !bytes.is_empty() && length < self.registration.offset + end {
            return Err(self.cut_short(length, end));
        }
        while !bytes.is_empty() {
            let at = self.registration.offset + end - bytes.len() as u64;
            match pwrite(&self.descriptor, bytes, at) {
                Ok(count) => bytes = &bytes[count..],
                Err(Errno::INTR) => {}
                Err(error) => return Err(self.failed("write to", error)),
            }
        }
        Ok(())
    }

    fn object_length(&self) -> Result<u64, Errno> {
        fstat(&self.descriptor).map(|object| object.st_size as u64)
    }

    fn cut_short(&self, found: u64, end: u64) -> RegionError {
        let Registration { name, key, offset, .. } = &self.registration;
        RegionError::invalid(format!(
            "shared memory region '{name}' has been cut short: expected its object '{key}' to have at least {} bytes, \
             got {found}",
            offset + end
        ))
    }

    fn failed(&self, what: &str, error: Errno) -> RegionError {
        let name = &self.registration.name;
        RegionError::new(
            RegionFault::Unusable,
            format!("unable to {what} shared memory region '{name}': {error}"),
        )
    }
}

#[cfg(test)]
pub(crate) mod scene {
    use std::fs;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::{DIRECTORY, Registration};

    /// A shared memory object of a client, unlinked when dropped.
    pub(crate) struct Object {
        key: String,
        length: u64,
    }

    impl Object {
        pub(crate) fn new(length: u64) -> Self {
            static NUMBER: AtomicUsize = AtomicUsize::new(0);
            let number = NUMBER.fetch_add(1, Ordering::Relaxed);
            let object = Self { key: format!("/kushi-test-{}-{number}", std::process::id()), length };
            fs::write(object.path(), vec![0; length as usize]).unwrap();
            object
        }

        pub(crate) fn path(&self) -> String {
            format!("{DIRECTORY}{}", &self.key[1..])
        }

        pub(crate) fn length(&self) -> u64 {
            self.length
        }

        pub(crate) fn bytes(&self) -> Vec<u8> {
            fs::read(self.path()).unwrap()
        }

        pub(crate) fn registration(&self, name: &str, offset: u64, byte_size: u64) -> Registration {
            Registration { name: name.into(), key: self.key.clone(), offset, byte_size }
        }
    }

    impl Drop for Object {
        fn drop(&mut self) {
            // A test may have been faster.
            let _ = fs::remove_file(self.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::os::unix::fs::symlink;

    use super::scene::Object;
    use super::*;

    fn registration(key: &str) -> Registration {
        Registration { name: "r".into(), key: key.into(), offset: 0, byte_size: 8 }
    }

    fn refusal(registration: Registration) -> (RegionFault, String) {
        let error = Region::open(registration).unwrap_err();
        (error.fault, error.text)
    }

    fn unopened(key: &str) -> (RegionFault, String) {
        (RegionFault::Unusable, format!("Unable to open shared memory region: '{key}'"))
    }

    #[test]
    fn a_key_of_slashes_or_with_the_reserved_prefix_is_refused() {
        for key in ["", "/", "///"] {
            let error = registration(key).check_key().unwrap_err();
            assert_eq!(
                error.text,
                format!("cannot register shared memory region 'r' - invalid shm key '{key}'")
            );
        }
        for key in ["triton_python_backend_shm_region_1", "//triton_python_backend_shm_region_"] {
            let error = registration(key).check_key().unwrap_err();
            assert_eq!(
                error.text,
                format!(
                    "cannot register shared memory region 'r' with key '{key}' as the key contains the reserved prefix \
                     'triton_python_backend_shm_region_'"
                )
            );
        }
        assert!(registration("/a_triton_python_backend_shm_region_").check_key().is_ok());
    }

    #[test]
    fn no_key_leads_out_of_the_directory() {
        let keys = ["../etc/passwd", "/../shm/x", "a/b", "a/", "..", "/.", "a\0b", "/no-such-object-here"];
        for key in keys.map(String::from).into_iter().chain(["x".repeat(256), "/".repeat(5000) + "x"]) {
            assert_eq!(refusal(registration(&key)), unopened(&key));
        }
    }

    #[test]
    fn links_directories_and_pipes_are_no_memory() {
        let object = Object::new(8);
        fs::remove_file(object.path()).unwrap();
        let registration = || object.registration("r", 0, 8);
        symlink("/proc/self/status", object.path()).unwrap();
        assert_eq!(refusal(registration()), unopened(&registration().key));
        fs::remove_file(object.path()).unwrap();
        fs::create_dir(object.path()).unwrap();
        assert_eq!(refusal(registration()), unopened(&registration().key));
        fs::remove_dir(object.path()).unwrap();
        let mode = Mode::RUSR | Mode::WUSR;
        rustix::fs::mknodat(rustix::fs::CWD, object.path(), FileType::Fifo, mode, 0).unwrap();
        let text = format!("Invalid shared memory region: '{}'", registration().key);
        assert_eq!(refusal(registration()), (RegionFault::Unusable, text));
    }

    #[test]
    fn a_region_lies_in_its_object() {
        let object = Object::new(64);
        for (offset, byte_size) in [(0, 64), (63, 1), (1, 63), (7, 3)] {
            assert!(Region::open(object.registration("r", offset, byte_size)).is_ok());
        }
        let invalid =
            |why| (RegionFault::Invalid, format!("failed to register shared memory region 'r': {why}"));
        for (offset, byte_size) in
            [(0, 65), (64, 1), (65, 0), (u64::MAX, 1), (1, u64::MAX), (u64::MAX, u64::MAX)]
        {
            assert_eq!(refusal(object.registration("r", offset, byte_size)), invalid("invalid args"));
        }
        let empty = invalid("unable to process address spaceInvalid argument");
        assert_eq!(refusal(object.registration("r", 64, 0)), empty);
    }

    #[test]
    fn bytes_come_and_go_at_their_place() {
        let object = Object::new(16);
        let region = Region::open(object.registration("r", 4, 8)).unwrap();
        region.write(2, b"fire").unwrap();
        region.write(0, b"").unwrap();
        assert_eq!(object.bytes(), b"\0\0\0\0\0\0fire\0\0\0\0\0\0");
        let mut bytes = BytesMut::from(&b"> "[..]);
        region.read(1, 6, &mut bytes).unwrap();
        region.read(0, 0, &mut bytes).unwrap();
        assert_eq!(&bytes[..], b"> \0fire\0");
    }

    #[test]
    fn an_object_that_is_cut_short_is_an_error_and_does_not_grow_again() {
        let object = Object::new(16);
        let region = Region::open(object.registration("r", 4, 12)).unwrap();
        File::options().write(true).open(object.path()).unwrap().set_len(10).unwrap();
        let expected = |bytes| {
            let key = &region.registration.key;
            format!(
                "shared memory region 'r' has been cut short: expected its object '{key}' to have at least {bytes} \
                 bytes, got 10"
            )
        };
        for (offset, byte_size) in [(0, 8), (6, 1), (11, 1)] {
            let error = region.read(offset, byte_size, &mut BytesMut::new()).unwrap_err();
            assert_eq!(error.text, expected(4 + offset + byte_size as u64));
        }
        let error = region.write(6, b"abc").unwrap_err();
        assert_eq!((error.fault, error.text), (RegionFault::Invalid, expected(13)));
        assert_eq!(object.bytes().len(), 10);
        region.write(3, b"abc").unwrap();
        region.write(12, b"").unwrap();
        assert_eq!(&object.bytes()[7..], b"abc");
    }

    #[test]
    fn a_region_is_the_object_that_was_registered_whatever_its_key_names_now() {
        let object = Object::new(8);
        let region = Region::open(object.registration("r", 0, 8)).unwrap();
        fs::remove_file(object.path()).unwrap();
        region.write(0, b"old").unwrap();
        fs::write(object.path(), b"new data").unwrap();
        let mut bytes = BytesMut::new();
        region.read(0, 3, &mut bytes).unwrap();
        assert_eq!((&bytes[..], object.bytes().as_slice()), (&b"old"[..], &b"new data"[..]));
    }
}
