//! The messages of everything but inference, with the field numbers of Triton's `grpc_service.proto`.

use std::collections::{BTreeMap, HashMap};

use bytes::Bytes;
use prost::{Message, Oneof};

#[derive(Clone, PartialEq, Message)]
pub(crate) struct HealthCheckRequest {
    #[prost(string, tag = "1")]
    pub service: String,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct HealthCheckResponse {
    #[prost(int32, tag = "1")]
    pub status: i32,
}

/// Whether something is live or ready.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Health {
    #[prost(bool, tag = "1")]
    pub well: bool,
}

/// Not of the protocol: for our own clients.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Metrics {
    #[prost(string, tag = "1")]
    pub text: String,
}

/// What is asked of a model, or of a region.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Named {
    #[prost(string, tag = "1")]
    pub name: String,
    /// Models alone have one.
    #[prost(string, tag = "2")]
    pub version: String,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct ServerMetadataResponse {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(string, tag = "2")]
    pub version: String,
    #[prost(string, repeated, tag = "3")]
    pub extensions: Vec<String>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct TensorMetadata {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(string, tag = "2")]
    pub datatype: String,
    #[prost(int64, repeated, tag = "3")]
    pub shape: Vec<i64>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct ModelMetadataResponse {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(string, repeated, tag = "2")]
    pub versions: Vec<String>,
    #[prost(string, tag = "3")]
    pub platform: String,
    #[prost(message, repeated, tag = "4")]
    pub inputs: Vec<TensorMetadata>,
    #[prost(message, repeated, tag = "5")]
    pub outputs: Vec<TensorMetadata>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct ModelConfigResponse {
    /// A `ModelConfig`, as the control plane has written it.
    #[prost(bytes = "bytes", tag = "1")]
    pub config: Bytes,
}

#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub(crate) struct StatisticDuration {
    #[prost(uint64, tag = "1")]
    pub count: u64,
    #[prost(uint64, tag = "2")]
    pub ns: u64,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct InferStatistics {
    #[prost(message, optional, tag = "1")]
    pub success: Option<StatisticDuration>,
    #[prost(message, optional, tag = "2")]
    pub fail: Option<StatisticDuration>,
    #[prost(message, optional, tag = "3")]
    pub queue: Option<StatisticDuration>,
    #[prost(message, optional, tag = "4")]
    pub compute_input: Option<StatisticDuration>,
    #[prost(message, optional, tag = "5")]
    pub compute_infer: Option<StatisticDuration>,
    #[prost(message, optional, tag = "6")]
    pub compute_output: Option<StatisticDuration>,
    #[prost(message, optional, tag = "7")]
    pub cache_hit: Option<StatisticDuration>,
    #[prost(message, optional, tag = "8")]
    pub cache_miss: Option<StatisticDuration>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct InferBatchStatistics {
    #[prost(uint64, tag = "1")]
    pub batch_size: u64,
    #[prost(message, optional, tag = "2")]
    pub compute_input: Option<StatisticDuration>,
    #[prost(message, optional, tag = "3")]
    pub compute_infer: Option<StatisticDuration>,
    #[prost(message, optional, tag = "4")]
    pub compute_output: Option<StatisticDuration>,
}

/// Of `xds.data.orca.v3`, as far as we tell it.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct OrcaLoadReport {
    #[prost(btree_map = "string, double", tag = "8")]
    pub named_metrics: BTreeMap<String, f64>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct InferResponseStatistics {
    #[prost(message, optional, tag = "1")]
    pub compute_infer: Option<StatisticDuration>,
    #[prost(message, optional, tag = "2")]
    pub compute_output: Option<StatisticDuration>,
    #[prost(message, optional, tag = "3")]
    pub success: Option<StatisticDuration>,
    #[prost(message, optional, tag = "4")]
    pub fail: Option<StatisticDuration>,
    #[prost(message, optional, tag = "5")]
    pub empty_response: Option<StatisticDuration>,
    #[prost(message, optional, tag = "6")]
    pub cancel: Option<StatisticDuration>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct ModelStatistics {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(string, tag = "2")]
    pub version: String,
    #[prost(uint64, tag = "3")]
    pub last_inference: u64,
    #[prost(uint64, tag = "4")]
    pub inference_count: u64,
    #[prost(uint64, tag = "5")]
    pub execution_count: u64,
    #[prost(message, optional, tag = "6")]
    pub inference_stats: Option<InferStatistics>,
    #[prost(message, repeated, tag = "7")]
    pub batch_stats: Vec<InferBatchStatistics>,
    #[prost(btree_map = "string, message", tag = "9")]
    pub response_stats: BTreeMap<String, InferResponseStatistics>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct ModelStatisticsResponse {
    #[prost(message, repeated, tag = "1")]
    pub model_stats: Vec<ModelStatistics>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct RepositoryIndexRequest {
    #[prost(string, tag = "1")]
    pub repository_name: String,
    #[prost(bool, tag = "2")]
    pub ready: bool,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct ModelIndex {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(string, tag = "2")]
    pub version: String,
    #[prost(string, tag = "3")]
    pub state: String,
    #[prost(string, tag = "4")]
    pub reason: String,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct RepositoryIndexResponse {
    #[prost(message, repeated, tag = "1")]
    pub models: Vec<ModelIndex>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct RepositoryParameter {
    #[prost(oneof = "Choice", tags = "1, 2, 3, 4")]
    pub choice: Option<Choice>,
}

#[derive(Clone, PartialEq, Oneof)]
pub(crate) enum Choice {
    #[prost(bool, tag = "1")]
    Bool(bool),
    #[prost(int64, tag = "2")]
    Int64(i64),
    #[prost(string, tag = "3")]
    String(String),
    #[prost(bytes = "bytes", tag = "4")]
    Bytes(Bytes),
}

/// To load a model, or to unload one.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct RepositoryModelRequest {
    #[prost(string, tag = "1")]
    pub repository_name: String,
    #[prost(string, tag = "2")]
    pub model_name: String,
    #[prost(map = "string, message", tag = "3")]
    pub parameters: HashMap<String, RepositoryParameter>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct RegionStatus {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(string, tag = "2")]
    pub key: String,
    #[prost(uint64, tag = "3")]
    pub offset: u64,
    #[prost(uint64, tag = "4")]
    pub byte_size: u64,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct SharedMemoryStatusResponse {
    #[prost(map = "string, message", tag = "1")]
    pub regions: HashMap<String, RegionStatus>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct SystemSharedMemoryRegisterRequest {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(string, tag = "2")]
    pub key: String,
    #[prost(uint64, tag = "3")]
    pub offset: u64,
    #[prost(uint64, tag = "4")]
    pub byte_size: u64,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct CudaRegionStatus {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(uint64, tag = "2")]
    pub device_id: u64,
    #[prost(uint64, tag = "3")]
    pub byte_size: u64,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct CudaSharedMemoryStatusResponse {
    #[prost(map = "string, message", tag = "1")]
    pub regions: HashMap<String, CudaRegionStatus>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct CudaSharedMemoryRegisterRequest {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(bytes = "bytes", tag = "2")]
    pub raw_handle: Bytes,
    #[prost(int64, tag = "3")]
    pub device_id: i64,
    #[prost(uint64, tag = "4")]
    pub byte_size: u64,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct TraceValue {
    #[prost(string, repeated, tag = "1")]
    pub value: Vec<String>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct TraceSettings {
    #[prost(map = "string, message", tag = "1")]
    pub settings: HashMap<String, TraceValue>,
    /// Requests alone have one.
    #[prost(string, tag = "2")]
    pub model_name: String,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct LogValue {
    #[prost(oneof = "LogChoice", tags = "1, 2, 3")]
    pub choice: Option<LogChoice>,
}

#[derive(Clone, PartialEq, Oneof)]
pub(crate) enum LogChoice {
    #[prost(bool, tag = "1")]
    Bool(bool),
    #[prost(uint32, tag = "2")]
    Uint32(u32),
    #[prost(string, tag = "3")]
    String(String),
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct LogSettings {
    #[prost(map = "string, message", tag = "1")]
    pub settings: HashMap<String, LogValue>,
}
