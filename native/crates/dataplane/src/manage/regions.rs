//! Regions of shared memory: what there is, register, unregister.

use kushi_core::{Error, ErrorKind};
use kushi_shm::{CudaRegistration, Memory, RegionError, RegionFault, Registered, Registration, check_gpus};

use super::BegunVerb;
use crate::{CudaPlace, DataPlane, RegionPlace, Sent, VerbAnswer};

impl DataPlane {
    pub(super) fn region_status(&self, memory: Memory, region: &str) -> Result<VerbAnswer, Error> {
        if region.is_empty() {
            return Ok(match memory {
                Memory::System => VerbAnswer::Regions(self.regions.all()),
                Memory::Cuda => VerbAnswer::CudaRegions(self.regions.all_cuda()),
            });
        }
        let registered_as = |found, asked| {
            Err(not_found(format!(
                "The region named '{region}' is registered as {found} shared memory, not {asked} shared memory"
            )))
        };
        match (self.regions.find(region), memory) {
            (Some(Registered::System(found)), Memory::System) => Ok(VerbAnswer::Regions(vec![found])),
            (Some(Registered::Cuda(found)), Memory::Cuda) => Ok(VerbAnswer::CudaRegions(vec![found])),
            (Some(Registered::System(_)), Memory::Cuda) => registered_as("system", "CUDA"),
            (Some(Registered::Cuda(_)), Memory::System) => registered_as("CUDA", "system"),
            (None, _) => {
                let memory = memory.name();
                Err(not_found(format!("Unable to find {memory} shared memory region: '{region}'")))
            }
        }
    }

    pub(super) fn register_region(
        &self,
        name: String,
        place: Sent<RegionPlace>,
    ) -> Result<VerbAnswer, Error> {
        self.check_may_register(Memory::System, &name)?;
        let RegionPlace { key, offset, byte_size } = place?;
        let registration = Registration { name, key, offset, byte_size };
        self.regions.register(registration).map_err(region_error)?;
        Ok(VerbAnswer::Done)
    }

    /// The driver of GPUs takes its time.
    pub(super) fn register_cuda_region(
        &self,
        name: String,
        place: Sent<CudaPlace>,
    ) -> Result<BegunVerb, Error> {
        self.check_may_register(Memory::Cuda, &name)?;
        Ok(BegunVerb::Aside(Box::new(move |plane| {
            let refused = |error: RegionError| {
                // Clients hear Triton's words alone.
                if let Some(cause) = &error.cause {
                    plane.complaints.warn("CUDA region", || format!("{error}: {cause}"));
                }
                region_error(error)
            };
            // As by a Triton without GPUs: what else was sent is not looked at.
            check_gpus(&name).map_err(refused)?;
            let CudaPlace { handle, device_id, byte_size } = place?;
            let registration = CudaRegistration { name, device_id, byte_size };
            plane.regions.register_cuda(registration, &handle).map_err(refused)?;
            Ok(VerbAnswer::Done)
        })))
    }

    pub(super) fn unregister_region(&self, memory: Memory, region: String) -> Result<BegunVerb, Error> {
        self.check_client_regions()?;
        let unregister = move |plane: &Self| match &*region {
            "" => plane.regions.unregister_all(memory),
            region => plane.regions.unregister(memory, region),
        };
        Ok(match memory {
            Memory::System => {
                unregister(self);
                BegunVerb::Done(VerbAnswer::Done)
            }
            Memory::Cuda => BegunVerb::Aside(Box::new(move |plane| {
                unregister(plane);
                Ok(VerbAnswer::Done)
            })),
        })
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
