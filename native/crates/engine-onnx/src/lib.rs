//! Runs ONNX models on ONNX Runtime, through its C API.
//!
//! [`init`] loads the shared library, once per process. An [`OnnxSession`] is a loaded model, shared
//! by any number of instances: ONNX Runtime's `Run` may be called from several threads at once on
//! the CPU provider. An [`OnnxEngine`] executes batches of the core on a session.
//!
//! All `unsafe` of this crate stands in front of a C function; the modules `status`, `value` and
//! `session` wrap them so that everything above is safe code.

mod engine;
mod environment;
mod measure;
mod session;
mod status;
mod strings;
mod types;
mod value;

pub use engine::OnnxEngine;
pub use environment::{MINIMUM_VERSION, init};
pub use session::{OnnxSession, SessionOptions, TensorInfo};
