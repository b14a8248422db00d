//! Answers of clients and of the core, as their callers get them.

use kushi_core::{Error, ErrorKind};
use pyo3::IntoPyObjectExt;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::errors::{About, raise_about};
use crate::result::PyResultMapping;

/// An answer as its caller gets it.
pub(crate) fn result(
    py: Python<'_>,
    answer: Result<kushi_client::Answer, Error>,
    about: &About,
) -> PyResult<Py<PyAny>> {
    let answer = answer.map_err(|error| raise_about(py, &error, about))?;
    Ok(Py::new(py, PyResultMapping::from(answer))?.into_any())
}

/// status, the name of an error's kind or nothing, body
pub(crate) fn call_answer(
    py: Python<'_>,
    answer: Result<kushi_client::CallAnswer, Error>,
    about: &About,
) -> PyResult<Py<PyAny>> {
    let answer = answer.map_err(|error| raise_about(py, &error, about))?;
    let kind = answer.kind.map_or("", ErrorKind::name);
    let body = PyBytes::new(py, &answer.body);
    (answer.status, kind, body).into_py_any(py)
}
