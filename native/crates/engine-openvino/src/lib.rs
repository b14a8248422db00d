//! Runs models on OpenVINO, through its C API.
//!
//! [`init`] loads the shared library, once per process. An [`OpenVinoModel`] is a network that was read, whose shapes
//! may still change; compiled for a device it is a [`CompiledModel`], with an infer request for each instance: they
//! share the weights. An [`OpenVinoEngine`] executes batches of the core on it.
//!
//! All `unsafe` of this crate stands in front of a C function; the modules `api`, `library`, `model`, `request`,
//! `tensor` and `strings` wrap them so that everything above is safe code.

mod api;
mod compiled;
mod engine;
mod library;
mod measure;
mod model;
mod request;
mod status;
mod strings;
mod tensor;
mod types;

pub use compiled::{CompileOptions, CompiledModel, FixedRows};
pub use engine::OpenVinoEngine;
pub use library::{MINIMUM_VERSION, devices, init};
pub use model::OpenVinoModel;
