//! Regions of shared memory that clients register.

use std::fs;

use kushi_core::{Error, ErrorKind};
use kushi_dataplane::{
    CudaPlace, DataPlaneOptions, Memory, RegionPlace, Registration, Sent, Verb, VerbAnswer,
};

use crate::site::{Site, options};

/// A shared memory object, removed when dropped.
struct Object(String);

impl Object {
    fn new(name: &str) -> Self {
        let object = Self(format!("/kushi-manage-{}-{name}", std::process::id()));
        fs::write(object.file(), [0; 64]).unwrap_or_else(|error| panic!("{error}"));
        object
    }

    fn file(&self) -> String {
        format!("/dev/shm{}", self.0)
    }

    fn place(&self) -> RegionPlace {
        RegionPlace { key: self.0.clone(), offset: 16, byte_size: 32 }
    }
}

impl Drop for Object {
    fn drop(&mut self) {
        let _ = fs::remove_file(self.file());
    }
}

fn register(region: &str, place: Sent<RegionPlace>) -> Verb {
    Verb::SystemSharedMemoryRegister { region: region.into(), place }
}

fn register_cuda(region: &str, place: Sent<CudaPlace>) -> Verb {
    Verb::CudaSharedMemoryRegister { region: region.into(), place }
}

fn status(memory: Memory, region: &str) -> Verb {
    Verb::SharedMemoryStatus { memory, region: region.into() }
}

fn unregister(memory: Memory, region: &str) -> Verb {
    Verb::SharedMemoryUnregister { memory, region: region.into() }
}

fn done(site: &Site, verb: Verb) {
    let answer = site.ask(verb);
    assert!(matches!(answer, Ok(VerbAnswer::Done)), "{answer:?}");
}

fn listed(site: &Site, memory: Memory, region: &str) -> Vec<String> {
    match site.ask(status(memory, region)) {
        Ok(VerbAnswer::Regions(regions)) => regions.into_iter().map(|region| region.name).collect(),
        Ok(VerbAnswer::CudaRegions(regions)) => regions.into_iter().map(|region| region.name).collect(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn regions_come_and_go_by_their_names() {
    let (site, object) = (Site::new(), Object::new("names"));
    for name in ["a", "b", "c"] {
        done(&site, register(name, Ok(object.place())));
    }
    let Ok(VerbAnswer::Regions(found)) = site.ask(status(Memory::System, "a")) else { panic!("no regions") };
    let key = object.0.clone();
    assert_eq!(found, [Registration { name: "a".into(), key, offset: 16, byte_size: 32 }]);
    let text = "shared memory region 'a' already in manager";
    site.refuses(register("a", Ok(object.place())), ErrorKind::InvalidInput, text);
    // They are of the system, so that unregistering CUDA memory leaves them.
    done(&site, unregister(Memory::Cuda, ""));
    done(&site, unregister(Memory::Cuda, "a"));
    assert_eq!(listed(&site, Memory::System, ""), ["a", "b", "c"]);
    done(&site, unregister(Memory::System, "a"));
    assert_eq!(listed(&site, Memory::System, ""), ["b", "c"]);
    done(&site, unregister(Memory::System, ""));
    assert!(listed(&site, Memory::System, "").is_empty());
}

#[test]
fn without_gpus_there_is_no_cuda_memory() {
    if kushi_shm::has_gpus() {
        return;
    }
    let (site, object) = (Site::new(), Object::new("cuda"));
    done(&site, register("r", Ok(object.place())));
    assert!(listed(&site, Memory::Cuda, "").is_empty());
    let text = "The region named 'r' is registered as system shared memory, not CUDA shared memory";
    site.refuses(status(Memory::Cuda, "r"), ErrorKind::RegionNotFound, text);
    for (memory, name) in [(Memory::System, "system"), (Memory::Cuda, "cuda")] {
        let text = format!("Unable to find {name} shared memory region: 'x'");
        site.refuses(status(memory, "x"), ErrorKind::RegionNotFound, &text);
    }
    let text = "failed to register CUDA shared memory region: 'r', GPUs not supported";
    let place = CudaPlace { handle: [0; 64], device_id: 0, byte_size: 8 };
    let unreadable = Err(Error::new(ErrorKind::UnreadableInput, "not looked at without a GPU"));
    for place in [Ok(place), unreadable] {
        site.refuses(register_cuda("r", place), ErrorKind::InvalidInput, text);
    }
}

#[test]
fn what_is_wrong_is_told_in_the_order_of_triton() {
    let closed = Site::with(&DataPlaneOptions { allow_client_regions: false, ..options() });
    let open = Site::new();
    let unreadable = || Err(Error::new(ErrorKind::UnreadableInput, "unreadable"));
    let no_handle = || Err(Error::new(ErrorKind::InvalidInput, "no handle"));
    let text = "Client shared memory is disabled. Start the server with '--allow-client-shm=true' to enable.";
    for verb in [
        register("", unreadable()),
        register_cuda("", no_handle()),
        unregister(Memory::System, ""),
        unregister(Memory::Cuda, ""),
    ] {
        closed.refuses(verb, ErrorKind::Unsupported, text);
    }
    assert!(listed(&closed, Memory::System, "").is_empty());
    let text = "'region name' is necessary to register system shared memory region";
    open.refuses(register("", unreadable()), ErrorKind::InvalidInput, text);
    let text = "'region name' is necessary to register cuda shared memory region";
    open.refuses(register_cuda("", no_handle()), ErrorKind::InvalidInput, text);
    open.refuses(register("r", unreadable()), ErrorKind::UnreadableInput, "unreadable");
    let missing = Ok(RegionPlace { key: "/kushi-nowhere".into(), offset: 0, byte_size: 1 });
    let text = "Unable to open shared memory region: '/kushi-nowhere'";
    assert!(matches!(
        open.ask(register("r", missing)),
        Err((ErrorKind::UnreadableInput, said)) if said.starts_with(text)
    ));
}
