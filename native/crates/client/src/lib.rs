//! A client of the Open Inference Protocol, without Python: one call, whichever way it travels.
#![forbid(unsafe_code)]

mod address;
mod background;
mod beside;
mod call;
mod decode;
mod encode;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
mod grpc;
mod headers;
mod http;
mod inputs;
mod kinds;
pub mod local;
pub mod relay;
mod remote;
mod socket;
mod tls;

pub use call::{Answer, Call, CallAnswer, Carried, Draft, Held, InferCall, Streamed, WantedOutput};
pub use remote::{RemoteClient, RemoteOptions, Ticket};
pub use tls::{Tls, TlsOptions};
