//! JSON as RapidJSON reads and writes it, because clients of Triton test for its texts and offsets.
//!
//! No tree is built: one pass checks the syntax and remembers where the wanted members lie
//! ([`Scanner`]), a second one turns a member's span into values ([`read`]).

mod fault;
pub mod read;
mod scan;
pub mod write;

pub use fault::{Fault, Syntax};
pub use scan::{Key, Scanner, Span, USUAL_DEPTH};
