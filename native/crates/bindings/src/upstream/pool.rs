//! The connections to one server, and the event loop that drives them.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use kushi_engine_python::exit;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::intern;
use pyo3::prelude::*;

use super::line::Line;
use crate::locks::lock;
use crate::process::Process;

const MOST_IDLE: usize = 256;

pub(super) struct Pool {
    process: Process,
    pub event_loop: Py<PyAny>,
    create_future: Py<PyAny>,
    patience: Duration,
    state: Mutex<PoolState>,
    itself: Weak<Pool>,
}

#[derive(Default)]
struct PoolState {
    /// The one that was used last is behind the others.
    idle: VecDeque<(Arc<Line>, Instant)>,
    /// What the loop will call to close what was idle for long.
    timer: Option<Py<PyAny>>,
    is_closed: bool,
}

impl Pool {
    pub(super) fn new(event_loop: &Bound<'_, PyAny>, patience: Duration) -> PyResult<Arc<Self>> {
        let create_future = event_loop.getattr(intern!(event_loop.py(), "create_future"))?.unbind();
        Ok(Arc::new_cyclic(|itself| Self {
            process: Process::current(),
            event_loop: event_loop.clone().unbind(),
            create_future,
            patience,
            state: Mutex::default(),
            itself: itself.clone(),
        }))
    }

    pub(super) fn is_of_this_process(&self) -> bool {
        self.process.is_current()
    }

    pub(super) fn create_future<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.create_future.bind(py).call0()
    }

    /// The idle connection that was used last.
    pub(super) fn take(&self, py: Python<'_>) -> Option<Arc<Line>> {
        loop {
            let (line, since) = lock(&self.state).idle.pop_back()?;
            if since.elapsed() <= self.patience {
                return Some(line);
            }
            line.close(py);
        }
    }

    /// Keeps a connection for the next request.
    pub(super) fn keep(&self, py: Python<'_>, line: Arc<Line>) -> PyResult<()> {
        let (surplus, is_watched) = {
            let mut state = lock(&self.state);
            if state.is_closed || self.patience.is_zero() {
                (Some(line), true)
            } else {
                state.idle.push_back((line, Instant::now()));
                let surplus = if state.idle.len() > MOST_IDLE { state.idle.pop_front() } else { None };
                (surplus.map(|(line, _)| line), state.timer.is_some())
            }
        };
        if let Some(line) = surplus {
            line.close(py);
        }
        if is_watched { Ok(()) } else { self.arm(py, self.patience) }
    }

    /// It has ended while nobody used it.
    pub(super) fn forget(&self, line: &Arc<Line>) {
        let mut state = lock(&self.state);
        let found = state.idle.iter().position(|(idle, _)| Arc::ptr_eq(idle, line));
        let removed = found.and_then(|place| state.idle.remove(place));
        drop(state);
        drop(removed);
    }

    fn arm(&self, py: Python<'_>, delay: Duration) -> PyResult<()> {
        let reap = Bound::new(py, Reap { pool: self.itself.clone() })?;
        let event_loop = self.event_loop.bind(py);
        let handle = event_loop.call_method1(intern!(py, "call_later"), (delay.as_secs_f64(), reap))?;
        let before = lock(&self.state).timer.replace(handle.unbind());
        drop(before);
        Ok(())
    }

    /// Closes what was idle for long.
    fn reap(&self, py: Python<'_>) -> PyResult<()> {
        let mut late = Vec::new();
        let (next, before) = {
            let mut state = lock(&self.state);
            while let Some((_, since)) = state.idle.front()
                && since.elapsed() >= self.patience
            {
                late.extend(state.idle.pop_front());
            }
            let next = state.idle.front().map(|(_, since)| self.patience.saturating_sub(since.elapsed()));
            (next, state.timer.take())
        };
        drop(before);
        for (line, _) in late {
            line.close(py);
        }
        next.map_or(Ok(()), |next| self.arm(py, next))
    }

    pub(super) fn close(&self, py: Python<'_>) {
        let (idle, timer) = {
            let mut state = lock(&self.state);
            state.is_closed = true;
            (std::mem::take(&mut state.idle), state.timer.take())
        };
        for (line, _) in idle {
            line.close(py);
        }
        if let Some(timer) = timer
            && let Err(error) = timer.call_method0(py, intern!(py, "cancel"))
        {
            error.write_unraisable(py, None);
        }
    }

    pub(super) fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.event_loop)?;
        visit.call(&self.create_future)?;
        let Ok(state) = self.state.try_lock() else { return Ok(()) };
        visit.call(&state.timer)
    }
}

/// What the loop calls when it is time.
#[pyclass(frozen, module = "kushi_native")]
struct Reap {
    pool: Weak<Pool>,
}

#[pymethods]
impl Reap {
    fn __call__(&self, py: Python<'_>) -> PyResult<()> {
        let Ok(_inside) = exit::enter_from_python(py) else { return Ok(()) };
        self.pool.upgrade().map_or(Ok(()), |pool| pool.reap(py))
    }
}
