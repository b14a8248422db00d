//! Runs models that are written in Python.
//!
//! A [`PythonEngine`] calls a Python object once per batch, on the thread of an instance, with arrays that show the
//! batch's memory. The GIL is held for that call and for nothing else; what the object answers is copied before the
//! call ends, so that nothing of Python travels with the answers. Whatever the object raises ends its batch with an
//! error, and no thread.

mod engine;
pub mod exit;
mod late;
mod outputs;
mod parameters;
mod raised;

pub use engine::PythonEngine;
pub use parameters::to_dict;
