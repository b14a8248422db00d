//! The one way from an [`Error`] of the core to a Python exception.
//!
//! The classes live in Python, which registers a factory for each kind.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use kushi_core::Error;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;

static FACTORIES: Mutex<Option<HashMap<String, Py<PyAny>>>> = Mutex::new(None);

#[pyfunction]
pub(crate) fn register_errors(table: HashMap<String, Py<PyAny>>) {
    let before = FACTORIES.lock().unwrap_or_else(PoisonError::into_inner).replace(table);
    // Outside the lock: dropping Python objects may run Python.
    drop(before);
}

/// `model` is what the failed call was about.
pub(crate) fn raise(py: Python<'_>, error: &Error, model: Option<&str>) -> PyErr {
    let factory = {
        let factories = FACTORIES.lock().unwrap_or_else(PoisonError::into_inner);
        factories.as_ref().and_then(|table| table.get(error.kind.name())).map(|factory| factory.clone_ref(py))
    };
    let Some(factory) = factory else {
        return PyRuntimeError::new_err(error.message.to_string());
    };
    match factory.bind(py).call1((&*error.message, model)) {
        Ok(exception) => PyErr::from_value(exception),
        Err(failure) => failure,
    }
}
