//! What may be asked of a server beside inference, with its arguments.

use kushi_core::Error;
use kushi_shm::{CudaHandle, Memory};

use crate::{AskedVersion, LogChange, Overrides, TraceChange};

/// What a client sent, or why it cannot be read. The verb says so when its turn comes: first it looks at what the
/// client may do, and at what it has named.
pub type Sent<T> = Result<T, Error>;

/// Named as the protocol's gRPC methods are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verb {
    ServerLive,
    ServerReady,
    ServerMetadata,
    /// Here and below: any version is the latest.
    ModelReady {
        model: String,
        version: AskedVersion,
    },
    ModelMetadata {
        model: String,
        version: AskedVersion,
    },
    ModelConfig {
        model: String,
        version: AskedVersion,
    },
    /// `model`: empty for all. Any version is all versions.
    ModelStatistics {
        model: String,
        version: AskedVersion,
    },
    RepositoryIndex {
        ready_only: bool,
    },
    RepositoryModelLoad {
        model: String,
        overrides: Overrides,
    },
    RepositoryModelUnload {
        model: String,
        /// With the models of an ensemble.
        dependents: bool,
    },
    /// Here and below: an empty region is all of them.
    SharedMemoryStatus {
        memory: Memory,
        region: String,
    },
    SystemSharedMemoryRegister {
        region: String,
        place: Sent<RegionPlace>,
    },
    CudaSharedMemoryRegister {
        region: String,
        place: Sent<CudaPlace>,
    },
    SharedMemoryUnregister {
        memory: Memory,
        region: String,
    },
    /// A change of nothing asks.
    LogSettings(LogChange),
    /// `model`: empty for all. A change of nothing asks.
    TraceSetting {
        model: String,
        change: Sent<TraceChange>,
    },
    /// Of all models, as Prometheus reads it.
    Metrics,
}

/// Where a region of system memory lies: in the shared memory object `key`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegionPlace {
    pub key: String,
    pub offset: u64,
    pub byte_size: u64,
}

/// Where a region on a GPU lies: at the start of the allocation that `handle` names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CudaPlace {
    pub handle: CudaHandle,
    pub device_id: u64,
    pub byte_size: u64,
}
