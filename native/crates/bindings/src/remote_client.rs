//! `RemoteClient`: calls to any server that speaks the protocol, over HTTP or gRPC.

use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use kushi_client::{Answer, InferCall, RemoteOptions, Ticket, TlsOptions};
use kushi_core::Error;
use kushi_engine_python::exit;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::answers::call_answer;
use crate::arrivals::Outcome;
use crate::calls::{self, Arguments};
use crate::errors::{About, guarded, raise_about};
use crate::locks::lock;
use crate::loops::EventLoop;
use crate::process::Own;
use crate::result::PyResultMapping;
use crate::stream::Stream;
use crate::turns::{SIGNAL_PATIENCE, in_turns};
use crate::waiting::Hold;

#[pyclass(frozen, module = "kushi_native")]
pub(crate) struct RemoteClient {
    client: Own<Arc<kushi_client::RemoteClient>>,
}

#[pymethods]
impl RemoteClient {
    /// The three paths and `insecure` are for https and grpcs; a certificate comes with its key.
    #[new]
    #[pyo3(signature = (url, *, headers=Vec::new(), ca_cert=None, client_cert=None, insecure=false))]
    fn new(
        py: Python<'_>,
        url: &str,
        headers: Vec<(String, String)>,
        ca_cert: Option<PathBuf>,
        client_cert: Option<(PathBuf, PathBuf)>,
        insecure: bool,
    ) -> PyResult<Self> {
        let tls = TlsOptions { authorities: ca_cert, identity: client_cert, insecure };
        let options = RemoteOptions { headers, tls, ..RemoteOptions::default() };
        let client = exit::detached(py, || kushi_client::RemoteClient::new(url, options));
        let client = client.map_err(|error| raise_about(py, &error, &About::default()))?;
        Ok(Self { client: Own::new(Arc::new(client)) })
    }

    #[pyo3(
        signature = (*arguments),
        text_signature = "($self, model, inputs, model_version, outputs, parameters, deadline, priority, request_id, /)"
    )]
    fn infer<'py>(&self, py: Python<'py>, arguments: &Bound<'py, PyTuple>) -> PyResult<PyResultMapping> {
        let arguments = Arguments::of(arguments)?;
        guarded(py, || arguments.about(), || self.wait_for_infer(py, &arguments))
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
                self.own(py, || arguments.about())?;
                let event_loop = EventLoop::running(py)?;
                self.begin_infer(py, &event_loop, &arguments).or_else(|error| event_loop.failed(py, error))
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
                self.own(py, || arguments.about())?;
                let call = Box::new(arguments.read()?);
                let about = About { model: call.model.clone(), request_id: call.id.clone() };
                Ok(Stream::of_client(Arc::clone(&self.client), call, about))
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
            self.own(py, About::default)?;
            let call = calls::verb(verb, arguments, deadline)?;
            let pending =
                Pending::begin(|outcome| self.client.call(call, move |answer| outcome.fill(answer)));
            let answer = pending.wait(py, &self.client)?;
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
            self.own(py, About::default)?;
            let event_loop = EventLoop::running(py)?;
            let begun = calls::verb(verb, arguments, deadline).and_then(|call| {
                let key = event_loop.reserve();
                let completer = event_loop.completer(key);
                let done = move |answer| completer.complete(Outcome::Call(answer));
                let ticket = self.client.call(call, done);
                event_loop.wait(py, key, self.hold(ticket), About::default(), None)
            });
            begun.or_else(|error| event_loop.failed(py, error))
        })
    }

    fn close(&self, py: Python<'_>) {
        if self.client.process().is_current() {
            exit::detached(py, || self.client.close());
        }
    }
}

impl RemoteClient {
    fn own(&self, py: Python<'_>, about: impl FnOnce() -> About) -> PyResult<()> {
        self.client.process().check("Client").map_err(|error| raise_about(py, &error, &about()))
    }

    fn hold(&self, ticket: Ticket) -> Hold {
        let client = Arc::clone(&self.client);
        Hold::Client(Box::new(move || client.cancel(ticket)))
    }

    fn begin_infer<'py>(
        &self,
        py: Python<'py>,
        event_loop: &EventLoop,
        arguments: &Arguments<'py>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let call = Box::new(arguments.read()?);
        let about = About { model: call.model.clone(), request_id: call.id.clone() };
        let key = event_loop.reserve();
        let completer = event_loop.completer(key);
        let done = move |call, answer| completer.complete(Outcome::Infer(call, answer));
        let ticket = self.client.infer(call, done);
        // The client's thread keeps the deadline.
        event_loop.wait(py, key, self.hold(ticket), about, None)
    }

    fn wait_for_infer(&self, py: Python<'_>, arguments: &Arguments<'_>) -> PyResult<PyResultMapping> {
        self.own(py, || arguments.about())?;
        let call = Box::new(arguments.read()?);
        let about = About { model: call.model.clone(), request_id: call.id.clone() };
        let pending = Pending::begin(|outcome| {
            self.client.infer(call, move |call, answer| outcome.fill((call, answer)))
        });
        let (_released_here, answer): (Box<InferCall>, Result<Answer, Error>) =
            pending.wait(py, &self.client)?;
        answer.map(PyResultMapping::from).map_err(|error| raise_about(py, &error, &about))
    }
}

/// A call that its caller waits for.
struct Pending<T> {
    outcome: Arc<Awaited<T>>,
    ticket: Ticket,
}

struct Awaited<T> {
    outcome: Mutex<Option<T>>,
    filled: Condvar,
}

impl<T> Awaited<T> {
    fn fill(&self, outcome: T) {
        *lock(&self.outcome) = Some(outcome);
        self.filled.notify_one();
    }

    fn wait(&self, at_most: Duration) -> Option<T> {
        let outcome = lock(&self.outcome);
        let waited = self.filled.wait_timeout_while(outcome, at_most, |outcome| outcome.is_none());
        waited.unwrap_or_else(PoisonError::into_inner).0.take()
    }
}

impl<T: Send> Pending<T> {
    fn begin(submit: impl FnOnce(Arc<Awaited<T>>) -> Ticket) -> Self {
        let outcome = Arc::new(Awaited { outcome: Mutex::new(None), filled: Condvar::new() });
        Self { ticket: submit(outcome.clone()), outcome }
    }

    /// Waits without the GIL; a signal that raises cancels the call.
    fn wait(self, py: Python<'_>, client: &kushi_client::RemoteClient) -> PyResult<T> {
        in_turns(py, || self.outcome.wait(SIGNAL_PATIENCE)).inspect_err(|_| client.cancel(self.ticket))
    }
}
