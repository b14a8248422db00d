//! Regions of shared memory: what there is, register, unregister.
//!
//! There is no CUDA memory here: it is answered as by a Triton that was built without GPUs.

use kushi_core::{Error, ErrorKind};
use kushi_shm::{RegionError, RegionFault, Registration};

use crate::{Answer, DataPlane, Memory, RegionPlace, Sent};

impl Memory {
    const fn name(self) -> &'static str {
        match self {
            Self::System => "system",
            Self::Cuda => "cuda",
        }
    }
}

impl DataPlane {
    pub(super) fn region_status(&self, memory: Memory, region: &str) -> Result<Vec<Registration>, Error> {
        if region.is_empty() {
            return Ok(if memory == Memory::System { self.regions.all() } else { Vec::new() });
        }
        match (self.regions.find(region), memory) {
            (Some(found), Memory::System) => Ok(vec![found]),
            (Some(_), Memory::Cuda) => Err(not_found(format!(
                "The region named '{region}' is registered as system shared memory, not CUDA shared memory"
            ))),
            (None, _) => {
                let memory = memory.name();
                Err(not_found(format!("Unable to find {memory} shared memory region: '{region}'")))
            }
        }
    }

    pub(super) fn register_region(&self, name: String, place: Sent<RegionPlace>) -> Result<Answer, Error> {
        self.check_may_register(Memory::System, &name)?;
        let RegionPlace { key, offset, byte_size } = place?;
        let registration = Registration { name, key, offset, byte_size };
        self.regions.register(registration).map_err(region_error)?;
        Ok(Answer::Done)
    }

    pub(super) fn refuse_cuda_region(&self, name: &str) -> Error {
        let refusal = self.check_may_register(Memory::Cuda, name).err();
        refusal.unwrap_or_else(|| {
            let text = format!("failed to register CUDA shared memory region: '{name}', GPUs not supported");
            Error::invalid(text)
        })
    }

    pub(super) fn unregister_region(&self, memory: Memory, region: &str) -> Result<Answer, Error> {
        self.check_client_regions()?;
        if memory == Memory::System && region.is_empty() {
            self.regions.unregister_all();
        } else if memory == Memory::System {
            self.regions.unregister(region);
        }
        Ok(Answer::Done)
    }

    fn check_may_register(&self, memory: Memory, name: &str) -> Result<(), Error> {
        self.check_client_regions()?;
        if name.is_empty() {
            let memory = memory.name();
            let text = format!("'region name' is necessary to register {memory} shared memory region");
            return Err(Error::invalid(text));
        }
        Ok(())
    }

    fn check_client_regions(&self) -> Result<(), Error> {
        if self.allow_client_regions {
            return Ok(());
        }
        let text =
            "Client shared memory is disabled. Start the server with '--allow-client-shm=true' to enable.";
        Err(Error::new(ErrorKind::Unsupported, text))
    }
}

fn not_found(text: String) -> Error {
    Error::new(ErrorKind::RegionNotFound, text)
}

/// What is wrong with a region, as clients hear it.
pub fn region_error(error: RegionError) -> Error {
    let kind = match error.fault {
        RegionFault::Invalid => ErrorKind::InvalidInput,
        RegionFault::Unknown => ErrorKind::RegionNotFound,
        RegionFault::Unusable => ErrorKind::UnreadableInput,
        RegionFault::Full => ErrorKind::Overloaded,
    };
    Error::new(kind, error.text)
}
