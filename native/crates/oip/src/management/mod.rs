//! Everything but inference, in JSON: the arguments of the data plane's verbs, and what they are answered with.
//!
//! Between our own processes a verb has the name of its gRPC method, and one object of arguments, with the names of
//! that method's fields. The HTTP door reads names from its paths, and the rest from bodies as Triton takes them.

mod answers;
mod document;
mod repository;
mod settings;
mod shared_memory;
mod verbs;

pub use answers::{call_answer, render};
pub use repository::{load_parameters, ready_only, repository_named, unload_dependents};
pub use settings::{log_change, trace_change};
pub use shared_memory::{cuda_place, region_place};
pub use verbs::verb;
