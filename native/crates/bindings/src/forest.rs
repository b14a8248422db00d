//! Forests of decision trees as Python's control plane sees them: a checkpoint to read, a model to make of it.

use std::sync::Arc;

use kushi_engine_forest::{Answer, Forest, ForestModel, ForestOptions, Task};
use kushi_engine_python::exit;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;

use crate::errors::raise;
use crate::opened::{Described, aside, describe};
use crate::process::Own;

#[pyclass(frozen, module = "kushi_native", name = "Forest")]
pub(crate) struct PyForest(Own<Arc<Forest>>);

#[pymethods]
#[allow(clippy::needless_pass_by_value, reason = "arguments come out of Python as values")]
impl PyForest {
    #[new]
    fn new(py: Python<'_>, checkpoint: PyBackedBytes) -> PyResult<Self> {
        let read = exit::detached(py, || aside("kushi-load", || Forest::read(&checkpoint)));
        read.map(|forest| Self(Own::new(Arc::new(forest)))).map_err(|error| raise(py, &error, None))
    }

    #[getter]
    fn classes(&self) -> usize {
        self.0.classes()
    }

    /// Whether it tells classes apart.
    #[getter]
    fn is_classifier(&self) -> bool {
        matches!(self.0.task(), Task::BinaryClassifier | Task::Classifier)
    }

    /// `answer` is "values", "probabilities" of two classes, or "class", where a single value is more than `threshold`.
    #[pyo3(signature = (answer, *, threshold, contributions, threads))]
    fn model(
        &self,
        py: Python<'_>,
        answer: &str,
        threshold: f32,
        contributions: bool,
        threads: usize,
    ) -> PyResult<PyForestModel> {
        let answer = match answer {
            "values" => Answer::Values,
            "probabilities" => Answer::TwoProbabilities,
            "class" => Answer::Class { threshold },
            other => return Err(PyValueError::new_err(format!("there is no answer '{other}'"))),
        };
        let model = ForestModel::new(Arc::clone(&self.0), ForestOptions { answer, contributions, threads });
        let model = model.map_err(|error| raise(py, &error, None))?;
        Ok(PyForestModel { model: Own::new(Arc::new(model)) })
    }
}

#[pyclass(frozen, module = "kushi_native", name = "ForestModel")]
pub(crate) struct PyForestModel {
    pub(crate) model: Own<Arc<ForestModel>>,
}

#[pymethods]
#[allow(clippy::needless_pass_by_value, reason = "arguments come out of Python as values")]
impl PyForestModel {
    #[getter]
    fn inputs(&self) -> Vec<Described> {
        self.model.inputs().iter().map(describe).collect()
    }

    #[getter]
    fn outputs(&self) -> Vec<Described> {
        self.model.outputs().iter().map(describe).collect()
    }
}
