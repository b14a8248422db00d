//! The conformance suite on engines that are written in Python, as a Python module: `cases()` and `run(case, subject)`.
//!
//! A subject has `engine(model, inputs, outputs)`, which makes the Python object of an engine for a model of the suite,
//! and `takes(datatype)`. A tensor is its name, its data type and its dimensions, the batch's included.

#![allow(clippy::disallowed_methods, reason = "the interpreter of a test stays")]

use std::sync::Arc;

use kushi_core::{DataType, Engine, ModelSpec, TensorSpec};
use kushi_engine_python::PythonEngine;
use kushi_testkit::conformance::{CASES, Model, Subject};
use pyo3::exceptions::PyKeyError;
use pyo3::prelude::*;

struct Written {
    subject: Py<PyAny>,
}

impl Written {
    fn make(&self, py: Python<'_>, model: Model, spec: &ModelSpec) -> PyResult<PythonEngine> {
        let tensors = |list: &[TensorSpec]| -> Vec<(String, &'static str, Vec<i64>)> {
            let batch = (spec.max_batch_size > 0).then_some(-1);
            let dims = |tensor: &TensorSpec| tensor.reshape.clone().unwrap_or_else(|| tensor.dims.clone());
            let full = |tensor| batch.into_iter().chain(dims(tensor)).collect();
            list.iter().map(|tensor| (tensor.name.clone(), tensor.datatype.name(), full(tensor))).collect()
        };
        let arguments = (format!("{model:?}"), tensors(&spec.inputs), tensors(&spec.outputs));
        let object = self.subject.bind(py).call_method1("engine", arguments)?;
        PythonEngine::new(&object, Arc::new(spec.clone()))
    }
}

impl Subject for Written {
    fn engine(&self, model: Model, spec: &ModelSpec) -> Arc<dyn Engine> {
        let engine = Python::attach(|py| self.make(py, model, spec).inspect_err(|error| error.print(py)));
        Arc::new(engine.unwrap_or_else(|_| panic!("the subject has no engine for {model:?}")))
    }

    fn takes(&self, datatype: DataType) -> bool {
        let answer =
            Python::attach(|py| self.subject.bind(py).call_method1("takes", (datatype.name(),))?.extract());
        answer.expect("the subject says which types it takes")
    }
}

#[pyfunction]
fn cases() -> Vec<&'static str> {
    CASES.iter().map(|(name, _)| *name).collect()
}

#[pyfunction]
fn run(py: Python<'_>, case: &str, subject: Py<PyAny>) -> PyResult<()> {
    let found = CASES.iter().find(|(name, _)| *name == case);
    let (_, check) = found.ok_or_else(|| PyKeyError::new_err(case.to_owned()))?;
    let subject = Written { subject };
    py.detach(|| check(&subject));
    Ok(())
}

#[pymodule(gil_used = true)]
fn kushi_conformance(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(cases, module)?)?;
    module.add_function(wrap_pyfunction!(run, module)?)
}
