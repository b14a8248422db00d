//! `LocalClient`: calls to an engine on this host through its local door.
//!
//! A call that waits has a stream for itself; the calls of one event loop share one.

use std::cell::RefCell;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::Duration;

use kushi_client::local::{Door, Placed, Streams};
use kushi_client::{InferCall, RemoteClient};
use kushi_core::Error;
use kushi_engine_python::exit;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::answers::call_answer;
use crate::calls::{self, Arguments};
use crate::errors::{About, guarded, raise_about};
use crate::local_array;
use crate::local_stream::{LocalStream, Question};
use crate::locks::lock;
use crate::loops::{failed, running_loop};
use crate::process::{Own, Process};
use crate::result::PyResultMapping;
use crate::stream::Stream;

/// From here on the GIL is given up for a copy.
const LONG_COPY_BYTES: usize = 1 << 20;

#[pyclass(frozen, module = "kushi_native")]
pub(crate) struct LocalClient {
    shared: Own<Arc<Shared>>,
    hold: Own<Arc<Hold>>,
}

/// What the client and its streams share.
pub(crate) struct Shared {
    pub door: Arc<Door>,
    pub process: Process,
    waiting: Streams,
    /// For what has any number of answers, once something has.
    streaming: OnceLock<Arc<RemoteClient>>,
    /// By the address of their loop, which lives as long as the stream.
    streams: Mutex<Vec<(usize, Weak<LocalStream>)>>,
}

/// Of the client and its calls in flight: when all are gone, its streams end.
pub(crate) struct Hold(Arc<Shared>);

impl Drop for Hold {
    fn drop(&mut self) {
        // Not in a forked child, whose parent has the same sockets.
        if self.0.process.is_current() {
            self.0.close();
        }
    }
}

impl Shared {
    fn close(&self) {
        self.door.close();
        self.waiting.clear();
        if let Some(streaming) = self.streaming.get() {
            streaming.close();
        }
    }

    fn streaming(&self) -> Result<Arc<RemoteClient>, Error> {
        self.door.check()?;
        if let Some(known) = self.streaming.get() {
            return Ok(known.clone());
        }
        // The other one of two that begin at once ends where it is dropped.
        let new = Arc::new(RemoteClient::local(&self.door)?);
        let kept = self.streaming.get_or_init(|| new).clone();
        // Whoever has closed meanwhile has not seen it.
        self.door.check().inspect_err(|_| kept.close())?;
        Ok(kept)
    }

    /// The open stream of a loop.
    pub(crate) fn known(&self, key: usize) -> Option<Arc<LocalStream>> {
        let stream = {
            let streams = lock(&self.streams);
            streams.iter().find(|(known, _)| *known == key)?.1.upgrade()?
        };
        Some(stream).filter(|stream| stream.is_open())
    }

    /// The stream of the loop that runs on this thread.
    pub(crate) fn stream(
        self: &Arc<Self>,
        event_loop: &Bound<'_, PyAny>,
    ) -> PyResult<Result<Arc<LocalStream>, Error>> {
        let key = event_loop.as_ptr() as usize;
        if let Some(stream) = self.known(key) {
            return Ok(Ok(stream));
        }
        self.sweep(event_loop.py());
        let opened = LocalStream::open(self, event_loop)?;
        if let Ok(stream) = &opened {
            let mut streams = lock(&self.streams);
            streams.retain(|(known, stream)| *known != key && stream.strong_count() > 0);
            streams.push((key, Arc::downgrade(stream)));
        }
        Ok(opened)
    }

    /// Ends the streams of loops that were closed without letting their readers go.
    fn sweep(&self, py: Python<'_>) {
        let streams: Vec<Arc<LocalStream>> = {
            let streams = lock(&self.streams);
            streams.iter().filter_map(|(_, stream)| stream.upgrade()).collect()
        };
        for stream in streams {
            let closed = stream.event_loop().call_method0(py, intern!(py, "is_closed"));
            if closed.and_then(|closed| closed.is_truthy(py)).unwrap_or(false) {
                stream.close();
            }
        }
    }
}

#[pymethods]
impl LocalClient {
    #[new]
    fn new(path: PathBuf) -> Self {
        let door = Door::new(path);
        let waiting = Streams::new(door.clone());
        let shared = Arc::new(Shared {
            door,
            process: Process::current(),
            waiting,
            streaming: OnceLock::new(),
            streams: Mutex::default(),
        });
        let hold = Arc::new(Hold(shared.clone()));
        Self { shared: Own::new(shared), hold: Own::new(hold) }
    }

    #[pyo3(
        signature = (*arguments),
        text_signature = "($self, model, inputs, model_version, outputs, parameters, deadline, priority, request_id, /)"
    )]
    fn infer<'py>(&self, py: Python<'py>, arguments: &Bound<'py, PyTuple>) -> PyResult<PyResultMapping> {
        let arguments = Arguments::of(arguments)?;
        guarded(
            py,
            || arguments.about(),
            || {
                self.own(py, &arguments.about())?;
                let call = arguments.read()?;
                let answer = wait(py, |interrupted| self.shared.waiting.infer(&call, interrupted))?;
                let about = || About { model: call.model.clone(), request_id: call.id.clone() };
                answer.map(PyResultMapping::from).map_err(|error| raise_about(py, &error, &about()))
            },
        )
    }

    #[pyo3(
        signature = (*arguments),
        text_signature = "($self, model, inputs, model_version, outputs, parameters, deadline, priority, request_id, /)"
    )]
    fn async_infer<'py>(
        &self,
        py: Python<'py>,
        arguments: &Bound<'py, PyTuple>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let arguments = Arguments::of(arguments)?;
        guarded(
            py,
            || arguments.about(),
            || {
                self.own(py, &arguments.about())?;
                let event_loop = running_loop(py)?;
                self.begin_infer(&event_loop, &arguments).or_else(|error| fail(&event_loop, error))
            },
        )
    }

    #[pyo3(
        signature = (*arguments),
        text_signature = "($self, model, inputs, model_version, outputs, parameters, deadline, priority, request_id, /)"
    )]
    fn stream<'py>(&self, py: Python<'py>, arguments: &Bound<'py, PyTuple>) -> PyResult<Stream> {
        let arguments = Arguments::of(arguments)?;
        guarded(
            py,
            || arguments.about(),
            || {
                self.own(py, &arguments.about())?;
                let call = Box::new(arguments.read()?);
                let about = About { model: call.model.clone(), request_id: call.id.clone() };
                let client = self.shared.streaming().map_err(|error| raise_about(py, &error, &about))?;
                Ok(Stream::of_client(client, call, about))
            },
        )
    }

    #[pyo3(signature = (verb, arguments, deadline, /))]
    fn call(
        &self,
        py: Python<'_>,
        verb: String,
        arguments: &[u8],
        deadline: &Bound<'_, PyAny>,
    ) -> PyResult<Py<PyAny>> {
        guarded(py, About::default, || {
            self.own(py, &About::default())?;
            let call = calls::verb(verb, arguments, deadline)?;
            let answer = wait(py, |interrupted| self.shared.waiting.call(&call, interrupted))?;
            call_answer(py, answer, &About::default())
        })
    }

    #[pyo3(signature = (verb, arguments, deadline, /))]
    fn async_call<'py>(
        &self,
        py: Python<'py>,
        verb: String,
        arguments: &[u8],
        deadline: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        guarded(py, About::default, || {
            self.own(py, &About::default())?;
            let event_loop = running_loop(py)?;
            let begun = calls::verb(verb, arguments, deadline).and_then(|call| {
                self.ask(&event_loop, Question::Call(&call), call.patience, &About::default())
            });
            begun.or_else(|error| fail(&event_loop, error))
        })
    }

    /// An array that travels without a copy when it is an input. Small ones travel in the frame, and so are
    /// NumPy's own.
    #[pyo3(signature = (shape, dtype, /))]
    fn empty<'py>(
        &self,
        py: Python<'py>,
        shape: &Bound<'py, PyAny>,
        dtype: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        guarded(py, About::default, || {
            self.own(py, &About::default())?;
            local_array::empty(self.shared.door.arena(), shape, dtype)
        })
    }

    fn close(&self, py: Python<'_>) {
        if self.shared.process.is_current() {
            exit::detached(py, || self.shared.close());
        }
    }
}

impl LocalClient {
    fn own(&self, py: Python<'_>, about: &About) -> PyResult<()> {
        self.shared.process.check("Client").map_err(|error| raise_about(py, &error, about))
    }

    fn begin_infer<'py>(
        &self,
        event_loop: &Bound<'py, PyAny>,
        arguments: &Arguments<'py>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let call = arguments.read()?;
        let about = About { model: call.model.clone(), request_id: call.id.clone() };
        let placed = self.place(event_loop.py(), &call);
        self.ask(event_loop, Question::Infer(&call, placed), call.patience, &about)
    }

    fn place(&self, py: Python<'_>, call: &InferCall) -> Placed {
        let arena = self.shared.door.arena();
        let bytes: usize = call.inputs.iter().map(|input| input.tensor.data.len()).sum();
        if bytes >= LONG_COPY_BYTES {
            exit::detached_inside(py, || arena.place(call))
        } else {
            arena.place(call)
        }
    }

    fn ask<'py>(
        &self,
        event_loop: &Bound<'py, PyAny>,
        question: Question<'_>,
        patience: Option<Duration>,
        about: &About,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = event_loop.py();
        match self.shared.stream(event_loop)? {
            Ok(stream) => stream.ask(py, question, patience, about, &self.hold),
            Err(error) => Err(raise_about(py, &error, about)),
        }
    }
}

fn fail<'py>(event_loop: &Bound<'py, PyAny>, error: PyErr) -> PyResult<Bound<'py, PyAny>> {
    let py = event_loop.py();
    failed(py, error, || event_loop.call_method0(intern!(py, "create_future")))
}

/// For a thread that is inside: waits without the GIL. A signal that raises gives the call up.
fn wait<R: Send>(
    py: Python<'_>,
    work: impl Send + FnOnce(&dyn Fn() -> ControlFlow<()>) -> Result<R, Error>,
) -> PyResult<Result<R, Error>> {
    let (outcome, raised) = exit::detached_inside(py, || {
        let raised = RefCell::new(None);
        // `None` when the interpreter is on its way out.
        let signal = |py: Python<'_>| py.check_signals();
        let interrupted = || {
            exit::stay_if_over();
            match exit::attached(signal) {
                Some(Ok(())) => ControlFlow::Continue(()),
                signal => {
                    *raised.borrow_mut() = signal.and_then(Result::err);
                    ControlFlow::Break(())
                }
            }
        };
        let outcome = work(&interrupted);
        (outcome, raised.into_inner())
    });
    raised.map_or(Ok(outcome), Err)
}
