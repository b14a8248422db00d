//! `Upstream`: requests that are passed on to a server over HTTP, and its answers, as an event loop drives
//! them.
//!
//! A small exchange is one call in, one write, one read, and one future that is done. The loop calls when
//! a socket has something; what then moves is the connection's to say. Everything here happens on the thread
//! of the loop, under the GIL. No lock is held while Python runs.

mod line;
mod news;
mod pool;

use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use kushi_client::relay::{Connection, Destination, Ordinary, Refused, Request, connect};
use kushi_client::{Tls, TlsOptions};
use kushi_engine_python::exit;
use pyo3::exceptions::PyValueError;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::PyList;

use self::line::{Line, Taker, Wanted};
use self::pool::Pool;
use crate::errors::{About, guarded, raise_about};
use crate::loops::running_loop;

/// Smaller pieces are copied: what holds a larger one is more than the copy.
const COPIED_BYTES: usize = 4 << 10;

/// A server, and the connections to it. It belongs to the event loop on which it was made.
#[pyclass(frozen, module = "kushi_native")]
pub(crate) struct Upstream {
    pool: Arc<Pool>,
    path: Option<PathBuf>,
    destination: Destination,
    tls: Option<Tls>,
}

#[pymethods]
impl Upstream {
    /// `path` is the server's socket; without one, `ask` is given sockets. `host` stands in the place of the
    /// client's, `prefix` before every path. `tls` is whom the server's certificate must name.
    #[new]
    #[pyo3(signature = (path, *, host=None, prefix="", tls=None, ca_cert=None, client_cert=None, idle_seconds=4.0))]
    #[allow(clippy::too_many_arguments, reason = "they have names")]
    fn new(
        py: Python<'_>,
        path: Option<PathBuf>,
        host: Option<&[u8]>,
        prefix: &str,
        tls: Option<&str>,
        ca_cert: Option<PathBuf>,
        client_cert: Option<(PathBuf, PathBuf)>,
        idle_seconds: f64,
    ) -> PyResult<Self> {
        let _inside = exit::enter_from_python(py)?;
        let options = TlsOptions { authorities: ca_cert, identity: client_cert, insecure: false };
        let tls = tls.map(|name| Tls::new(name, &options)).transpose();
        let tls = tls.map_err(|error| raise_about(py, &error, &About::default()))?;
        let patience = Duration::try_from_secs_f64(idle_seconds).map_err(|_| {
            PyValueError::new_err(format!("idle_seconds is {idle_seconds}, expected 0 or more"))
        })?;
        let destination = Destination::new(host, prefix).map_err(refused)?;
        let event_loop = running_loop(py)?;
        Ok(Self { pool: Pool::new(&event_loop, patience)?, path, destination, tls })
    }

    /// Begins an exchange: `body` is what has come of the request's, `more` whether there will be more. None
    /// where there is no idle connection and no way to open one: then `socket` is one, whose owner this is from
    /// then on.
    #[pyo3(signature = (method, target, headers, body, more, *, fresh=false, socket=None))]
    #[allow(clippy::too_many_arguments, reason = "they have names")]
    #[allow(clippy::needless_pass_by_value, reason = "as PyO3 hands them over")]
    fn ask(
        &self,
        py: Python<'_>,
        method: &str,
        target: (PyBackedBytes, PyBackedBytes),
        headers: &Bound<'_, PyList>,
        body: PyBackedBytes,
        more: bool,
        fresh: bool,
        socket: Option<RawFd>,
    ) -> PyResult<Option<Exchange>> {
        // SAFETY: the caller has given it away.
        let mut socket = socket.map(|descriptor| unsafe { OwnedFd::from_raw_fd(descriptor) });
        guarded(py, About::default, || {
            let headers: Vec<(PyBackedBytes, PyBackedBytes)> = headers.extract()?;
            let body = bytes_of(body);
            let (path, query) = &target;
            let mark: &[u8] = if query.is_empty() { b"" } else { b"?" };
            self.begin(py, socket.take(), fresh, || {
                let headers = headers.iter().map(|(name, value)| (&name[..], &value[..]));
                let target = [path, mark, query];
                Request::new(method, &target, headers, &self.destination, body.clone(), !more)
            })
        })
    }

    /// Begins the exchange of an ordinary request, of which `data` is all. `taker.answered` is called with the
    /// bytes of the answer, which has `before` in front of its headers; or `taker.take_over` is called where the
    /// answer is not ordinary: then the exchange is as one of `ask`. A number of bytes where so many are
    /// missing at the end of `data`; None where the request is not ordinary.
    #[pyo3(signature = (data, taker, before, max_head_bytes, max_headers))]
    #[allow(clippy::needless_pass_by_value, reason = "as PyO3 hands them over")]
    fn pass_on(
        &self,
        py: Python<'_>,
        data: PyBackedBytes,
        taker: Py<PyAny>,
        before: PyBackedBytes,
        max_head_bytes: usize,
        max_headers: usize,
    ) -> PyResult<Option<BegunExchange>> {
        guarded(py, About::default, || {
            let Some(read) = Ordinary::read(&data, max_head_bytes, max_headers) else { return Ok(None) };
            if read.missing_bytes > 0 {
                return Ok(Some(BegunExchange::Missing(read.missing_bytes)));
            }
            let body = Bytes::copy_from_slice(&data[read.body_at..]);
            let target = [read.target.as_bytes()];
            // What hinders it is heard by whoever reads the unusual.
            let begun = self.begin(py, None, false, || {
                let headers = read.headers.iter().copied();
                Request::new(read.method, &target, headers, &self.destination, body.clone(), true)
            });
            let Ok(Some(exchange)) = begun else { return Ok(None) };
            exchange.line.give(py, Taker { object: taker, before })?;
            Ok(Some(BegunExchange::Exchange(exchange)))
        })
    }

    /// Ends what is under way and closes all connections
    fn close(&self, py: Python<'_>) {
        let _inside = exit::enter_from_python(py);
        self.pool.close(py);
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.pool.traverse(&visit)
    }
}

impl Upstream {
    fn open(&self, socket: OwnedFd) -> Arc<Line> {
        Line::new(&self.pool, Connection::new(socket, self.tls.as_ref()))
    }

    fn begin(
        &self,
        py: Python<'_>,
        mut socket: Option<OwnedFd>,
        fresh: bool,
        request: impl Fn() -> Result<Request, Refused>,
    ) -> PyResult<Option<Exchange>> {
        let mut kept = socket.is_none() && !fresh;
        loop {
            // A connection is taken for what can be sent alone.
            let request = request().map_err(refused)?;
            let line = if kept { self.pool.take(py) } else { None };
            kept = line.is_some();
            let line = match (line, socket.take(), &self.path) {
                (Some(line), ..) => line,
                (None, Some(socket), _) => self.open(socket),
                (None, None, Some(path)) => self.open(connect(path)?),
                (None, None, None) => return Ok(None),
            };
            match line.ask(py, request) {
                Err(_) if kept => line.close(py),
                Ok(number) | Err(number) => {
                    return Ok(Some(Exchange { line, number, was_kept: kept }));
                }
            }
        }
    }
}

#[derive(IntoPyObject)]
enum BegunExchange {
    Exchange(Exchange),
    Missing(usize),
}

/// A request under way, and its answer.
#[pyclass(frozen, module = "kushi_native")]
pub(crate) struct Exchange {
    line: Arc<Line>,
    number: u64,
    /// On a connection that had served before.
    #[pyo3(get)]
    was_kept: bool,
}

#[pymethods]
impl Exchange {
    /// More of the request's body. A future where the server has to take some of it first.
    fn push<'py>(
        &self,
        py: Python<'py>,
        piece: PyBackedBytes,
        more: bool,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        guarded(py, About::default, || self.line.push(py, self.number, bytes_of(piece), !more))
    }

    /// The taker is not called any more: futures tell of the answer
    fn hold(&self) {
        let _inside = exit::enter();
        self.line.hold(self.number);
    }

    /// A future for status, headers, what has come of the body, and whether more will come
    fn answer<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        guarded(py, About::default, || self.line.wait(py, self.number, Wanted::Head))
    }

    /// A future for what comes of the answer's body next, and whether more will come
    fn more<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        guarded(py, About::default, || self.line.wait(py, self.number, Wanted::Body))
    }

    /// Whether the server has agreed on TLS, or speaks none
    #[getter]
    fn is_open(&self) -> bool {
        self.line.is_open()
    }

    /// Gives the exchange up where it is not complete: its connection is closed
    fn close(&self, py: Python<'_>) {
        let _inside = exit::enter_from_python(py);
        self.line.end(py, self.number);
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.line.traverse(&visit)
    }
}

fn bytes_of(piece: PyBackedBytes) -> Bytes {
    if piece.len() <= COPIED_BYTES { Bytes::copy_from_slice(&piece) } else { Bytes::from_owner(piece) }
}

/// Status and text.
fn refused(refused: Refused) -> PyErr {
    PyValueError::new_err((refused.status, refused.text))
}
