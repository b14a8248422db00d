//! The Python module `kushi_native`: converts values and errors, decides nothing.
//!
//! The GIL is released for everything that loads, waits or joins.

mod core;
mod errors;
mod logging;
mod onnx;
mod scheduling;

use pyo3::prelude::*;

/// Read by a test that edits it, runs `make` and looks for the change.
const BUILD_LABEL: &str = "kushi";

#[pymodule(gil_used = true)]
fn kushi_native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add("BUILD_LABEL", BUILD_LABEL)?;
    module.add_function(wrap_pyfunction!(errors::register_errors, module)?)?;
    module.add_function(wrap_pyfunction!(onnx::init_onnxruntime, module)?)?;
    module.add_class::<onnx::OnnxModel>()?;
    module.add_class::<core::Core>()?;
    Ok(())
}
