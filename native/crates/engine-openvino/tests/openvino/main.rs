//! The engine on a real OpenVINO, with ONNX models that the tests write themselves.

mod asked;
mod conformance;
mod ends;
mod library;
// The writer of ONNX files of the tests of the other engine that reads them.
#[allow(dead_code, reason = "some of its models are for ONNX Runtime alone")]
#[path = "../../../engine-onnx/tests/onnxruntime/models.rs"]
mod models;
mod network;
mod strings;

use std::path::Path;
use std::sync::Arc;

use kushi_engine_openvino::{CompileOptions, CompiledModel, OpenVinoModel};

fn init() {
    kushi_engine_openvino::init(&library::library()).expect("openvino starts");
}

fn read(path: &Path) -> OpenVinoModel {
    init();
    OpenVinoModel::read(path, None).expect("the network is read")
}

/// On the CPU, in full precision: on the thread of the caller, or with one thread for each of so many runs at a time.
fn options(requests: usize) -> CompileOptions {
    let runs_on_caller = requests == 1;
    let (threads, streams) = (requests.to_string(), if runs_on_caller { 0 } else { requests }.to_string());
    let property = |key: &str, value: &str| (key.to_owned(), value.to_owned());
    CompileOptions {
        device: "CPU".into(),
        properties: vec![
            property("ENABLE_CPU_PINNING", "NO"),
            property("INFERENCE_NUM_THREADS", &threads),
            property("INFERENCE_PRECISION_HINT", "f32"),
            property("NUM_STREAMS", &streams),
        ],
        requests,
        runs_on_caller,
        fixed_rows: None,
    }
}

fn compile(model: &OpenVinoModel, requests: usize) -> Arc<CompiledModel> {
    Arc::new(model.compile(&options(requests)).expect("the network is compiled"))
}
