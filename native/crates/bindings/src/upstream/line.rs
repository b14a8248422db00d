//! One connection to the server, as the event loop drives it.

use std::os::fd::AsRawFd;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use kushi_client::relay::{Connection, Failure, Interest, Request};
use kushi_engine_python::exit;
use pyo3::exceptions::PyConnectionResetError;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::PyBytes;

use super::news::{News, raised, settle};
use super::pool::Pool;
use crate::locks::lock;

pub(super) struct Line {
    pool: Arc<Pool>,
    state: Mutex<LineState>,
}

struct LineState {
    /// `None` once it is closed.
    connection: Option<Connection>,
    /// Of the exchange that is under way on it, or was the last: they are counted.
    exchange: u64,
    is_busy: bool,
    waiting: Option<(Wanted, Py<PyAny>)>,
    /// Who takes the answer if it comes whole, in the place of a future.
    taker: Option<Taker>,
    /// Who waits until the server has taken some of the request's body.
    waiting_for_room: Option<Py<PyAny>>,
    watched: Interest,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    Head,
    Body,
}

/// `answered` is called with the bytes of a whole answer, or `take_over` where it is not whole, or none: then
/// futures tell of it.
pub(super) struct Taker {
    pub object: Py<PyAny>,
    /// In front of the answer's headers.
    pub before: PyBackedBytes,
}

impl LineState {
    /// Another one may be by now.
    fn is_under_way(&self, exchange: u64) -> bool {
        self.is_busy && self.exchange == exchange
    }
}

impl Line {
    pub(super) fn new(pool: &Arc<Pool>, connection: Connection) -> Arc<Self> {
        let state = LineState {
            connection: Some(connection),
            exchange: 0,
            is_busy: false,
            waiting: None,
            taker: None,
            waiting_for_room: None,
            watched: Interest::default(),
        };
        Arc::new(Self { pool: pool.clone(), state: Mutex::new(state) })
    }

    /// Sends a request, and gives the exchange its number. `Err`: the connection had ended before anything
    /// of it was sent.
    pub(super) fn ask(self: &Arc<Self>, py: Python<'_>, request: Request) -> Result<u64, u64> {
        let exchange = {
            let mut state = lock(&self.state);
            state.exchange += 1;
            state.is_busy = true;
            if let Some(connection) = &mut state.connection {
                connection.ask(request);
            }
            state.exchange
        };
        self.go_on(py, true);
        let state = lock(&self.state);
        match &state.connection {
            Some(connection) if connection.failure_of_answer() != Some(Failure::Unsent) => Ok(exchange),
            _ => Err(exchange),
        }
    }

    /// Tells the taker in a later turn of the loop, if there is something to tell by then.
    pub(super) fn give(self: &Arc<Self>, py: Python<'_>, taker: Taker) -> PyResult<()> {
        let has_news = {
            let mut state = lock(&self.state);
            state.taker = Some(taker);
            state.connection.as_ref().is_none_or(Connection::has_news)
        };
        if has_news {
            let turn = Bound::new(py, Watcher { line: self.clone() })?.getattr(intern!(py, "writable"))?;
            self.pool.event_loop.bind(py).call_method1(intern!(py, "call_soon"), (turn,))?;
        }
        Ok(())
    }

    /// The taker hears nothing any more.
    pub(super) fn hold(&self, exchange: u64) {
        let taker = {
            let mut state = lock(&self.state);
            if state.is_under_way(exchange) { state.taker.take() } else { None }
        };
        drop(taker);
    }

    pub(super) fn push<'py>(
        self: &Arc<Self>,
        py: Python<'py>,
        exchange: u64,
        piece: Bytes,
        is_complete: bool,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        {
            let mut state = lock(&self.state);
            let is_under_way = state.is_under_way(exchange);
            let Some(connection) = state.connection.as_mut().filter(|_| is_under_way) else {
                return Ok(None);
            };
            connection.push(piece, is_complete);
        }
        self.go_on(py, false);
        if self.has_room() {
            return Ok(None);
        }
        let future = self.pool.create_future(py)?;
        let before = lock(&self.state).waiting_for_room.replace(future.clone().unbind());
        drop(before);
        Ok(Some(future))
    }

    fn has_room(&self) -> bool {
        let state = lock(&self.state);
        let connection =
            state.connection.as_ref().filter(|connection| state.is_busy && !connection.is_broken());
        connection.is_none_or(Connection::has_room)
    }

    /// A future for what is wanted of the answer; one at a time.
    pub(super) fn wait<'py>(
        self: &Arc<Self>,
        py: Python<'py>,
        exchange: u64,
        wanted: Wanted,
    ) -> PyResult<Bound<'py, PyAny>> {
        let future = self.pool.create_future(py)?;
        if !lock(&self.state).is_under_way(exchange) {
            settle(&future, || Err(raised(Failure::Broken)))?;
            return Ok(future);
        }
        let before = lock(&self.state).waiting.replace((wanted, future.clone().unbind()));
        drop(before);
        self.tell(py)?;
        Ok(future)
    }

    pub(super) fn is_open(&self) -> bool {
        lock(&self.state).connection.as_ref().is_some_and(Connection::is_open)
    }

    /// The exchange is over, or is given up.
    pub(super) fn end(self: &Arc<Self>, py: Python<'_>, exchange: u64) {
        if lock(&self.state).is_under_way(exchange) {
            self.close(py);
        }
    }

    /// Drives the connection, and tells who waits.
    fn go_on(self: &Arc<Self>, py: Python<'_>, look_again: bool) {
        if !self.pool.is_of_this_process() {
            return;
        }
        let interest = lock(&self.state).connection.as_mut().map(|connection| connection.drive(look_again));
        let Some(interest) = interest else { return };
        let gone_on = self.watch(py, interest).and_then(|()| self.tell(py));
        if let Err(error) = gone_on {
            error.write_unraisable(py, None);
        }
        self.let_go_if_broken(py);
    }

    /// Settles the futures that have something to say.
    fn tell(self: &Arc<Self>, py: Python<'_>) -> PyResult<()> {
        self.tell_taker(py)?;
        if let Some((future, news)) = self.take_news() {
            let is_over = matches!(news.end, Some(Ok(())));
            if is_over {
                self.release(py)?;
            } else if news.end.is_none() && !news.body.is_empty() {
                // There is room for more.
                let interest =
                    lock(&self.state).connection.as_mut().map(|connection| connection.drive(false));
                if let Some(interest) = interest {
                    self.watch(py, interest)?;
                }
            }
            settle(future.bind(py), || news.into_python(py))?;
        }
        if self.has_room() {
            let waiting = lock(&self.state).waiting_for_room.take();
            if let Some(future) = waiting {
                settle(future.bind(py), || Ok(py.None()))?;
            }
        }
        Ok(())
    }

    fn tell_taker(self: &Arc<Self>, py: Python<'_>) -> PyResult<()> {
        let (taker, answer) = {
            let mut state = lock(&self.state);
            let LineState { connection, taker, .. } = &mut *state;
            if !connection.as_ref().is_none_or(Connection::has_news) {
                return Ok(());
            }
            let Some(taker) = taker.take() else { return Ok(()) };
            let answer = connection.as_mut().and_then(|connection| connection.take_whole(&taker.before));
            (taker, answer)
        };
        match answer {
            Some(bytes) => {
                self.release(py)?;
                taker.object.call_method1(py, intern!(py, "answered"), (PyBytes::new(py, &bytes),))?;
            }
            None => {
                taker.object.call_method0(py, intern!(py, "take_over"))?;
            }
        }
        Ok(())
    }

    fn take_news(&self) -> Option<(Py<PyAny>, News)> {
        let mut state = lock(&self.state);
        let wanted = state.waiting.as_ref()?.0;
        let news = match &mut state.connection {
            Some(connection) => {
                let failure = connection.failure_of_answer();
                let has_news = match wanted {
                    Wanted::Head => connection.has_head(),
                    Wanted::Body => connection.has_body() || connection.is_whole(),
                };
                if !has_news && failure.is_none() {
                    return None;
                }
                let head = connection.take_head();
                let body: Vec<Bytes> = connection.take_body().collect();
                // What has come goes first.
                let fails = failure.filter(|_| head.is_none() && body.is_empty());
                let end = fails.map(Err).or_else(|| connection.is_whole().then_some(Ok(())));
                News { head, body, end }
            }
            None => News { head: None, body: Vec::new(), end: Some(Err(Failure::Broken)) },
        };
        state.waiting.take().map(|(_, future)| (future, news))
    }

    /// The answer has come whole: the connection serves the next request, if it can.
    fn release(self: &Arc<Self>, py: Python<'_>) -> PyResult<()> {
        let is_idle = {
            let mut state = lock(&self.state);
            state.is_busy = false;
            state.connection.as_ref().is_some_and(Connection::is_idle)
        };
        if is_idle {
            self.pool.keep(py, self.clone())
        } else {
            self.close(py);
            Ok(())
        }
    }

    fn let_go_if_broken(self: &Arc<Self>, py: Python<'_>) {
        let is_over = {
            let state = lock(&self.state);
            !state.is_busy && state.connection.as_ref().is_some_and(|connection| !connection.is_idle())
        };
        if is_over {
            self.pool.forget(self);
            self.close(py);
        }
    }

    /// Has the loop wait for what the connection waits for.
    fn watch(self: &Arc<Self>, py: Python<'_>, wanted: Interest) -> PyResult<()> {
        let (before, descriptor) = {
            let mut state = lock(&self.state);
            let Some(connection) = &state.connection else { return Ok(()) };
            let descriptor = connection.descriptor().as_raw_fd();
            (std::mem::replace(&mut state.watched, wanted), descriptor)
        };
        let event_loop = self.pool.event_loop.bind(py);
        let watcher = |method| Bound::new(py, Watcher { line: self.clone() })?.getattr(method);
        match (before.bytes, wanted.bytes) {
            (false, true) => {
                let readable = watcher(intern!(py, "readable"))?;
                event_loop.call_method1(intern!(py, "add_reader"), (descriptor, readable))?;
            }
            (true, false) => {
                event_loop.call_method1(intern!(py, "remove_reader"), (descriptor,))?;
            }
            _ => {}
        }
        match (before.room, wanted.room) {
            (false, true) => {
                let writable = watcher(intern!(py, "writable"))?;
                event_loop.call_method1(intern!(py, "add_writer"), (descriptor, writable))?;
            }
            (true, false) => {
                event_loop.call_method1(intern!(py, "remove_writer"), (descriptor,))?;
            }
            _ => {}
        }
        if wanted.turn {
            let turn = watcher(intern!(py, "writable"))?;
            event_loop.call_method1(intern!(py, "call_soon"), (turn,))?;
        }
        Ok(())
    }

    /// Closes the socket; who waits hears of it.
    pub(super) fn close(self: &Arc<Self>, py: Python<'_>) {
        if let Err(error) = self.watch(py, Interest::default()) {
            error.write_unraisable(py, None);
        }
        let (connection, waiting, waiting_for_room, taker) = {
            let mut state = lock(&self.state);
            state.is_busy = false;
            (state.connection.take(), state.waiting.take(), state.waiting_for_room.take(), state.taker.take())
        };
        drop(connection);
        let lost = || Err(PyConnectionResetError::new_err("the connection was closed"));
        let settled = waiting.map_or(Ok(()), |(_, future)| settle(future.bind(py), lost));
        let settled =
            waiting_for_room.map_or(Ok(()), |future| settle(future.bind(py), || Ok(py.None()))).and(settled);
        let settled = match taker {
            Some(taker) => taker.object.call_method0(py, intern!(py, "take_over")).map(drop).and(settled),
            None => settled,
        };
        if let Err(error) = settled {
            error.write_unraisable(py, None);
        }
    }

    pub(super) fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        let Ok(state) = self.state.try_lock() else { return Ok(()) };
        visit.call(state.waiting.as_ref().map(|(_, future)| future))?;
        visit.call(state.taker.as_ref().map(|taker| &taker.object))?;
        visit.call(&state.waiting_for_room)
    }
}

/// What the loop calls.
#[pyclass(frozen, module = "kushi_native")]
struct Watcher {
    line: Arc<Line>,
}

#[pymethods]
impl Watcher {
    fn readable(&self, py: Python<'_>) {
        let Ok(_inside) = exit::enter_from_python(py) else { return };
        self.line.go_on(py, true);
    }

    fn writable(&self, py: Python<'_>) {
        let Ok(_inside) = exit::enter_from_python(py) else { return };
        self.line.go_on(py, false);
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.line.traverse(&visit)
    }
}
