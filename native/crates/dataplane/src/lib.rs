//! What is the same for every way in: the models, what can be asked of them and about them, and what becomes of a
//! request.
//!
//! [`Registry`] knows the versions. An [`Inference`] finds one and begins there: it hands in the request that is made for
//! it, and goes on to the next one where a reload took its place. In a [`OneCall`] a thread waits for its answer. [`DataPlane`] is all of it together,
//! with what is asked about it and set. Nothing here knows a transport.

#![forbid(unsafe_code)]

mod call_cycles;
mod histogram;
mod inference;
mod leaving;
mod load_report;
mod log_switch;
mod machine;
mod manage;
pub mod metrics;
mod model_metrics;
mod observed;
mod one_call;
mod orders;
mod pipeline;
mod plane;
mod region_inputs;
mod region_outputs;
mod registry;
mod traffic;
mod version_routes;

pub use call_cycles::CallCycles;
pub use inference::{Attempt, Begun, Inference, KeptVersion, Refused};
pub use kushi_core::AskedVersion;
pub use kushi_gpu::GpuOptions;
pub use kushi_shm::{CudaHandle, CudaRegistration, Memory, Registration};
pub use kushi_trace::{
    Change, Destination, Event, NoOutlet, Outlet, Parent, Trace, TraceChange, TraceFile, TraceLevel,
    TraceOptions, TraceSetting, Traces,
};
pub use load_report::LoadFormat;
pub use log_switch::{LogChange, LogForm, LogSettings, LogSwitch};
pub use machine::MachineMeter;
pub use manage::{
    CudaPlace, IndexEntry, ModelMetadata, ModelStatistics, OnAnswer, RegionPlace, Sent, Slow, TensorMetadata,
    Verb, VerbAnswer, region_error, unanswered,
};
pub use model_metrics::{Change as MetricChange, MetricHolder, MetricKind, ModelMetrics};
pub use observed::{MetricsOptions, ResponseRow};
pub use one_call::OneCall;
pub use orders::{Action, Asker, Order, OrderAnswer, Orders, Overrides};
pub use pipeline::StepSpec;
pub use plane::{DataPlane, DataPlaneOptions, InFlight, Phase, ReadInFlight, ServerMetadata};
pub use region_inputs::check_region_bytes;
pub use region_outputs::{aside_bytes, fill_regions, response_aside_bytes};
pub use registry::{Registry, VersionRow};
pub use traffic::{Counted, DoorKind, Traffic};
pub use version_routes::{RouteKey, RoutesSpec, VersionRoutes};
