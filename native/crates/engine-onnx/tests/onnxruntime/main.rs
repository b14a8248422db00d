//! The engine on a real ONNX Runtime, with models that the tests write themselves.

mod conformance;
mod endless;
mod engine;
#[path = "../library/mod.rs"]
mod library;
mod models;
mod options;
mod session;

fn init() {
    kushi_engine_onnx::init(&library::library(), None).expect("onnxruntime starts");
}
