//! What an event loop and its futures call, under the GIL.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};

use kushi_engine_python::exit;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;

use super::LocalStream;
use crate::local_client::Shared;
use crate::locks::lock;

/// What the loop calls when the socket has something. The loop has the only lasting reference to it.
#[pyclass(frozen, module = "kushi_native")]
pub(super) struct Reader {
    stream: Arc<LocalStream>,
}

impl Reader {
    pub(super) fn new(stream: Arc<LocalStream>) -> Self {
        Self { stream }
    }
}

#[pymethods]
impl Reader {
    fn drain(&self, py: Python<'_>) -> PyResult<()> {
        let Ok(_inside) = exit::enter_from_python(py) else { return Ok(()) };
        self.stream.drain(py)
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        let stream = &self.stream;
        visit.call(&stream.event_loop)?;
        visit.call(&stream.create_future)?;
        visit.call(&stream.call_soon)?;
        visit.call(&stream.flush)?;
        let Ok(state) = stream.state.try_lock() else { return Ok(()) };
        if let Some(connection) = &state.connection {
            for asker in connection.askers() {
                visit.call(&asker.promise.future)?;
                visit.call(&asker.promise.on_done)?;
            }
        }
        visit.call(state.timer.as_ref().map(|(_, handle)| handle))
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.stream.close();
    }
}

/// What the loop calls to send what waits.
#[pyclass(frozen, module = "kushi_native")]
#[derive(Default)]
pub(super) struct Flush {
    stream: Mutex<Weak<LocalStream>>,
}

impl Flush {
    pub(super) fn set_stream(&self, stream: &Arc<LocalStream>) {
        *lock(&self.stream) = Arc::downgrade(stream);
    }

    pub(super) fn stream(&self) -> Weak<LocalStream> {
        lock(&self.stream).clone()
    }
}

#[pymethods]
impl Flush {
    fn __call__(&self, py: Python<'_>) {
        let Ok(_inside) = exit::enter_from_python(py) else { return };
        if let Some(stream) = self.stream().upgrade() {
            stream.send(py);
        }
    }
}

/// What the loop calls when it is time.
#[pyclass(frozen, module = "kushi_native")]
pub(super) struct Tick {
    stream: Weak<LocalStream>,
}

impl Tick {
    pub(super) fn new(stream: Weak<LocalStream>) -> Self {
        Self { stream }
    }
}

#[pymethods]
impl Tick {
    fn __call__(&self, py: Python<'_>) -> PyResult<()> {
        let Ok(_inside) = exit::enter_from_python(py) else { return Ok(()) };
        self.stream.upgrade().map_or(Ok(()), |stream| stream.tick(py))
    }
}

/// What a future calls that is done without us: its call is cancelled, on whichever stream it is by now.
#[pyclass(frozen, module = "kushi_native")]
pub(super) struct GivenUp {
    shared: Weak<Shared>,
    /// Of the event loop.
    key: usize,
    /// 0 before the call has begun.
    id: AtomicU64,
}

impl GivenUp {
    pub(super) fn new(shared: &Arc<Shared>, key: usize) -> Self {
        Self { shared: Arc::downgrade(shared), key, id: AtomicU64::new(0) }
    }

    /// Its call has this number from now on.
    pub(super) fn begun(&self, id: u64) {
        self.id.store(id, Ordering::Relaxed);
    }
}

#[pymethods]
impl GivenUp {
    fn __call__(&self, py: Python<'_>, _future: &Bound<'_, PyAny>) -> PyResult<()> {
        let Ok(_inside) = exit::enter_from_python(py) else { return Ok(()) };
        let stream = self.shared.upgrade().and_then(|shared| shared.known(self.key));
        stream.map_or(Ok(()), |stream| stream.give_up(py, self.id.load(Ordering::Relaxed)))
    }
}
