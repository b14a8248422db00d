//! ONNX Runtime as Python's control plane sees it: a library to load, models to open and measure.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;

use kushi_core::{Error, ErrorKind, os_text};
use kushi_engine_onnx::{OnnxSession, SessionOptions, TensorInfo};
use pyo3::prelude::*;

use crate::errors::raise;
use crate::scheduling::give_way;

#[pyfunction]
#[allow(clippy::needless_pass_by_value, reason = "arguments come out of Python as values")]
pub(crate) fn init_onnxruntime(py: Python<'_>, library: PathBuf) -> PyResult<String> {
    py.detach(|| kushi_engine_onnx::init(&library)).map_err(|error| raise(py, &error, None))
}

#[pyclass(frozen, module = "kushi_native")]
pub(crate) struct OnnxModel {
    pub(crate) session: Arc<OnnxSession>,
}

/// name, data type, dimensions
type Described = (String, &'static str, Vec<i64>);

#[pymethods]
#[allow(clippy::needless_pass_by_value, reason = "arguments come out of Python as values")]
impl OnnxModel {
    #[new]
    #[pyo3(signature = (path, *, intra_op_threads, inter_op_threads, parallel, graph_level, allow_spinning = false))]
    fn new(
        py: Python<'_>,
        path: PathBuf,
        intra_op_threads: usize,
        inter_op_threads: usize,
        parallel: bool,
        graph_level: i32,
        allow_spinning: bool,
    ) -> PyResult<Self> {
        let options =
            SessionOptions { intra_op_threads, inter_op_threads, parallel, graph_level, allow_spinning };
        let session = py.detach(|| load(&path, &options)).map_err(|error| raise(py, &error, None))?;
        Ok(Self { session: Arc::new(session) })
    }

    #[getter]
    fn inputs(&self) -> Vec<Described> {
        self.session.inputs().iter().map(describe).collect()
    }

    #[getter]
    fn outputs(&self) -> Vec<Described> {
        self.session.outputs().iter().map(describe).collect()
    }

    fn measure(&self, py: Python<'_>, shapes: HashMap<String, Vec<i64>>, runs: usize) -> PyResult<f64> {
        let measured = py.detach(|| self.session.measure(&shapes, runs));
        measured.map(|time| time.as_secs_f64()).map_err(|error| raise(py, &error, None))
    }
}

fn describe(tensor: &TensorInfo) -> Described {
    (tensor.name.clone(), tensor.datatype.name(), tensor.shape.clone())
}

/// On a thread of its own at low priority, which the session's worker threads inherit.
fn load(path: &Path, options: &SessionOptions) -> Result<OnnxSession, Error> {
    let internal = |text: String| Error::new(ErrorKind::Internal, text);
    thread::scope(|scope| {
        let work = || {
            give_way();
            OnnxSession::load(path, options)
        };
        let thread = thread::Builder::new().name("kushi-load".into()).spawn_scoped(scope, work);
        let thread =
            thread.map_err(|error| internal(format!("cannot start a thread: {}", os_text(&error))))?;
        thread.join().map_err(|_| internal(format!("loading {} panicked", path.display())))?
    })
}
