//! What a verb is answered with.

use kushi_core::{ConfigTexts, DataType, Snapshot, State};
use kushi_shm::{CudaRegistration, Registration};

use crate::{LogSettings, ResponseRow, ServerMetadata, TraceSetting};

#[derive(Clone, Debug)]
pub enum VerbAnswer {
    /// What was asked for has happened.
    Done,
    /// Whether the server is live or ready, or the model ready.
    Health(bool),
    ServerMetadata(ServerMetadata),
    ModelMetadata(ModelMetadata),
    ModelConfig(ConfigTexts),
    ModelStatistics(Vec<ModelStatistics>),
    Index(Vec<IndexEntry>),
    Regions(Vec<Registration>),
    CudaRegions(Vec<CudaRegistration>),
    LogSettings {
        /// Where lines go; empty for standard error.
        file: String,
        settings: LogSettings,
    },
    TraceSetting(TraceSetting),
    /// As Prometheus reads it.
    Metrics(String),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelMetadata {
    pub name: String,
    pub versions: Vec<u64>,
    pub platform: String,
    pub inputs: Vec<TensorMetadata>,
    pub outputs: Vec<TensorMetadata>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorMetadata {
    pub name: String,
    pub datatype: DataType,
    /// With the batch dimension, if there is one; -1 is any size.
    pub shape: Vec<i64>,
}

#[derive(Clone, Debug)]
pub struct ModelStatistics {
    pub name: String,
    pub version: u64,
    pub counts: Snapshot,
    /// Of a decoupled model: of the first responses, of the second ones, and so on.
    pub responses: Vec<ResponseRow>,
}

/// A model or a version of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexEntry {
    pub name: String,
    /// `None`: no version is known.
    pub version: Option<u64>,
    /// `None`: it is there to be loaded.
    pub state: Option<State>,
    /// Empty: none.
    pub reason: String,
}
