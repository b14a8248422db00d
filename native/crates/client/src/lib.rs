//! A client of the Open Inference Protocol, without Python: one call, whichever way it travels.
#![forbid(unsafe_code)]

mod call;
mod http;
pub mod local;
pub mod relay;

pub use call::{Answer, Call, CallAnswer, Carried, Draft, InferCall, WantedOutput};
pub use http::{HttpClient, HttpOptions, Ticket, Tls, TlsOptions};
