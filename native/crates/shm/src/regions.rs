//! The regions that clients have registered, by name.
//!
//! A request holds the regions that it names until it is answered. A region that is unregistered
//! meanwhile stays under its name, and serves, until the last request that holds it has ended. One on a GPU is closed
//! then, and keeps its name until that is done: so its client knows when it may free its memory.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use bytes::BytesMut;
use rustix::process::{Resource, getrlimit};

use crate::cuda::{CudaHandle, CudaRegion, CudaRegistration};
use crate::memory::{AnyRegion, Memory, Registered};
use crate::region::{Region, RegionError, RegionFault, Registration};

/// Each of system memory costs a file descriptor.
const MAX_REGIONS: usize = 4096;
/// The part of the descriptors that the process may have which regions may take.
const DESCRIPTORS_SHARE: u64 = 4;

#[derive(Debug)]
pub struct Regions {
    most: usize,
    entries: Mutex<BTreeMap<String, Entry>>,
}

#[derive(Debug)]
struct Entry {
    region: Arc<AnyRegion>,
    uses: usize,
    /// Goes when nobody uses it any more.
    leaving: bool,
    /// Somebody closes it, and takes it out then. Nobody may use it from now on.
    closing: bool,
}

/// What nobody uses any more, to be closed without the lock: that takes its time, even with the last descriptor of a
/// large object.
enum Unused {
    /// Has been taken out.
    System(Entry),
    /// Is closing.
    Cuda(Arc<AnyRegion>),
}

/// Part of a region, which keeps it in its place.
#[derive(Debug)]
pub struct RegionRange {
    regions: Arc<Regions>,
    region: Arc<AnyRegion>,
    /// In the region.
    offset: u64,
    byte_size: usize,
}

impl Default for Regions {
    fn default() -> Self {
        let descriptors = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        Self::with_most(
            usize::try_from(descriptors / DESCRIPTORS_SHARE).unwrap_or(MAX_REGIONS).min(MAX_REGIONS),
        )
    }
}

impl Regions {
    fn with_most(most: usize) -> Self {
        Self { most, entries: Mutex::default() }
    }

    /// Opens the object and takes the region in. The checks run in Triton's order.
    pub fn register(&self, registration: Registration) -> Result<(), RegionError> {
        registration.check_key()?;
        let mut entries = self.entries();
        self.check_room(&entries, &registration.name)?;
        let name = registration.name.clone();
        entries.insert(name, Entry::new(AnyRegion::System(Region::open(registration)?)));
        Ok(())
    }

    /// The same with memory on a GPU. Blocks, longest where it is the first one there.
    pub fn register_cuda(
        &self,
        registration: CudaRegistration,
        handle: &CudaHandle,
    ) -> Result<(), RegionError> {
        let name = registration.name.clone();
        self.check_room(&self.entries(), &name)?;
        // Nobody who uses other regions waits for this.
        let region = Entry::new(AnyRegion::Cuda(CudaRegion::open(registration, handle)?));
        let mut entries = self.entries();
        // Whoever has come first meanwhile has the name.
        let checked = self.check_room(&entries, &name);
        if checked.is_ok() {
            entries.insert(name, region);
            return Ok(());
        }
        drop(entries);
        checked
    }

    fn check_room(&self, entries: &BTreeMap<String, Entry>, name: &str) -> Result<(), RegionError> {
        if entries.contains_key(name) {
            return Err(RegionError::invalid(format!("shared memory region '{name}' already in manager")));
        }
        if entries.len() >= self.most {
            let text = format!(
                "cannot register shared memory region '{name}': there are {} already, the most that this server keeps",
                entries.len()
            );
            return Err(RegionError::new(RegionFault::Full, text));
        }
        Ok(())
    }

    /// Nothing happens to a name that is not registered, or not of such memory.
    pub fn unregister(&self, memory: Memory, name: &str) {
        let mut entries = self.entries();
        let Some(entry) = entries.get_mut(name).filter(|entry| entry.region.memory() == memory) else {
            return;
        };
        entry.leaving = true;
        let unused = take_unused(&mut entries, name);
        drop(entries);
        self.close(unused);
    }

    pub fn unregister_all(&self, memory: Memory) {
        let mut entries = self.entries();
        let mut names = Vec::new();
        for (name, entry) in entries.iter_mut().filter(|(_, entry)| entry.region.memory() == memory) {
            entry.leaving = true;
            names.push(name.clone());
        }
        let unused: Vec<_> = names.iter().filter_map(|name| take_unused(&mut entries, name)).collect();
        drop(entries);
        self.close(unused);
    }

    fn close(&self, unused: impl IntoIterator<Item = Unused>) {
        for one in unused {
            match one {
                Unused::System(entry) => drop(entry),
                Unused::Cuda(region) => {
                    region.close();
                    // Nothing else has come under its name until now.
                    self.entries().remove(region.name());
                }
            }
        }
    }

    pub fn find(&self, name: &str) -> Option<Registered> {
        self.entries().get(name).map(|entry| entry.region.registered())
    }

    /// Those of system memory, sorted by name.
    pub fn all(&self) -> Vec<Registration> {
        self.of(|registered| match registered {
            Registered::System(registration) => Some(registration),
            Registered::Cuda(_) => None,
        })
    }

    /// Those on GPUs, sorted by name.
    pub fn all_cuda(&self) -> Vec<CudaRegistration> {
        self.of(|registered| match registered {
            Registered::Cuda(registration) => Some(registration),
            Registered::System(_) => None,
        })
    }

    fn of<T>(&self, kind: impl Fn(Registered) -> Option<T>) -> Vec<T> {
        self.entries().values().filter_map(|entry| kind(entry.region.registered())).collect()
    }

    /// Holds `byte_size` bytes from `offset` on of the region `name`.
    pub fn range(
        self: &Arc<Self>,
        name: &str,
        offset: u64,
        byte_size: u64,
    ) -> Result<RegionRange, RegionError> {
        let mut entries = self.entries();
        let entry = entries.get_mut(name).filter(|entry| !entry.closing).ok_or_else(|| {
            let text = format!("Unable to find shared memory region: '{name}'");
            RegionError::new(RegionFault::Unknown, text)
        })?;
        let length = entry.region.byte_size();
        if offset >= length {
            return Err(RegionError::invalid(format!("Invalid offset for shared memory region: '{name}'")));
        }
        let end = offset.checked_add(byte_size).ok_or_else(|| {
            RegionError::invalid(format!(
                "Integer overflow detected: byte_size ({byte_size}) + offset ({offset}) exceeds maximum value ({}) \
                 for region '{name}'",
                u64::MAX
            ))
        })?;
        let byte_size = usize::try_from(byte_size).ok().filter(|_| end <= length).ok_or_else(|| {
            RegionError::invalid(format!("Invalid offset + byte size for shared memory region: '{name}'"))
        })?;
        entry.uses += 1;
        Ok(RegionRange { regions: self.clone(), region: entry.region.clone(), offset, byte_size })
    }

    fn entries(&self) -> MutexGuard<'_, BTreeMap<String, Entry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Entry {
    fn new(region: AnyRegion) -> Self {
        Self { region: Arc::new(region), uses: 0, leaving: false, closing: false }
    }
}

fn take_unused(entries: &mut BTreeMap<String, Entry>, name: &str) -> Option<Unused> {
    let entry = entries.get_mut(name).filter(|entry| entry.leaving && entry.uses == 0 && !entry.closing)?;
    match entry.region.memory() {
        Memory::System => entries.remove(name).map(Unused::System),
        Memory::Cuda => {
            entry.closing = true;
            Some(Unused::Cuda(entry.region.clone()))
        }
    }
}

impl RegionRange {
    #[allow(clippy::len_without_is_empty, reason = "nobody asks whether it is")]
    pub fn len(&self) -> usize {
        self.byte_size
    }

    pub fn memory(&self) -> Memory {
        self.region.memory()
    }

    /// Appends the bytes as they are now.
    pub fn read(&self, into: &mut BytesMut) -> Result<(), RegionError> {
        self.region.read(self.offset, self.byte_size, into)
    }

    /// Writes at the start of the range; more than its length is refused.
    pub fn write(&self, bytes: &[u8]) -> Result<(), RegionError> {
        if bytes.len() > self.byte_size {
            return Err(RegionError::invalid(format!(
                "cannot write {} bytes to {} bytes of shared memory region '{}'",
                bytes.len(),
                self.byte_size,
                self.region.name()
            )));
        }
        self.region.write(self.offset, bytes)
    }
}

impl Drop for RegionRange {
    fn drop(&mut self) {
        let mut entries = self.regions.entries();
        // It is the same entry: while it is in use, nothing takes it out or comes in its place.
        let Some(entry) = entries.get_mut(self.region.name()) else { return };
        entry.uses -= 1;
        let unused = take_unused(&mut entries, self.region.name());
        drop(entries);
        match unused {
            Some(Unused::Cuda(region)) => close_aside(&self.regions, region),
            other => self.regions.close(other),
        }
    }
}

/// Requests end on threads that must not wait for a GPU. It is rare that a region is unregistered while it is in use.
fn close_aside(regions: &Arc<Regions>, region: Arc<AnyRegion>) {
    let (same, there) = (regions.clone(), region.clone());
    let close = move || same.close(Some(Unused::Cuda(there)));
    if thread::Builder::new().name("kushi-regions".into()).spawn(close).is_err() {
        regions.close(Some(Unused::Cuda(region)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::region::scene::Object;

    fn regions() -> Arc<Regions> {
        Arc::new(Regions::with_most(3))
    }

    fn register(regions: &Regions, name: &str, object: &Object) -> Result<(), String> {
        regions.register(object.registration(name, 0, object.length())).map_err(|error| error.text)
    }

    fn names(regions: &Regions) -> Vec<String> {
        regions.all().into_iter().map(|registration| registration.name).collect()
    }

    #[test]
    fn a_name_is_taken_until_it_is_unregistered() {
        let (regions, object) = (regions(), Object::new(64));
        register(&regions, "r", &object).unwrap();
        assert_eq!(
            register(&regions, "r", &object).unwrap_err(),
            "shared memory region 'r' already in manager"
        );
        assert_eq!(regions.find("r"), Some(Registered::System(object.registration("r", 0, 64))));
        regions.unregister(Memory::System, "other");
        regions.unregister(Memory::System, "r");
        assert_eq!(regions.find("r"), None);
        register(&regions, "r", &object).unwrap();
    }

    #[test]
    fn what_is_in_use_stays_and_serves_until_its_last_use_has_ended() {
        let (regions, object) = (regions(), Object::new(64));
        register(&regions, "a", &object).unwrap();
        register(&regions, "b", &object).unwrap();
        let first = regions.range("a", 0, 64).unwrap();
        regions.unregister_all(Memory::System);
        assert_eq!(names(&regions), ["a"]);
        assert!(register(&regions, "a", &object).is_err());
        let second = regions.range("a", 8, 8).unwrap();
        drop(first);
        assert_eq!(names(&regions), ["a"]);
        second.write(b"skewer").unwrap();
        assert_eq!(object.bytes()[8..14], *b"skewer");
        drop(second);
        assert!(regions.all().is_empty());
    }

    #[test]
    fn what_is_not_leaving_stays_when_its_uses_end() {
        let (regions, object) = (regions(), Object::new(64));
        register(&regions, "a", &object).unwrap();
        drop(regions.range("a", 0, 64).unwrap());
        assert_eq!(names(&regions), ["a"]);
        regions.unregister(Memory::System, "a");
        assert!(regions.all().is_empty());
    }

    #[test]
    fn unregistering_memory_of_one_kind_leaves_the_other() {
        let (regions, object) = (regions(), Object::new(64));
        register(&regions, "a", &object).unwrap();
        regions.unregister(Memory::Cuda, "a");
        regions.unregister_all(Memory::Cuda);
        assert_eq!((names(&regions), regions.all_cuda()), (vec!["a".to_owned()], vec![]));
    }

    #[test]
    fn there_are_only_so_many() {
        let (regions, object) = (regions(), Object::new(64));
        for name in ["a", "b", "c"] {
            register(&regions, name, &object).unwrap();
        }
        let error = regions.register(object.registration("d", 0, 64)).unwrap_err();
        assert_eq!(error.fault, RegionFault::Full);
        let text =
            "cannot register shared memory region 'd': there are 3 already, the most that this server keeps";
        assert_eq!(error.text, text);
        regions.unregister(Memory::System, "b");
        register(&regions, "d", &object).unwrap();
    }

    #[test]
    fn ranges_stay_inside_their_region() {
        let (regions, object) = (regions(), Object::new(64));
        regions.register(object.registration("r", 16, 32)).unwrap();
        for (offset, byte_size) in [(0, 32), (0, 0), (31, 1), (31, 0)] {
            assert_eq!(regions.range("r", offset, byte_size).unwrap().len() as u64, byte_size);
        }
        let text = |offset, byte_size| regions.range("r", offset, byte_size).unwrap_err().text;
        for offset in [32, 33, u64::MAX] {
            assert_eq!(text(offset, 0), "Invalid offset for shared memory region: 'r'");
        }
        for (offset, byte_size) in [(0, 33), (31, 2), (1, u64::MAX - 1)] {
            assert_eq!(text(offset, byte_size), "Invalid offset + byte size for shared memory region: 'r'");
        }
        assert_eq!(
            text(31, u64::MAX),
            "Integer overflow detected: byte_size (18446744073709551615) + offset (31) exceeds maximum value \
             (18446744073709551615) for region 'r'"
        );
        let error = regions.range("other", 0, 1).unwrap_err();
        assert_eq!(
            (error.fault, error.text.as_str()),
            (RegionFault::Unknown, "Unable to find shared memory region: 'other'")
        );
        let range = regions.range("r", 30, 2).unwrap();
        assert!(range.write(b"abc").is_err());
        range.write(b"ab").unwrap();
        assert_eq!(object.bytes()[45..49], *b"\0ab\0");
    }
}
