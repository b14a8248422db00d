//! Tensors as Python's arrays, and back.
//!
//! What always holds: small arrays are copied; large ones are borrowed where they lie, with an owner
//! that keeps their memory for as long as anything refers to it, on either side. Everything here is
//! called with the GIL held; the owners may be dropped on any thread.

mod datatypes;
mod dlpack;
mod fault;
mod lend;
mod memory;
mod read;
mod strings;
mod write;

pub use dlpack::{CPU, capsule};
pub use fault::Fault;
pub use lend::Joined;
pub use read::{is_array, tensor};
pub use write::{array, writable_array};

/// Arrays below this are copied: it costs less than keeping their owner.
const BORROWED_BYTES: usize = 16 << 10;
