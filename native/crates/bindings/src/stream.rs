//! `Core.stream`: the responses to one request, one after the other.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Instant;

use kushi_client::{Answer, InferCall};
use kushi_core::{Error, Mail, Mailbox, ModelSpec, Reply, Response, Ticket, Window};
use kushi_dataplane::Alarm;
use kushi_server::Server;
use pyo3::prelude::*;

use crate::calls::Arguments;
use crate::errors::{About, guarded, raise_about};
use crate::locks::lock;
use crate::process::Process;
use crate::result::PyResultMapping;
use crate::submission::{Beside, Submitted, submit_child};
use crate::turns::{SIGNAL_PATIENCE, in_turns};

/// An iterator. Nobody waits for what is left where it goes.
#[pyclass(frozen, module = "kushi_native")]
pub(crate) struct Stream {
    spec: Arc<ModelSpec>,
    ticket: Ticket,
    about: About,
    alarm: Mutex<Alarm>,
    arrived: Arc<Arrived>,
}

/// What has come and was not taken: no more than the window of the request.
#[derive(Default)]
struct Arrived {
    mail: Mutex<Letters>,
    changed: Condvar,
}

#[derive(Default)]
struct Letters {
    mail: VecDeque<Mail>,
    is_over: bool,
}

impl Mailbox for Arrived {
    fn deliver(&self, mail: Vec<Mail>) {
        lock(&self.mail).mail.extend(mail);
        self.changed.notify_one();
    }
}

pub(crate) fn stream(
    py: Python<'_>,
    server: &Server,
    process: Process,
    arguments: &Arguments<'_>,
) -> PyResult<Stream> {
    guarded(
        py,
        || arguments.about(),
        || {
            process.check("Engine").map_err(|error| raise_about(py, &error, &arguments.about()))?;
            let call = arguments.read()?;
            let about = About { model: call.model.clone(), request_id: call.id.clone() };
            begin(server, call, about.clone()).map_err(|error| raise_about(py, &error, &about))
        },
    )
}

fn begin(server: &Server, call: InferCall, about: About) -> Result<Stream, Error> {
    if let Some(output) = call.outputs.iter().find(|output| output.classes > 0) {
        let text =
            format!("output '{}': the classes of responses in a stream cannot be asked for", output.name);
        return Err(Error::invalid(text));
    }
    let arrived = Arc::new(Arrived::default());
    let mailbox: Arc<dyn Mailbox> = arrived.clone();
    let deadline = call.patience.and_then(|patience| Instant::now().checked_add(patience));
    let beside = Beside { deadline, streams: true, ..Beside::default() };
    let reply = || Reply::with_window(mailbox.clone(), 0, Window::default());
    let Submitted { spec, ticket, lease } = submit_child(server, call, beside, reply)?;
    if let Some(lease) = lease {
        server.drivers().offer(lease);
    }
    let alarm = Mutex::new(Alarm::of(&ticket));
    Ok(Stream { spec, ticket, about, alarm, arrived })
}

#[pymethods]
impl Stream {
    fn __iter__(this: Py<Self>) -> Py<Self> {
        this
    }

    /// Waits for the next response.
    fn __next__(&self, py: Python<'_>) -> PyResult<Option<PyResultMapping>> {
        let next = in_turns(py, || self.turn())?;
        let next = next.map_err(|error| raise_about(py, &error, &self.about))?;
        Ok(next.map(|response| PyResultMapping::from(self.answer(response))))
    }

    /// Nobody waits for what is left.
    fn close(&self, py: Python<'_>) {
        py.detach(|| self.give_up());
    }
}

impl Stream {
    /// No longer than a signal may wait; `None`: go on.
    fn turn(&self) -> Option<Result<Option<Response>, Error>> {
        let until = Instant::now() + SIGNAL_PATIENCE;
        let mut letters = lock(&self.arrived.mail);
        loop {
            if letters.is_over {
                return Some(Ok(None));
            }
            if let Some(mut mail) = letters.mail.pop_front() {
                let end = mail.end.take();
                letters.is_over = end.is_some();
                drop(letters);
                // Its room, under no lock.
                drop(mail.credit.take());
                return match (mail.response, end.map(|end| end.result)) {
                    (_, Some(Err(error))) => Some(Err(error)),
                    (Some(response), _) => Some(Ok(Some(response))),
                    (None, Some(Ok(()))) => Some(Ok(None)),
                    (None, None) => self.turn(),
                };
            }
            let now = Instant::now();
            let alarm = lock(&self.alarm).when();
            if alarm.is_some_and(|when| when <= now) {
                drop(letters);
                // The end may be delivered here.
                let has_expired = lock(&self.alarm).ring(&self.ticket);
                letters = lock(&self.arrived.mail);
                if has_expired {
                    letters.is_over = true;
                    return Some(Err(Error::expired()));
                }
                continue;
            }
            if now >= until {
                return None;
            }
            let look = alarm.map_or(until, |when| when.min(until));
            let waited = self.arrived.changed.wait_timeout(letters, look.saturating_duration_since(now));
            letters = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn answer(&self, response: Response) -> Answer {
        let named = |(at, tensor)| (self.spec.outputs[usize::from(at)].name.clone(), tensor);
        Answer {
            model: self.spec.name.clone(),
            version: self.spec.version.to_string(),
            id: self.about.request_id.clone(),
            parameters: response.parameters,
            outputs: response.outputs.into_iter().map(named).collect(),
            timings: None,
        }
    }

    fn give_up(&self) {
        self.ticket.cancel();
        let mut letters = lock(&self.arrived.mail);
        letters.is_over = true;
        let left = std::mem::take(&mut letters.mail);
        drop(letters);
        drop(left);
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.give_up();
    }
}
