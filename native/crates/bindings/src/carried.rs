//! The trace that the callers of this process are part of.
//!
//! A program that is traced says once how a call finds the trace around it; others pay a look at a flag.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use kushi_client::Carried;
use pyo3::prelude::*;

static IS_SET: AtomicBool = AtomicBool::new(false);
static SOURCE: Mutex<Option<Py<PyAny>>> = Mutex::new(None);

/// From now on each call for inference is part of the trace that `source` answers: None, or the values of the headers
/// traceparent and tracestate. None in its place: calls are part of none.
#[pyfunction]
#[pyo3(signature = (source, /))]
pub(crate) fn carry_traces(source: Option<Py<PyAny>>) {
    IS_SET.store(source.is_some(), Ordering::Release);
    let before = std::mem::replace(&mut *SOURCE.lock().unwrap_or_else(PoisonError::into_inner), source);
    drop(before);
}

/// What a source raises is told in the log, and the call goes its way.
pub(crate) fn by_callers(py: Python<'_>) -> Option<Carried> {
    if !IS_SET.load(Ordering::Acquire) {
        return None;
    }
    let source = SOURCE.lock().unwrap_or_else(PoisonError::into_inner).as_ref()?.clone_ref(py);
    let answered = source.call0(py).and_then(|found| found.extract::<Option<(String, String)>>(py));
    match answered {
        Ok(found) => found.map(|(parent, state)| Carried { parent, state }),
        Err(error) => {
            log::debug!("no trace was found for a call: {error}");
            None
        }
    }
}
