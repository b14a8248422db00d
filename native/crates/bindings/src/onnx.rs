//! ONNX Runtime as Python's control plane sees it: a library to load, models to open and measure.

use std::collections::{BTreeMap, HashMap};
use std::ffi::OsString;
use std::fs::File;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::sync::Arc;

use kushi_engine_onnx::{GlobalThreads, OnnxSession, SessionOptions, Sessions, TextModel, TextOptions};
use kushi_engine_python::exit;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;

use crate::documents::parse;
use crate::errors::raise;
use crate::opened::{Described, aside, describe};
use crate::process::Own;

/// `threads` are those that all sessions of the process share: inside an operator and across operators.
#[pyfunction]
#[pyo3(signature = (library, threads = None))]
#[allow(clippy::needless_pass_by_value, reason = "arguments come out of Python as values")]
pub(crate) fn init_onnxruntime(
    py: Python<'_>,
    library: PathBuf,
    threads: Option<(usize, usize)>,
) -> PyResult<String> {
    let threads = threads.map(|(intra_op, inter_op)| GlobalThreads { intra_op, inter_op });
    let init = || aside("kushi-pool", || kushi_engine_onnx::init(&library, threads));
    exit::detached(py, init).map_err(|error| raise(py, &error, None))
}

/// The names of the execution providers of the library that is loaded.
#[pyfunction]
pub(crate) fn onnxruntime_providers(py: Python<'_>) -> PyResult<Vec<String>> {
    kushi_engine_onnx::available_providers().map_err(|error| raise(py, &error, None))
}

/// The names of the files from which the ONNX file at `path` would take weights; none where it is no ONNX file.
#[pyfunction]
#[allow(clippy::needless_pass_by_value, reason = "arguments come out of Python as values")]
pub(crate) fn onnx_external_files(py: Python<'_>, path: PathBuf) -> PyResult<Vec<OsString>> {
    let names = exit::detached(py, || kushi_onnx_file::names(File::open(&path)?))?;
    Ok(names.external_files.into_iter().map(OsString::from_vec).collect())
}

/// Whether the ONNX file at `path` has an operator of these types, in whatever graph or function.
#[pyfunction]
#[allow(clippy::needless_pass_by_value, reason = "arguments come out of Python as values")]
pub(crate) fn onnx_has_operator(py: Python<'_>, path: PathBuf, types: Vec<String>) -> PyResult<bool> {
    Ok(exit::detached(py, || kushi_engine_onnx::has_operator(&path, &types))?)
}

/// Opens a library of execution providers.
#[pyfunction]
#[allow(clippy::needless_pass_by_value, reason = "arguments come out of Python as values")]
pub(crate) fn register_onnxruntime_providers(py: Python<'_>, library: PathBuf) -> PyResult<()> {
    let register = || aside("kushi-pool", || kushi_engine_onnx::register_provider_library(&library));
    exit::detached(py, register).map_err(|error| raise(py, &error, None))
}

#[pyclass(frozen, module = "kushi_native")]
pub(crate) struct OnnxModel {
    pub(crate) sessions: Own<Sessions>,
}

impl OnnxModel {
    fn session(&self) -> &OnnxSession {
        self.sessions.largest()
    }
}

#[pymethods]
#[allow(clippy::needless_pass_by_value, reason = "arguments come out of Python as values")]
impl OnnxModel {
    #[new]
    fn new(py: Python<'_>, path: PathBuf, options_json: &str) -> PyResult<Self> {
        let load = || {
            let options: SessionOptions = parse("the options of a session", options_json)?;
            aside("kushi-load", || OnnxSession::load(&path, &options))
        };
        let session = exit::detached(py, load).map_err(|error| raise(py, &error, None))?;
        Ok(Self { sessions: Own::new(Sessions::One(Arc::new(session))) })
    }

    /// The model as one that runs batches of these numbers of rows alone, each in a session of its own.
    #[staticmethod]
    fn of_rows(sessions: BTreeMap<usize, Py<Self>>) -> PyResult<Self> {
        if sessions.is_empty() {
            return Err(PyValueError::new_err("there is no session"));
        }
        let of_rows =
            sessions.into_iter().map(|(rows, model)| (rows, Arc::clone(model.get().sessions.largest())));
        Ok(Self { sessions: Own::new(Sessions::OfRows(of_rows.collect())) })
    }

    #[getter]
    fn inputs(&self) -> Vec<Described> {
        self.session().inputs().iter().map(describe).collect()
    }

    #[getter]
    fn outputs(&self) -> Vec<Described> {
        self.session().outputs().iter().map(describe).collect()
    }

    fn measure(&self, py: Python<'_>, shapes: HashMap<String, Vec<i64>>, runs: usize) -> PyResult<f64> {
        let measured = exit::detached(py, || self.session().measure(&shapes, runs));
        measured.map(|time| time.as_secs_f64()).map_err(|error| raise(py, &error, None))
    }

    /// One run on zeros.
    fn rehearse(&self, py: Python<'_>, shapes: HashMap<String, Vec<i64>>) -> PyResult<()> {
        exit::detached(py, || self.session().rehearse(&shapes)).map_err(|error| raise(py, &error, None))
    }
}

/// A network that takes tokens, as a model that takes texts.
#[pyclass(frozen, module = "kushi_native")]
pub(crate) struct OnnxTexts {
    pub(crate) model: Own<Arc<TextModel>>,
}

#[pymethods]
#[allow(clippy::needless_pass_by_value, reason = "arguments come out of Python as values")]
impl OnnxTexts {
    /// `tokenizer`: the content of a `tokenizer.json`.
    #[new]
    fn new(
        py: Python<'_>,
        network: Py<OnnxModel>,
        tokenizer: PyBackedBytes,
        options_json: &str,
    ) -> PyResult<Self> {
        let session = Arc::clone(network.get().sessions.largest());
        let make = || {
            let options: TextOptions = parse("the options of a model of texts", options_json)?;
            TextModel::new(session, &tokenizer, options)
        };
        let model = exit::detached(py, make).map_err(|error| raise(py, &error, None))?;
        Ok(Self { model: Own::new(Arc::new(model)) })
    }

    /// The same on another session of the same file, with batches of so many tokens.
    fn on(&self, py: Python<'_>, network: Py<OnnxModel>, batch_tokens: usize) -> PyResult<Self> {
        let session = Arc::clone(network.get().sessions.largest());
        let model = self.model.on(session, batch_tokens).map_err(|error| raise(py, &error, None))?;
        Ok(Self { model: Own::new(Arc::new(model)) })
    }

    /// Numbers of an answer.
    #[getter]
    fn width(&self) -> usize {
        self.model.width()
    }

    /// Tokens of a text at most.
    #[getter]
    fn longest(&self) -> usize {
        self.model.longest()
    }
}
