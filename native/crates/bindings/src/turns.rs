//! Waiting without the GIL, in turns between which Python's signals are handled.

use std::time::Duration;

use kushi_engine_python::exit;
use pyo3::prelude::*;

/// How long a signal may wait for a caller that waits.
pub(crate) const SIGNAL_PATIENCE: Duration = Duration::from_millis(100);

/// For a thread that is inside. Calls `turn`, which waits for [`SIGNAL_PATIENCE`] at most, until it has something. A signal that raises ends it.
pub(crate) fn in_turns<T: Send>(py: Python<'_>, mut turn: impl Send + FnMut() -> Option<T>) -> PyResult<T> {
    loop {
        match exit::detached_inside(py, &mut turn) {
            Some(done) => return Ok(done),
            None => py.check_signals()?,
        }
    }
}
