//! What an event loop and its futures call, under the GIL.

use std::sync::{Arc, Weak};

use kushi_engine_python::exit;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;

use super::EventLoop;

/// What the loop calls when ends have arrived. The loop has the only lasting reference to it.
#[pyclass(frozen, module = "kushi_native")]
pub(super) struct Reader {
    state: Arc<EventLoop>,
}

impl Reader {
    pub(super) fn new(state: Arc<EventLoop>) -> Self {
        Self { state }
    }
}

#[pymethods]
impl Reader {
    fn drain(&self, py: Python<'_>) -> PyResult<()> {
        let Ok(_inside) = exit::enter_from_python(py) else { return Ok(()) };
        self.state.drain(py)
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        let state = &self.state;
        visit.call(&state.asyncio)?;
        visit.call(&state.create_future)?;
        if let Ok(places) = state.places.try_lock() {
            for promise in places.all().filter_map(|waiting| waiting.promise.as_ref()) {
                visit.call(&promise.future)?;
                visit.call(&promise.on_done)?;
            }
        }
        match state.alarm.try_lock() {
            Ok(alarm) => visit.call(alarm.handle()),
            Err(_) => Ok(()),
        }
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.state.close();
    }
}

/// What the loop calls at the time of the alarm.
#[pyclass(frozen, module = "kushi_native")]
pub(super) struct Bell {
    state: Weak<EventLoop>,
}

impl Bell {
    pub(super) fn new(state: Weak<EventLoop>) -> Self {
        Self { state }
    }
}

#[pymethods]
impl Bell {
    fn __call__(&self, py: Python<'_>) -> PyResult<()> {
        let Ok(_inside) = exit::enter_from_python(py) else { return Ok(()) };
        self.state.upgrade().map_or(Ok(()), |state| state.ring(py))
    }
}

/// What a future calls that is done without us: its call is cancelled.
#[pyclass(frozen, module = "kushi_native")]
pub(super) struct GivenUp {
    state: Weak<EventLoop>,
    key: u64,
}

impl GivenUp {
    pub(super) fn new(state: Weak<EventLoop>, key: u64) -> Self {
        Self { state, key }
    }
}

#[pymethods]
impl GivenUp {
    fn __call__(&self, _future: &Bound<'_, PyAny>) {
        let _inside = exit::enter();
        if let Some(state) = self.state.upgrade() {
            state.give_up(self.key);
        }
    }
}
