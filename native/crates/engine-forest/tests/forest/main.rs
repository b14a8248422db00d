//! Forests that the tests write themselves, read and asked.

#[path = "../../../engine-openvino/tests/openvino/asked.rs"]
mod asked;
mod hostile;
mod runs;
mod written;
