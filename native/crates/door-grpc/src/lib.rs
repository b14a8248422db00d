//! The gRPC door: the Open Inference Protocol over HTTP/2, for any client.
//!
//! A connection is a task of its io thread, and so is each call on it. Inference messages are read and written where
//! their parts lie; tensors are not copied on their way in. What is asked beside inference is read and rendered as
//! protobuf here, and answered by the data plane as for every other door.
#![forbid(unsafe_code)]

mod answer;
mod call;
mod closing;
mod coding;
mod connection;
mod context;
mod description;
mod door;
mod frame_heads;
mod framing;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
mod handover;
mod head;
mod health;
mod infer;
mod inputs;
mod keep_alive;
mod line;
mod load_report;
mod management;
mod message;
mod messages;
mod method;
mod options;
mod patience;
mod reflection;
mod status;
mod stream;
mod timeout;
mod watched;

pub use context::Grpc;
pub use description::Description;
pub use options::{GrpcLimits, GrpcOptions, KeepAlive};
