//! A server: a data plane, io threads, and the doors that are open.
#![forbid(unsafe_code)]

mod server;
mod socket_file;

pub use kushi_dataplane::{
    Action, DataPlaneOptions, LogChange, LogForm, LogSettings, LogSwitch, Order, Orders, ServerMetadata,
    StepSpec,
};
pub use kushi_door_http::{HttpLimits, HttpOptions, Restriction, routes};
pub use kushi_net::{Limits, TlsOptions};
pub use server::{Server, ServerOptions};
