//! What the futures of an exchange tell Python.

use bytes::Bytes;
use kushi_client::relay::{Failure, Head};
use pyo3::exceptions::{PyBrokenPipeError, PyConnectionAbortedError, PyConnectionResetError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};

/// What has come of an answer since the last time.
pub(super) struct News {
    pub head: Option<Head>,
    pub body: Vec<Bytes>,
    /// Nothing is to come.
    pub end: Option<Result<(), Failure>>,
}

impl News {
    pub(super) fn into_python(self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        if let Some(Err(failure)) = self.end {
            return Err(raised(failure));
        }
        let more = self.end.is_none();
        let body = match &self.body[..] {
            [only] => PyBytes::new(py, only),
            pieces => {
                let length = pieces.iter().map(Bytes::len).sum();
                PyBytes::new_with(py, length, |mut room| {
                    for piece in pieces {
                        let (begun, rest) = room.split_at_mut(piece.len());
                        begun.copy_from_slice(piece);
                        room = rest;
                    }
                    Ok(())
                })?
            }
        };
        let Some(head) = self.head else { return Ok((body, more).into_pyobject(py)?.into_any().unbind()) };
        let headers = PyList::empty(py);
        for (name, value) in head.headers() {
            headers.append((PyBytes::new(py, name.as_ref()), PyBytes::new(py, value.as_bytes())))?;
        }
        Ok((head.status, headers, body, more).into_pyobject(py)?.into_any().unbind())
    }
}

/// What the exception says of the request: nothing of it was sent, or it was not answered, or not whole.
pub(super) fn raised(failure: Failure) -> PyErr {
    match failure {
        Failure::Unsent => PyBrokenPipeError::new_err("the server has not heard the request"),
        Failure::Unanswered => PyConnectionAbortedError::new_err("the server has not answered"),
        Failure::Broken => PyConnectionResetError::new_err("the answer of the server is not whole"),
        Failure::Misfit(misfit) => PyValueError::new_err((400, misfit.to_string())),
    }
}

/// Whoever waits may have gone.
pub(super) fn settle(
    future: &Bound<'_, PyAny>,
    outcome: impl FnOnce() -> PyResult<Py<PyAny>>,
) -> PyResult<()> {
    let py = future.py();
    if future.call_method0(intern!(py, "done"))?.is_truthy()? {
        return Ok(());
    }
    match outcome() {
        Ok(value) => future.call_method1(intern!(py, "set_result"), (value,))?,
        Err(error) => future.call_method1(intern!(py, "set_exception"), (error.into_value(py),))?,
    };
    Ok(())
}
