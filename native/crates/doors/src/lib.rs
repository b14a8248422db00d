//! The doors of a server: thin edges that parse, ask the core, and answer.
//!
//! Each io thread is a current-thread runtime with connections of its own; a request is parsed, often
//! run, and answered on the thread that its connection lives on.
#![forbid(unsafe_code)]

#[cfg(test)]
extern crate self as kushi_doors;

mod activity;
mod budget;
mod connections;
mod crowd;
mod departures;
mod handshakes;
mod house;
mod http;
mod io;
mod leading_integer;
mod leaving;
mod limits;
mod listen;
mod local;
mod log_switch;
mod machine;
mod manage;
mod metrics;
mod orders;
mod pending;
mod pool;
mod runs;
mod server;
mod tls;

use kushi_oip::json;

#[cfg(fuzzing)]
pub use http::fuzzing;
pub use http::restrictions::Restriction;
pub use limits::Limits;
pub use log_switch::{LogChange, LogForm, LogSettings, LogSwitch};
pub use manage::routes;
pub use orders::{Action, Order, Orders};
pub use server::{Server, ServerOptions};
pub use tls::TlsOptions;
