//! OpenVINO as Python's control plane sees it: a library to load, networks to read, to compile and to measure.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use kushi_engine_openvino::{CompileOptions, CompiledModel, OpenVinoModel};
use kushi_engine_python::exit;
use pyo3::prelude::*;

use crate::documents::parse;
use crate::errors::raise;
use crate::opened::{Described, aside, describe};
use crate::process::Own;

#[pyfunction]
#[allow(clippy::needless_pass_by_value, reason = "arguments come out of Python as values")]
pub(crate) fn init_openvino(py: Python<'_>, library: PathBuf) -> PyResult<String> {
    let init = || aside("kushi-pool", || kushi_engine_openvino::init(&library));
    exit::detached(py, init).map_err(|error| raise(py, &error, None))
}

/// The names of the devices that a network can be compiled for.
#[pyfunction]
pub(crate) fn openvino_devices(py: Python<'_>) -> PyResult<Vec<String>> {
    let devices = || aside("kushi-pool", kushi_engine_openvino::devices);
    exit::detached(py, devices).map_err(|error| raise(py, &error, None))
}

#[pyclass(frozen, module = "kushi_native")]
pub(crate) struct OpenVinoNetwork(Mutex<OpenVinoModel>);

#[pymethods]
#[allow(clippy::needless_pass_by_value, reason = "arguments come out of Python as values")]
impl OpenVinoNetwork {
    #[new]
    #[pyo3(signature = (path, extension = None))]
    fn new(py: Python<'_>, path: PathBuf, extension: Option<PathBuf>) -> PyResult<Self> {
        let read = || aside("kushi-load", || OpenVinoModel::read(&path, extension.as_deref()));
        exit::detached(py, read).map(|model| Self(Mutex::new(model))).map_err(|error| raise(py, &error, None))
    }

    #[getter]
    fn inputs(&self, py: Python<'_>) -> Vec<Described> {
        exit::detached(py, || self.with(|model| model.inputs().iter().map(describe).collect()))
    }

    #[getter]
    fn outputs(&self, py: Python<'_>) -> Vec<Described> {
        exit::detached(py, || self.with(|model| model.outputs().iter().map(describe).collect()))
    }

    /// Gives inputs other shapes; -1 leaves a dimension open.
    fn reshape(&self, py: Python<'_>, shapes: HashMap<String, Vec<i64>>) -> PyResult<()> {
        let shapes: Vec<_> = shapes.into_iter().collect();
        let reshaped =
            exit::detached(py, || self.with(|model| aside("kushi-load", || model.reshape(&shapes))));
        reshaped.map_err(|error| raise(py, &error, None))
    }

    fn compile(&self, py: Python<'_>, options_json: &str) -> PyResult<OpenVinoCompiled> {
        let compile = || {
            let options: CompileOptions = parse("the options of a network", options_json)?;
            let compiled = self.with(|model| aside("kushi-load", || model.compile(&options)))?;
            Ok(OpenVinoCompiled { model: Own::new(Arc::new(compiled)) })
        };
        exit::detached(py, compile).map_err(|error| raise(py, &error, None))
    }
}

impl OpenVinoNetwork {
    fn with<T>(&self, work: impl FnOnce(&mut OpenVinoModel) -> T) -> T {
        work(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[pyclass(frozen, module = "kushi_native")]
pub(crate) struct OpenVinoCompiled {
    pub(crate) model: Own<Arc<CompiledModel>>,
}

#[pymethods]
#[allow(clippy::needless_pass_by_value, reason = "arguments come out of Python as values")]
impl OpenVinoCompiled {
    /// What OpenVINO says of it under this name.
    fn property(&self, py: Python<'_>, name: &str) -> Option<String> {
        exit::detached(py, || self.model.property(name))
    }

    /// On a thread that has ended when this returns: one that runs a network gives back at its end what that may free
    /// meanwhile.
    fn measure(&self, py: Python<'_>, shapes: HashMap<String, Vec<i64>>, runs: usize) -> PyResult<f64> {
        let measured = exit::detached(py, || aside("kushi-load", || self.model.measure(&shapes, runs)));
        measured.map(|time| time.as_secs_f64()).map_err(|error| raise(py, &error, None))
    }
}
