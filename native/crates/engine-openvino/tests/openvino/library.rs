//! Finds the OpenVINO that the tests run on.

use std::path::PathBuf;

pub fn library() -> PathBuf {
    kushi_testkit::library("KUSHI_TEST_OPENVINO", "openvino/libs", "libopenvino_c.so")
}
