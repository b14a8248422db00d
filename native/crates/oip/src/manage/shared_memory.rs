//! Regions of shared memory: what there is, register, unregister.
//!
//! There is no CUDA memory here: its routes answer as those of a Triton that was built without GPUs.

use kushi_core::{Error, ErrorKind};
use kushi_dataplane::DataPlane;
use kushi_shm::{RegionError, RegionFault, Registration};

use crate::json::write;
use crate::manage::body::Json;
use crate::manage::reply::Reply;
use crate::manage::route::{Memory, RegionAction};

/// `region`: empty for all.
pub(super) fn answer(
    plane: &DataPlane,
    memory: Memory,
    region: &str,
    action: RegionAction,
    body: &[u8],
) -> Result<Reply, Error> {
    if action == RegionAction::Status {
        return status(plane, memory, region);
    }
    if !plane.allow_client_regions {
        let text =
            "Client shared memory is disabled. Start the server with '--allow-client-shm=true' to enable.";
        return Err(Error::new(ErrorKind::Unsupported, text));
    }
    if action == RegionAction::Register {
        register(plane, memory, region, body)?;
    } else if memory == Memory::System && region.is_empty() {
        plane.regions.unregister_all();
    } else if memory == Memory::System {
        plane.regions.unregister(region);
    }
    Ok(Reply::empty(200))
}

fn status(plane: &DataPlane, memory: Memory, region: &str) -> Result<Reply, Error> {
    let found = match (memory, region) {
        (Memory::System, "") => plane.regions.all(),
        (Memory::Cuda, "") => Vec::new(),
        _ => match (plane.regions.find(region), memory) {
            (Some(found), Memory::System) => vec![found],
            (Some(_), Memory::Cuda) => {
                return Err(not_found(format!(
                    "The region named '{region}' is registered as system shared memory, not CUDA shared memory"
                )));
            }
            (None, _) => {
                let memory = if memory == Memory::System { "system" } else { "cuda" };
                return Err(not_found(format!("Unable to find {memory} shared memory region: '{region}'")));
            }
        },
    };
    let mut out = vec![b'['];
    for Registration { name, key, offset, byte_size } in found {
        out.extend_from_slice(if out.len() > 1 { b",{\"name\":" } else { b"{\"name\":" });
        write::string(&mut out, name.as_bytes());
        out.extend_from_slice(b",\"key\":");
        write::string(&mut out, key.as_bytes());
        out.extend_from_slice(b",\"offset\":");
        write::integer(&mut out, offset);
        out.extend_from_slice(b",\"byte_size\":");
        write::integer(&mut out, byte_size);
        out.push(b'}');
    }
    out.push(b']');
    Ok(Reply::json(out))
}

fn register(plane: &DataPlane, memory: Memory, region: &str, body: &[u8]) -> Result<(), Error> {
    if region.is_empty() {
        let memory = if memory == Memory::System { "system" } else { "cuda" };
        let text = format!("'region name' is necessary to register {memory} shared memory region");
        return Err(Error::invalid(text));
    }
    if memory == Memory::Cuda {
        let text = format!("failed to register CUDA shared memory region: '{region}', GPUs not supported");
        return Err(Error::invalid(text));
    }
    let registration = registration(region, body)?;
    plane.regions.register(registration).map_err(region_error)
}

fn registration(region: &str, body: &[u8]) -> Result<Registration, Error> {
    let document = Json::required(body)?;
    let member = |name| document.member(name);
    let missing = |name| Error::invalid(format!("Shared memory register request has no '{name}' field"));
    let key = member("key").ok_or_else(|| missing("key"))?.text()?.into_owned();
    let offset = member("offset").map_or(Ok(0), Json::unsigned)?;
    let byte_size = member("byte_size").ok_or_else(|| missing("byte_size"))?.unsigned()?;
    Ok(Registration { name: region.into(), key, offset, byte_size })
}

fn not_found(text: String) -> Error {
    Error::new(ErrorKind::RegionNotFound, text)
}

pub fn region_error(error: RegionError) -> Error {
    let kind = match error.fault {
        RegionFault::Invalid => ErrorKind::InvalidInput,
        RegionFault::Unknown => ErrorKind::RegionNotFound,
        RegionFault::Unusable => ErrorKind::UnreadableInput,
        RegionFault::Full => ErrorKind::Overloaded,
    };
    Error::new(kind, error.text)
}
