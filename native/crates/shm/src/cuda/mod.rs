//! A range of a client's memory on a GPU, opened by the handle that CUDA gives of an allocation to other processes.
//!
//! It is read and written by copies of the driver's, which block the thread. The allocation is the client's: it has to
//! keep it until its region has gone. One that it frees earlier makes what the driver makes of it.

mod api;
mod driver;

use std::fmt;

use bytes::BytesMut;

use self::driver::{CudaFailure, Driver, Opened};
use crate::region::{RegionError, RegionFault};

pub const HANDLE_BYTES: usize = 64;

/// A `cudaIpcMemHandle_t`.
pub type CudaHandle = [u8; HANDLE_BYTES];

/// What a client says of a region on a GPU when it registers it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CudaRegistration {
    pub name: String,
    /// As the driver counts the GPUs that this process sees.
    pub device_id: u64,
    pub byte_size: u64,
}

pub(crate) struct CudaRegion {
    pub registration: CudaRegistration,
    memory: Opened,
}

/// Whether there is a driver with a GPU. The first call opens the driver, which takes its time.
pub fn has_gpus() -> bool {
    Driver::get().is_ok()
}

/// The same where it is known by now. Waits for nothing.
pub fn knows_gpus() -> Option<bool> {
    Driver::is_known()
}

/// Fails where there is no GPU, so that the region `name` cannot be registered, whatever else is said of it.
pub fn check_gpus(name: &str) -> Result<(), RegionError> {
    driver(name).map(|_| ())
}

fn driver(name: &str) -> Result<&'static Driver, RegionError> {
    Driver::get().map_err(|cause| {
        let text = format!("failed to register CUDA shared memory region: '{name}', GPUs not supported");
        RegionError::invalid(text).caused_by(cause.to_owned())
    })
}

impl CudaRegion {
    /// Takes its time where it is the first one on its GPU.
    pub(crate) fn open(registration: CudaRegistration, handle: &CudaHandle) -> Result<Self, RegionError> {
        let CudaRegistration { name, device_id, byte_size } = &registration;
        let driver = driver(name)?;
        let gpus = driver.gpus();
        if *device_id >= gpus {
            return Err(RegionError::invalid(format!(
                "failed to register shared memory region '{name}': device_id {device_id} is of no GPU, this server \
                 sees {gpus}"
            )));
        }
        let memory =
            driver.gpu(*device_id).and_then(|gpu| gpu.open(handle)).map_err(|CudaFailure(cause)| {
                let text = "failed to register shared memory region: invalid args";
                RegionError::invalid(text.into()).caused_by(cause)
            })?;
        let refused = |cause| {
            let text = format!("failed to register shared memory region '{name}': invalid args");
            RegionError::invalid(text).caused_by(cause)
        };
        let found = memory.byte_size().map_err(|CudaFailure(cause)| refused(cause))?;
        if *byte_size > found {
            return Err(refused(format!("expected at most {found} bytes, got {byte_size}")));
        }
        Ok(Self { registration, memory })
    }

    /// Appends the `byte_size` bytes from `offset` on. The range lies in the region.
    pub(crate) fn read(&self, offset: u64, byte_size: usize, into: &mut BytesMut) -> Result<(), RegionError> {
        if byte_size == 0 {
            return Ok(());
        }
        into.reserve(byte_size);
        let room = &mut into.spare_capacity_mut()[..byte_size];
        self.memory.read(offset, room).map_err(|error| self.failed("read from", error))?;
        // SAFETY: so many bytes behind the length have just been written, within the capacity.
        unsafe { into.set_len(into.len() + byte_size) };
        Ok(())
    }

    /// Writes `bytes` from `offset` on. The range lies in the region.
    pub(crate) fn write(&self, offset: u64, bytes: &[u8]) -> Result<(), RegionError> {
        if bytes.is_empty() {
            return Ok(());
        }
        self.memory.write(offset, bytes).map_err(|error| self.failed("write to", error))
    }

    /// Once nobody reads or writes it any more. Takes its time.
    pub(crate) fn close(&self) {
        self.memory.close();
    }

    fn failed(&self, what: &str, CudaFailure(error): CudaFailure) -> RegionError {
        let name = &self.registration.name;
        RegionError::new(
            RegionFault::Unusable,
            format!("unable to {what} shared memory region '{name}': {error}"),
        )
    }
}

impl fmt::Debug for CudaRegion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("CudaRegion").field(&self.registration).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_driver_there_are_no_gpus() {
        if has_gpus() {
            return;
        }
        let registration = CudaRegistration { name: "r".into(), device_id: 0, byte_size: 8 };
        let error = CudaRegion::open(registration, &[0; HANDLE_BYTES]).unwrap_err();
        assert_eq!(error.fault, RegionFault::Invalid);
        assert_eq!(error.text, "failed to register CUDA shared memory region: 'r', GPUs not supported");
        assert!(error.cause.is_some());
    }
}
