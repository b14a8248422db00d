//! Runs ONNX models on ONNX Runtime, through its C API.
//!
//! [`init`] loads the shared library, once per process. An [`OnnxSession`] is a loaded model, shared
//! by any number of instances: ONNX Runtime's `Run` may be called from several threads at once on
//! the CPU provider. On other providers each instance has a session of its own. An [`OnnxEngine`]
//! executes batches of the core on a session.
//!
//! All `unsafe` of this crate stands in front of a C function; the modules `status`, `value`,
//! `assignment`, `operators`, `options`, `plugin`, `provider` and `session` wrap them so that everything above is safe code.

mod assignment;
mod contents;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod division;
mod engine;
mod environment;
mod measure;
mod operators;
mod options;
mod plugin;
mod provider;
mod rank;
mod session;
mod status;
mod strings;
mod texts;
mod turns;
mod types;
mod value;

pub use contents::has_operator;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
pub use division::survive_divisions;
pub use engine::{OnnxEngine, Sessions};
pub use environment::{GlobalThreads, MINIMUM_VERSION, init};
pub use options::{Entry, SessionOptions};
pub use plugin::register_provider_library;
pub use provider::{Accelerator, Provider, available_providers};
pub use session::OnnxSession;
pub use texts::{Activation, Pooling, TextEngine, TextModel, TextOptions};

/// Other processors give such a division a result by themselves.
#[cfg(not(all(target_os = "linux", target_arch = "x86_64")))]
pub fn survive_divisions() {}
