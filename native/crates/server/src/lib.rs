//! A server: a data plane, io threads, and the doors that are open.
#![forbid(unsafe_code)]

mod after_peak;
mod server;
mod socket_file;

pub use kushi_dataplane::{
    Action, Asker, DataPlaneOptions, Destination, GpuOptions, LogChange, LogForm, LogSettings, LogSwitch,
    MetricsOptions, Order, Orders, Overrides, ServerMetadata, StepSpec, TraceFile, TraceLevel, TraceOptions,
    TraceSetting,
};
pub use kushi_door_grpc::{Description, GrpcLimits, GrpcOptions, KeepAlive};
pub use kushi_door_http::{HttpLimits, HttpOptions, routes};
pub use kushi_net::{Limits, TlsFiles};
pub use kushi_oip::Restriction;
pub use kushi_otlp::{CollectorOptions, Exporter};
pub use server::{Server, ServerOptions};
