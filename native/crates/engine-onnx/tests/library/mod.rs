//! Finds the ONNX Runtime that the tests run on.

use std::path::PathBuf;

pub fn library() -> PathBuf {
    kushi_testkit::library("KUSHI_TEST_ONNXRUNTIME", "onnxruntime/capi", "libonnxruntime.so")
}
