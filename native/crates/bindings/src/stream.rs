//! `Stream`: the answers to one request, one after the other, of the core in this process or of a client.

mod arrived;
mod core;

use std::sync::{Arc, Mutex};
use std::time::Instant;

use kushi_client::{Answer, InferCall, RemoteClient, Streamed};
use kushi_core::{Alarm, Error, ModelSpec, Response, Ticket};
use kushi_engine_python::exit;
use pyo3::exceptions::{PyRuntimeError, PyStopAsyncIteration};
use pyo3::prelude::*;

use self::arrived::{Arrived, ArrivedAnswer};
pub(crate) use self::core::begin;
use crate::errors::{About, raise_about};
use crate::locks::lock;
use crate::loops::EventLoop;
use crate::process::Own;
use crate::result::PyResultMapping;
use crate::turns::{SIGNAL_PATIENCE, in_turns};
use crate::waiting::Hold;

/// An iterator. Nobody waits for what is left where it goes.
#[pyclass(frozen, module = "kushi_native")]
pub(crate) struct Stream {
    source: Own<Source>,
    about: About,
    arrived: Arc<Arrived>,
}

/// Where answers come from.
enum Source {
    Core {
        spec: Arc<ModelSpec>,
        ticket: Ticket,
        alarm: Mutex<Alarm>,
    },
    /// How the call of a client is cancelled. The client's thread keeps the deadline.
    Client(Box<dyn Fn() + Send + Sync>),
}

#[pymethods]
impl Stream {
    fn __iter__(this: Py<Self>) -> Py<Self> {
        this
    }

    /// Waits for the next answer.
    fn __next__(&self, py: Python<'_>) -> PyResult<Option<PyResultMapping>> {
        let _inside = exit::enter_from_python(py)?;
        self.check(py)?;
        let next = in_turns(py, || self.turn())?;
        let next = next.map_err(|error| raise_about(py, &error, &self.about))?;
        Ok(next.map(PyResultMapping::from))
    }

    /// The next answer if it has come, else nothing; raises `StopAsyncIteration` behind the last one.
    fn take(&self, py: Python<'_>) -> PyResult<Option<PyResultMapping>> {
        let _inside = exit::enter();
        self.check(py)?;
        match exit::detached_shortly(py, || self.ready()) {
            None => Ok(None),
            Some(Ok(Some(answer))) => Ok(Some(PyResultMapping::from(answer))),
            Some(Ok(None)) => Err(PyStopAsyncIteration::new_err(())),
            Some(Err(error)) => Err(raise_about(py, &error, &self.about)),
        }
    }

    /// A future of the running event loop that is done when it is worth while to take again.
    fn come<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let _inside = exit::enter_from_python(py)?;
        self.check(py)?;
        let event_loop = EventLoop::running(py)?;
        let key = event_loop.reserve();
        if let Err(unused) = self.arrived.wake(event_loop.completer(key)) {
            drop(unused);
            event_loop.release(key);
            return Err(PyRuntimeError::new_err("another task waits for the next answer of this stream"));
        }
        let arrived = self.arrived.clone();
        let hold = Hold::Client(Box::new(move || arrived.ring()));
        event_loop.wait(py, key, hold, self.about.clone(), self.alarm())
    }

    /// Nobody waits for what is left.
    fn close(&self, py: Python<'_>) {
        if self.source.process().is_current() {
            exit::detached_shortly(py, || self.give_up());
        }
    }
}

impl Stream {
    fn new(source: Source, about: About, arrived: Arc<Arrived>) -> Self {
        Self { source: Own::new(source), about, arrived }
    }

    /// A request that the thread of a client drives.
    pub(crate) fn of_client(client: Arc<RemoteClient>, call: Box<InferCall>, about: About) -> Self {
        let arrived = Arc::new(Arrived::default());
        let sink = arrived.clone();
        let ticket = client.stream(call, move |streamed| sink.push([ArrivedAnswer::Streamed(streamed)]));
        let source = Source::Client(Box::new(move || client.cancel(ticket)));
        Self::new(source, about, arrived)
    }

    fn check(&self, py: Python<'_>) -> PyResult<()> {
        self.source.process().check("Stream").map_err(|error| raise_about(py, &error, &self.about))
    }

    /// What has come; `None`: nothing yet.
    fn ready(&self) -> Option<Result<Option<Answer>, Error>> {
        loop {
            match self.arrived.pop() {
                Some(ArrivedAnswer::Mail(mut mail)) => {
                    let end = mail.end.take();
                    drop(mail.credit.take());
                    match (mail.response, end.map(|end| end.result)) {
                        (_, Some(Err(error))) => return Some(Err(error)),
                        (Some(response), _) => return Some(Ok(Some(self.answer(response)))),
                        (None, Some(Ok(()))) => return Some(Ok(None)),
                        (None, None) => {}
                    }
                }
                Some(ArrivedAnswer::Streamed(Streamed::Answer(answer, room))) => {
                    drop(room);
                    return Some(Ok(Some(answer)));
                }
                Some(ArrivedAnswer::Streamed(Streamed::End(end))) => return Some(end.map(|()| None)),
                None if self.arrived.is_over() => return Some(Ok(None)),
                None => match self.has_expired() {
                    Some(true) => {
                        self.arrived.close();
                        return Some(Err(Error::expired()));
                    }
                    // The end may have been delivered by it.
                    Some(false) => {}
                    None => return None,
                },
            }
        }
    }

    /// No longer than a signal may wait; `None`: go on.
    fn turn(&self) -> Option<Result<Option<Answer>, Error>> {
        let until = Instant::now() + SIGNAL_PATIENCE;
        loop {
            if let Some(ready) = self.ready() {
                return Some(ready);
            }
            if Instant::now() >= until {
                return None;
            }
            self.arrived.wait(self.alarm().map_or(until, |when| when.min(until)));
        }
    }

    fn alarm(&self) -> Option<Instant> {
        match &*self.source {
            Source::Core { alarm, .. } => lock(alarm).when(),
            Source::Client(_) => None,
        }
    }

    /// `None`: there is time left.
    fn has_expired(&self) -> Option<bool> {
        let Source::Core { alarm, ticket, .. } = &*self.source else { return None };
        let mut alarm = lock(alarm);
        alarm.when().filter(|&when| when <= Instant::now()).map(|_| alarm.ring(ticket))
    }

    fn answer(&self, response: Response) -> Answer {
        let (outputs, model, version) = match &*self.source {
            Source::Core { spec, .. } => (&*spec.outputs, spec.name.clone(), spec.version.to_string()),
            // A client has answers.
            Source::Client(_) => (&[][..], String::new(), String::new()),
        };
        let named = |(at, tensor)| Some((outputs.get(usize::from(at))?.name.clone(), tensor));
        Answer {
            model,
            version,
            id: self.about.request_id.clone(),
            parameters: response.parameters,
            outputs: response.outputs.into_iter().filter_map(named).collect(),
            timings: None,
        }
    }

    fn give_up(&self) {
        match &*self.source {
            Source::Core { ticket, .. } => drop(ticket.cancel()),
            Source::Client(cancel) => cancel(),
        }
        self.arrived.close();
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        if self.source.process().is_current() {
            self.give_up();
        }
    }
}
