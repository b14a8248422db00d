//! The Python module `kushi_native`: converts values and errors, decides nothing.
//!
//! The GIL is released for everything that loads, waits or joins.

mod alarm;
mod answers;
mod arrivals;
mod blocking;
mod calls;
mod carried;
mod core;
mod documents;
mod ensemble;
mod errors;
mod forest;
mod generative;
mod infer;
mod loaded;
mod local_array;
mod local_client;
mod local_stream;
mod locks;
mod logging;
mod loops;
mod memory;
mod onnx;
mod opened;
mod openvino;
mod options;
mod orders;
mod process;
mod python_engine;
mod remote_client;
mod result;
mod scheduling;
mod standard_error;
mod started;
mod stream;
mod submission;
mod tracing;
mod turns;
mod upstream;
mod waiting;
mod worker;

use pyo3::prelude::*;
use pyo3::types::PyMapping;

/// Read by a test that edits it, runs `make` and looks for the change.
const BUILD_LABEL: &str = "kushi";

#[pymodule(gil_used = true)]
fn kushi_native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    process::refuse_sub_interpreters()?;
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add("BUILD_LABEL", BUILD_LABEL)?;
    module.add_function(wrap_pyfunction!(errors::register_errors, module)?)?;
    module.add_function(wrap_pyfunction!(errors::shortened, module)?)?;
    module.add_function(wrap_pyfunction!(carried::carry_traces, module)?)?;
    module.add_function(wrap_pyfunction!(logging::set_log, module)?)?;
    module.add_function(wrap_pyfunction!(logging::log_settings, module)?)?;
    module.add_function(wrap_pyfunction!(logging::write_log, module)?)?;
    module.add_function(wrap_pyfunction!(logging::flush_log, module)?)?;
    module.add_function(wrap_pyfunction!(onnx::init_onnxruntime, module)?)?;
    module.add_function(wrap_pyfunction!(core::routes, module)?)?;
    module.add_function(wrap_pyfunction!(onnx::onnxruntime_providers, module)?)?;
    module.add_function(wrap_pyfunction!(onnx::register_onnxruntime_providers, module)?)?;
    module.add_class::<onnx::OnnxModel>()?;
    module.add_class::<onnx::OnnxTexts>()?;
    module.add_function(wrap_pyfunction!(openvino::init_openvino, module)?)?;
    module.add_function(wrap_pyfunction!(openvino::openvino_devices, module)?)?;
    module.add_function(wrap_pyfunction!(onnx::onnx_external_files, module)?)?;
    module.add_function(wrap_pyfunction!(onnx::onnx_has_operator, module)?)?;
    module.add_class::<forest::PyForest>()?;
    module.add_class::<forest::PyForestModel>()?;
    module.add_class::<openvino::OpenVinoNetwork>()?;
    module.add_class::<openvino::OpenVinoCompiled>()?;
    module.add_class::<python_engine::PythonModel>()?;
    module.add_class::<ensemble::Ensemble>()?;
    module.add_class::<worker::WorkerModel>()?;
    module.add_class::<generative::GenerativeModel>()?;
    module.add_class::<core::Core>()?;
    module.add_class::<started::StartedVersion>()?;
    module.add_class::<stream::Stream>()?;
    module.add_class::<remote_client::RemoteClient>()?;
    module.add_class::<local_client::LocalClient>()?;
    module.add_class::<upstream::Upstream>()?;
    module.add_class::<upstream::Exchange>()?;
    module.add_class::<result::PyResultMapping>()?;
    module.add_class::<result::PyTensor>()?;
    module.add_class::<result::PyTimings>()?;
    PyMapping::register::<result::PyResultMapping>(module.py())?;
    module.add_function(wrap_pyfunction!(process::leave_threads_at_exit, module)?)?;
    module.add_function(wrap_pyfunction!(process::survive_divisions, module)?)?;
    module.add_function(wrap_pyfunction!(process::usable_cores, module)?)?;
    module.add_function(wrap_pyfunction!(worker::kill_workers, module)?)?;
    process::watch(module)?;
    module.add_class::<orders::Orders>()?;
    module.add_class::<orders::Order>()?;
    Ok(())
}
