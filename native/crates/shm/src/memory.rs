//! What a region may be made of.

use bytes::BytesMut;

use crate::cuda::{CudaRegion, CudaRegistration};
use crate::region::{Region, RegionError, Registration};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Memory {
    System,
    Cuda,
}

/// A region, as its client has registered it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Registered {
    System(Registration),
    Cuda(CudaRegistration),
}

#[derive(Debug)]
pub(crate) enum AnyRegion {
    System(Region),
    Cuda(CudaRegion),
}

impl Memory {
    pub const fn name(self) -> &'static str {
        match self {
            Self::System => "system",
            Self::Cuda => "cuda",
        }
    }
}

impl AnyRegion {
    pub(crate) fn memory(&self) -> Memory {
        match self {
            Self::System(_) => Memory::System,
            Self::Cuda(_) => Memory::Cuda,
        }
    }

    pub(crate) fn registered(&self) -> Registered {
        match self {
            Self::System(region) => Registered::System(region.registration.clone()),
            Self::Cuda(region) => Registered::Cuda(region.registration.clone()),
        }
    }

    pub(crate) fn name(&self) -> &str {
        match self {
            Self::System(region) => &region.registration.name,
            Self::Cuda(region) => &region.registration.name,
        }
    }

    pub(crate) fn byte_size(&self) -> u64 {
        match self {
            Self::System(region) => region.registration.byte_size,
            Self::Cuda(region) => region.registration.byte_size,
        }
    }

    pub(crate) fn read(&self, offset: u64, byte_size: usize, into: &mut BytesMut) -> Result<(), RegionError> {
        match self {
            Self::System(region) => region.read(offset, byte_size, into),
            Self::Cuda(region) => region.read(offset, byte_size, into),
        }
    }

    /// Once nobody reads or writes it any more. One of system memory is closed when it is dropped.
    pub(crate) fn close(&self) {
        if let Self::Cuda(region) = self {
            region.close();
        }
    }

    pub(crate) fn write(&self, offset: u64, bytes: &[u8]) -> Result<(), RegionError> {
        match self {
            Self::System(region) => region.write(offset, bytes),
            Self::Cuda(region) => region.write(offset, bytes),
        }
    }
}
