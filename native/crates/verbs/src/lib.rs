//! Everything but inference, in JSON: the arguments of the data plane's verbs, and what they are answered with.
//!
//! Between our own processes a verb has the name of its gRPC method, and one object of arguments, with the names of
//! that method's fields. The HTTP door reads names from its paths, and the rest from bodies as Triton takes them.
#![forbid(unsafe_code)]

mod answers;
mod document;
mod repository;
mod settings;
mod shared_memory;
mod verbs;

pub use answers::{call_answer, render};
pub use repository::{
    FILE, MOST_FILES, VERSIONS, overrides, ready_only, repository_named, unload_dependents,
};
pub use settings::{log_change, trace_change};
pub use shared_memory::{cuda_place, region_place};
pub use verbs::verb;

/// Of a request that brings no files to be loaded: it has names and a few settings. Small things may be many, and nobody else is served while they are
/// read: a setting of two bytes becomes a hundred.
pub const MOST_BYTES: usize = 64 << 10;
