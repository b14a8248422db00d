//! One event loop's connection to a local door, driven by the loop itself.
//!
//! The loop calls when the socket has something, and the answers settle their futures in that call. Calls
//! made in one turn of the loop leave in one write at its end. A stream belongs to the reader that is
//! registered with its loop, and so goes when the loop closes. When the connection breaks, the stream ends
//! with it, and calls that nothing was sent of go on over a new one.
//!
//! No lock is held while Python runs: whatever may run it happens with what was taken out under the lock.

mod callbacks;

use std::mem;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use kushi_client::local::{Connection, Ended, Outcome, Placed, Unsent};
use kushi_client::{Call, InferCall};
use kushi_core::Error;
use pyo3::intern;
use pyo3::prelude::*;

use self::callbacks::{Flush, GivenUp, Reader, Tick};
use crate::answers::{call_answer, result};
use crate::errors::About;
use crate::local_client::{Hold, Shared};
use crate::locks::lock;
use crate::waiting::Promise;

/// The first look at a silent server after a call; the connection says when the next is due.
const FIRST_LOOK: Duration = Duration::from_millis(250);

pub(crate) struct LocalStream {
    shared: Arc<Shared>,
    event_loop: Py<PyAny>,
    create_future: Py<PyAny>,
    call_soon: Py<PyAny>,
    /// What the loop calls to send what waits.
    flush: Py<Flush>,
    descriptor: RawFd,
    state: Mutex<StreamState>,
}

struct StreamState {
    /// `None` once it has broken.
    connection: Option<Connection<Asker>>,
    /// The loop will call [`LocalStream::flush`].
    flush_is_due: bool,
    /// The loop waits for room in the socket.
    writer_is_added: bool,
    /// What the loop will call, and when.
    timer: Option<(Instant, Py<PyAny>)>,
    /// Memory for the next burst.
    ended: Vec<Ended<Asker>>,
}

/// Who waits for a call.
pub(crate) struct Asker {
    promise: Promise,
    about: About,
    /// The client stays open until its last call has ended.
    _hold: Arc<Hold>,
}

/// What is asked for.
pub(crate) enum Question<'a> {
    Infer(&'a InferCall, Placed),
    Call(&'a Call),
}

impl LocalStream {
    /// Connects and has the loop, which runs on this thread, drive the stream.
    pub(crate) fn open(
        shared: &Arc<Shared>,
        event_loop: &Bound<'_, PyAny>,
    ) -> PyResult<Result<Arc<Self>, Error>> {
        let py = event_loop.py();
        let connection: Connection<Asker> = match shared.door.connect(None) {
            Ok(connection) => connection,
            Err(error) => return Ok(Err(error)),
        };
        let descriptor = connection.stream().as_raw_fd();
        let flush = Py::new(py, Flush::default())?;
        let stream = Arc::new(Self {
            shared: shared.clone(),
            event_loop: event_loop.clone().unbind(),
            create_future: event_loop.getattr(intern!(py, "create_future"))?.unbind(),
            call_soon: event_loop.getattr(intern!(py, "call_soon"))?.unbind(),
            flush,
            descriptor,
            state: Mutex::new(StreamState {
                connection: Some(connection),
                flush_is_due: false,
                writer_is_added: false,
                timer: None,
                ended: Vec::new(),
            }),
        });
        stream.flush.get().set_stream(&stream);
        let reader = Bound::new(py, Reader::new(stream.clone()))?;
        let drain = reader.getattr(intern!(py, "drain"))?;
        event_loop.call_method1(intern!(py, "add_reader"), (descriptor, drain))?;
        Ok(Ok(stream))
    }

    fn state(&self) -> MutexGuard<'_, StreamState> {
        lock(&self.state)
    }

    pub(crate) fn is_open(&self) -> bool {
        self.state().connection.is_some()
    }

    pub(crate) fn event_loop(&self) -> &Py<PyAny> {
        &self.event_loop
    }

    /// A future for the answer.
    pub(crate) fn ask<'py>(
        self: &Arc<Self>,
        py: Python<'py>,
        question: Question<'_>,
        patience: Option<Duration>,
        about: &About,
        hold: &Arc<Hold>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let future = self.create_future.bind(py).call0()?;
        let key = self.event_loop.as_ptr() as usize;
        let on_done = Bound::new(py, GivenUp::new(&self.shared, key))?;
        future.call_method1(intern!(py, "add_done_callback"), (&on_done,))?;
        let promise =
            || Promise { future: future.clone().unbind(), on_done: on_done.clone().into_any().unbind() };
        let asker = Asker { promise: promise(), about: about.clone(), _hold: hold.clone() };
        let now = Instant::now();
        let deadline = patience.and_then(|patience| now.checked_add(patience));
        let begun = {
            let mut state = self.state();
            match &mut state.connection {
                Some(connection) => match question {
                    Question::Infer(call, placed) => connection.infer(call, placed, asker, deadline, now),
                    Question::Call(call) => connection.call(call, asker, deadline, now),
                },
                None => Err(self.shared.door.lost()),
            }
        };
        match begun {
            Ok(id) => {
                on_done.get().begun(id);
                self.flush_soon(py)?;
                self.arm(py, deadline.map_or(now + FIRST_LOOK, |deadline| deadline.min(now + FIRST_LOOK)))?;
            }
            Err(error) => promise().settle(py, result(py, Err(error), about))?,
        }
        Ok(future)
    }

    /// What was taken over from a broken stream.
    fn adopt(&self, py: Python<'_>, unsent: Unsent<Asker>) -> PyResult<()> {
        let now = Instant::now();
        let deadline = {
            let mut state = self.state();
            let Some(connection) = &mut state.connection else { return Ok(()) };
            connection.adopt(unsent, now);
            connection.next_deadline()
        };
        self.flush_soon(py)?;
        self.arm(py, deadline.map_or(now + FIRST_LOOK, |deadline| deadline.min(now + FIRST_LOOK)))
    }

    fn flush_soon(&self, py: Python<'_>) -> PyResult<()> {
        if !self.state().flush_is_due {
            self.call_soon.bind(py).call1((&self.flush,))?;
            self.state().flush_is_due = true;
        }
        Ok(())
    }

    /// The loop looks after the connection by this time.
    fn arm(&self, py: Python<'_>, when: Instant) -> PyResult<()> {
        let before = {
            let mut state = self.state();
            if state.timer.as_ref().is_some_and(|(armed, _)| *armed <= when) {
                return Ok(());
            }
            state.timer.take()
        };
        let event_loop = self.event_loop.bind(py);
        if let Some((_, before)) = before {
            before.call_method0(py, intern!(py, "cancel"))?;
        }
        let delay = when.saturating_duration_since(Instant::now()).as_secs_f64();
        let tick = Bound::new(py, Tick::new(self.flush.get().stream()))?;
        let handle = event_loop.call_method1(intern!(py, "call_later"), (delay, tick))?;
        self.state().timer = Some((when, handle.unbind()));
        Ok(())
    }

    fn drain(&self, py: Python<'_>) -> PyResult<()> {
        let mut ended = mem::take(&mut self.state().ended);
        let received = self.with(|connection| {
            connection.receive(Instant::now(), &mut ended)?;
            if connection.has_unsent() { connection.flush(Instant::now()) } else { Ok(true) }
        });
        let settled = settle(py, &mut ended);
        self.state().ended = ended;
        self.carry_on(py, received);
        settled
    }

    /// Sends what waits.
    fn send(&self, py: Python<'_>) {
        self.state().flush_is_due = false;
        let flushed = self.with(|connection| connection.flush(Instant::now()));
        self.carry_on(py, flushed);
    }

    /// What is due at this time.
    fn tick(&self, py: Python<'_>) -> PyResult<()> {
        self.state().timer = None;
        let mut ended = Vec::new();
        let mut next = None;
        let looked = self.with(|connection| {
            let now = Instant::now();
            next = connection.tick(now, &mut ended)?;
            connection.flush(now)
        });
        let settled = settle(py, &mut ended);
        self.carry_on(py, looked);
        next.filter(|_| self.is_open()).map_or(Ok(()), |next| self.arm(py, next)).and(settled)
    }

    /// `Ok(true)` when there is nothing to do, or all is sent.
    fn with(
        &self,
        work: impl FnOnce(&mut Connection<Asker>) -> Result<bool, Error>,
    ) -> Option<Result<bool, Error>> {
        if !self.shared.process.is_current() {
            return None;
        }
        self.state().connection.as_mut().map(work)
    }

    fn carry_on(&self, py: Python<'_>, done: Option<Result<bool, Error>>) {
        let carried_on = match done {
            None => Ok(()),
            Some(Ok(all_sent)) => self.watch_for_room(py, !all_sent),
            Some(Err(error)) => self.lose(py, error),
        };
        if let Err(error) = carried_on {
            error.write_unraisable(py, Some(self.event_loop.bind(py)));
        }
    }

    fn watch_for_room(&self, py: Python<'_>, wanted: bool) -> PyResult<()> {
        if self.state().writer_is_added == wanted {
            return Ok(());
        }
        let event_loop = self.event_loop.bind(py);
        if wanted {
            event_loop.call_method1(intern!(py, "add_writer"), (self.descriptor, &self.flush))?;
        } else {
            event_loop.call_method1(intern!(py, "remove_writer"), (self.descriptor,))?;
        }
        self.state().writer_is_added = wanted;
        Ok(())
    }

    /// The connection is broken.
    fn lose(&self, py: Python<'_>, error: Error) -> PyResult<()> {
        let (connection, timer) = {
            let mut state = self.state();
            (state.connection.take(), state.timer.take())
        };
        let Some(connection) = connection else { return Ok(()) };
        let error = self.shared.door.explain(error);
        let mut ended = Vec::new();
        // The socket stays open until the loop has let go of it.
        let stream = connection.stream().clone();
        let unsent = connection.wreck(&error, &mut ended);
        let unregistered = self.unregister(py, timer);
        drop(stream);
        let resent = self.send_again(py, unsent, &mut ended);
        let settled = settle(py, &mut ended);
        unregistered.and(resent).and(settled)
    }

    fn unregister(&self, py: Python<'_>, timer: Option<(Instant, Py<PyAny>)>) -> PyResult<()> {
        if let Some((_, timer)) = timer {
            timer.call_method0(py, intern!(py, "cancel"))?;
        }
        self.watch_for_room(py, false)?;
        let event_loop = self.event_loop.bind(py);
        event_loop.call_method1(intern!(py, "remove_reader"), (self.descriptor,))?;
        Ok(())
    }

    fn send_again(
        &self,
        py: Python<'_>,
        unsent: Unsent<Asker>,
        ended: &mut Vec<Ended<Asker>>,
    ) -> PyResult<()> {
        if unsent.is_empty() {
            return Ok(());
        }
        match self.shared.stream(self.event_loop.bind(py)) {
            Ok(Ok(next)) => next.adopt(py, unsent),
            Ok(Err(error)) => {
                unsent.fail(&error, ended);
                Ok(())
            }
            Err(raised) => {
                unsent.fail(&self.shared.door.lost(), ended);
                Err(raised)
            }
        }
    }

    fn give_up(&self, py: Python<'_>, id: u64) -> PyResult<()> {
        let asker = self.state().connection.as_mut().and_then(|connection| connection.cancel(id));
        if asker.is_some() { self.flush_soon(py) } else { Ok(()) }
    }

    /// The loop will not run again.
    pub(crate) fn close(&self) {
        let (connection, timer) = {
            let mut state = self.state();
            (state.connection.take(), state.timer.take())
        };
        if self.shared.process.is_current() {
            drop((connection, timer));
        } else {
            // In a forked child the locks behind it may be held by threads that are not there.
            let _left_as_it_is = mem::ManuallyDrop::new((connection, timer));
        }
    }
}

/// All are told, whatever comes in between.
fn settle(py: Python<'_>, ended: &mut Vec<Ended<Asker>>) -> PyResult<()> {
    let mut settled = Ok(());
    for Ended { asker, outcome } in ended.drain(..) {
        let Asker { promise, about, .. } = asker;
        let outcome = match outcome {
            Ok(Outcome::Answer(answer)) => result(py, Ok(answer), &about),
            Ok(Outcome::CallAnswer(answer)) => call_answer(py, Ok(answer), &about),
            // Of streams, which are no calls of a loop.
            Ok(Outcome::End) => result(py, Err(kushi_client::local::client_closed()), &about),
            Err(error) => result(py, Err(error), &about),
        };
        settled = settled.and(promise.settle(py, outcome));
    }
    settled
}
