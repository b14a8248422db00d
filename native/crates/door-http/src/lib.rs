//! The HTTP doors: the Open Inference Protocol, and metrics on a port of their own.
//!
//! A request is parsed, handed to the data plane and answered on the io thread of its connection.
#![forbid(unsafe_code)]

mod aligned;
mod answer;
mod body;
mod coding;
mod connection;
mod context;
mod document;
mod door;
mod events;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
mod generate;
mod generate_json;
mod head;
mod header_names;
mod health;
mod infer;
mod infer_headers;
mod inputs;
mod json_length;
mod limits;
mod load_report;
mod members;
mod outputs;
mod owed;
mod path;
mod playground;
mod prepare;
mod raw;
mod refusal;
mod request;
mod response;
mod route;
mod routed;
mod routes;
mod shared_memory;
mod stream;
mod texts;
mod verb;

#[cfg(test)]
extern crate self as kushi_door_http;

pub(crate) use context::HttpContext;
pub use context::{Http, HttpOptions};
pub use limits::HttpLimits;
pub use routes::routes;
