//! Parameters of requests and answers as Python has them.

use kushi_core::{Batch, Parameter};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};

pub fn to_dict<'py>(py: Python<'py>, parameters: &[(String, Parameter)]) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    for (name, value) in parameters {
        match value {
            Parameter::Bool(value) => dict.set_item(name, value)?,
            Parameter::Int(value) => dict.set_item(name, value)?,
            Parameter::Double(value) => dict.set_item(name, value)?,
            Parameter::String(value) => dict.set_item(name, value)?,
        }
    }
    Ok(dict)
}

/// The number of rows and the parameters of each request.
pub(crate) fn of_batch<'py>(py: Python<'py>, batch: &Batch) -> PyResult<Bound<'py, PyList>> {
    let requests = (0..batch.len()).filter_map(|index| batch.request(index));
    let entries: PyResult<Vec<_>> =
        requests.map(|request| Ok((request.rows, to_dict(py, &request.parameters)?))).collect();
    PyList::new(py, entries?)
}
