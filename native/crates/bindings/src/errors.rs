//! The one way from an [`Error`] of the core to a Python exception.
//!
//! The classes live in Python, which registers a factory for each kind.

use std::any::Any;
use std::borrow::Cow;
use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;

use kushi_core::{Error, ErrorKind};
use kushi_engine_python::exit;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;

use crate::locks::lock;

static FACTORIES: Mutex<Option<HashMap<String, Py<PyAny>>>> = Mutex::new(None);

#[pyfunction]
pub(crate) fn register_errors(table: HashMap<String, Py<PyAny>>) {
    let before = lock(&FACTORIES).replace(table);
    // Outside the lock: dropping Python objects may run Python.
    drop(before);
}

/// A text of an error with names and values of a length that can be read.
#[pyfunction]
pub(crate) fn shortened(text: &str) -> Cow<'_, str> {
    kushi_core::shortened(text.into())
}

/// What a failed call was about; empty where it had none.
#[derive(Clone, Debug, Default)]
pub(crate) struct About {
    pub model: String,
    pub request_id: String,
}

/// `model` is what the failed call was about.
pub(crate) fn raise(py: Python<'_>, error: &Error, model: Option<&str>) -> PyErr {
    make(py, error, model, None)
}

pub(crate) fn raise_about(py: Python<'_>, error: &Error, about: &About) -> PyErr {
    let given = |text| Some(text).filter(|text: &&str| !text.is_empty());
    make(py, error, given(&about.model), given(&about.request_id))
}

fn make(py: Python<'_>, error: &Error, model: Option<&str>, request_id: Option<&str>) -> PyErr {
    let factory = {
        let factories = lock(&FACTORIES);
        factories.as_ref().and_then(|table| table.get(error.kind.name())).map(|factory| factory.clone_ref(py))
    };
    // Its classes are written in Python.
    let inside = exit::enter_from_python(py);
    let (Some(factory), Ok(_inside)) = (factory, inside) else {
        return PyRuntimeError::new_err(error.message.to_string());
    };
    match factory.bind(py).call1((&*error.message, model, request_id)) {
        Ok(exception) => PyErr::from_value(exception),
        Err(failure) => failure,
    }
}

/// A panic inside is a bug of ours and becomes an error like any other. The interpreter stays until it is over.
pub(crate) fn guarded<R>(
    py: Python<'_>,
    about: impl FnOnce() -> About,
    work: impl FnOnce() -> PyResult<R>,
) -> PyResult<R> {
    let _inside = exit::enter_from_python(py)?;
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        let error = Error::new(ErrorKind::Internal, format!("a bug in kushi: {}", text(&*panic)));
        Err(raise_about(py, &error, &about()))
    })
}

fn text(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("a panic")
}
