//! A model that is executed by an object of Python's, as the control plane hands it over.

use std::sync::Arc;

use kushi_core::{Engine, Error, ErrorKind, ModelSpec};
use kushi_engine_python::{PythonEngine, exit};
use pyo3::prelude::*;

#[pyclass(frozen, module = "kushi_native")]
pub(crate) struct PythonModel {
    object: Py<PyAny>,
}

#[pymethods]
impl PythonModel {
    #[new]
    fn new(engine: Py<PyAny>) -> Self {
        Self { object: engine }
    }

    #[getter]
    fn engine(&self, py: Python<'_>) -> Py<PyAny> {
        self.object.clone_ref(py)
    }
}

impl PythonModel {
    pub(crate) fn make(&self, spec: &ModelSpec) -> Result<Arc<dyn Engine>, Error> {
        let made = exit::attached(|py| {
            let made = PythonEngine::new(self.object.bind(py), Arc::new(spec.clone()));
            made.map_err(|error| format!("its engine cannot be used: {error}"))
        });
        let made = made.unwrap_or_else(|| Err("the Python interpreter is shutting down".into()));
        let fault = |text| Error::new(ErrorKind::ConfigInvalid, format!("model '{}': {text}", spec.name));
        Ok(Arc::new(made.map_err(fault)?))
    }
}
