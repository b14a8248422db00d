//! Calls made on event loops: each loop has one queue for the ends of its calls, and one alarm.
//!
//! Threads of the core and of clients put ends into the queue without the GIL. The loop takes them out,
//! all that have come in one turn. A loop's state belongs to the reader that is registered with it, and so
//! goes when the loop closes: then its calls are cancelled. Whatever a call borrowed is released when its
//! end arrives, on the loop's thread. In a forked child nothing is done about calls that the parent made:
//! the locks behind them may be held by threads that are not there.

mod callbacks;

use std::mem::ManuallyDrop;
use std::os::fd::RawFd;
use std::sync::{Arc, Mutex, Weak};
use std::time::Instant;

use kushi_core::{Error, ErrorKind, Mail};
use kushi_engine_python::exit;
use pyo3::exceptions::{PyException, PyRuntimeError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;

use self::callbacks::{Bell, GivenUp, Reader};
use crate::alarm::Alarm;
use crate::answers::{call_answer, result};
use crate::arrivals::{Arrival, Arrivals, Completer, Outcome};
use crate::errors::{About, raise_about};
use crate::locks::lock;
use crate::process::Process;
use crate::submission::answer;
use crate::waiting::{Expiry, Hold, Places, Promise, Waiting};

/// The loops that have calls, by address: whoever has a state keeps its loop, so addresses are not reused.
static LOOPS: Mutex<Vec<(usize, Weak<EventLoop>)>> = Mutex::new(Vec::new());

/// The event loop that runs on this thread.
pub(crate) fn running_loop(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
    static RUNNING: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let event_loop = RUNNING.import(py, "asyncio", "_get_running_loop")?.call0()?;
    if event_loop.is_none() {
        return Err(PyRuntimeError::new_err("no running event loop"));
    }
    Ok(event_loop)
}

/// Makes a future that has failed already; what is no error of a call goes on its way instead.
pub(crate) fn failed<'py>(
    py: Python<'py>,
    error: PyErr,
    create_future: impl FnOnce() -> PyResult<Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    if !error.is_instance_of::<PyException>(py) {
        return Err(error);
    }
    let future = create_future()?;
    future.call_method1(intern!(py, "set_exception"), (error.into_value(py),))?;
    Ok(future)
}

/// One event loop's calls in flight. Used on its thread alone, under the GIL.
pub(crate) struct EventLoop {
    process: Process,
    asyncio: Py<PyAny>,
    create_future: Py<PyAny>,
    pub(crate) arrivals: Arc<Arrivals>,
    places: Mutex<Places>,
    alarm: Mutex<Alarm>,
    /// Memory for the next burst.
    burst: Mutex<Vec<Arrival>>,
    itself: Weak<EventLoop>,
}

impl EventLoop {
    /// The state of the loop that runs on this thread.
    pub(crate) fn running(py: Python<'_>) -> PyResult<Arc<Self>> {
        let event_loop = running_loop(py)?;
        let address = event_loop.as_ptr() as usize;
        let known = {
            let loops = lock(&LOOPS);
            let found = loops.iter().find(|(known, _)| *known == address);
            found.and_then(|(_, state)| state.upgrade())
        };
        match known.filter(|state| state.process.is_current()) {
            Some(state) => Ok(state),
            None => Self::open(&event_loop),
        }
    }

    fn open(event_loop: &Bound<'_, PyAny>) -> PyResult<Arc<Self>> {
        let py = event_loop.py();
        sweep(py);
        let arrivals = Arrivals::new().map_err(|error| {
            let error = Error::new(ErrorKind::Internal, format!("cannot wake an event loop: {error}"));
            raise_about(py, &error, &About::default())
        })?;
        let create_future = event_loop.getattr(intern!(py, "create_future"))?.unbind();
        let state = Arc::new_cyclic(|itself| Self {
            process: Process::current(),
            asyncio: event_loop.clone().unbind(),
            create_future,
            arrivals: Arc::new(arrivals),
            places: Mutex::default(),
            alarm: Mutex::default(),
            burst: Mutex::default(),
            itself: itself.clone(),
        });
        let descriptor: RawFd = state.arrivals.descriptor();
        let reader = Bound::new(py, Reader::new(state.clone()))?;
        let drain = reader.getattr(intern!(py, "drain"))?;
        event_loop.call_method1(intern!(py, "add_reader"), (descriptor, drain))?;
        let address = event_loop.as_ptr() as usize;
        let mut loops = lock(&LOOPS);
        loops.retain(|(known, state)| *known != address && state.strong_count() > 0);
        loops.push((address, Arc::downgrade(&state)));
        Ok(state)
    }

    pub(crate) fn create_future<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.create_future.bind(py).call0()
    }

    /// A future that has failed already; what is no error of a call goes on its way instead.
    pub(crate) fn failed<'py>(&self, py: Python<'py>, error: PyErr) -> PyResult<Bound<'py, PyAny>> {
        failed(py, error, || self.create_future(py))
    }

    pub(crate) fn reserve(&self) -> u64 {
        lock(&self.places).reserve()
    }

    /// Nothing was begun under this key.
    pub(crate) fn release(&self, key: u64) {
        let released = lock(&self.places).release(key);
        drop(released);
    }

    /// A future for the call under `key`, which has begun. Cancelling it cancels the call, and so does
    /// `deadline` when it comes.
    pub(crate) fn wait<'py>(
        &self,
        py: Python<'py>,
        key: u64,
        hold: Hold,
        about: About,
        deadline: Option<Instant>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let promised = self.create_future(py).and_then(|future| {
            let on_done = Bound::new(py, GivenUp::new(self.itself.clone(), key))?.into_any();
            future.call_method1(intern!(py, "add_done_callback"), (&on_done,))?;
            Ok((future, on_done))
        });
        match promised {
            Ok((future, on_done)) => {
                let promise = Promise { future: future.clone().unbind(), on_done: on_done.unbind() };
                lock(&self.places).put(key, Waiting { promise: Some(promise), hold, about });
                if let Some(deadline) = deadline {
                    self.set_alarm(py, deadline, key)?;
                }
                Ok(future)
            }
            Err(error) => {
                // The call keeps its place until its end.
                hold.cancel();
                lock(&self.places).put(key, Waiting { promise: None, hold, about });
                Err(error)
            }
        }
    }

    /// The way of a client's thread to the call under `key`.
    pub(crate) fn completer(&self, key: u64) -> Completer {
        Completer { arrivals: self.arrivals.clone(), key }
    }

    fn set_alarm(&self, py: Python<'_>, when: Instant, key: u64) -> PyResult<()> {
        let calls = lock(&self.places).len();
        let earlier = lock(&self.alarm).add(when, key, calls, |key| lock(&self.places).get(key).is_some());
        if earlier { self.arm(py) } else { Ok(()) }
    }

    /// Has the loop call at the earliest time of the alarm.
    fn arm(&self, py: Python<'_>) -> PyResult<()> {
        let (next, before) = lock(&self.alarm).disarm();
        if let Some(before) = before {
            before.call_method0(py, intern!(py, "cancel"))?;
        }
        let Some(next) = next else { return Ok(()) };
        let delay = next.saturating_duration_since(Instant::now()).as_secs_f64();
        let ring = Bound::new(py, Bell::new(self.itself.clone()))?;
        let event_loop = self.asyncio.bind(py);
        let handle = event_loop.call_method1(intern!(py, "call_later"), (delay, ring))?;
        lock(&self.alarm).armed(next, handle.unbind());
        Ok(())
    }

    fn ring(&self, py: Python<'_>) -> PyResult<()> {
        if !self.process.is_current() {
            return Ok(());
        }
        let now = Instant::now();
        let due = lock(&self.alarm).due(now);
        let mut settled = Ok(());
        for (_, key) in due {
            let over = {
                let mut places = lock(&self.places);
                let Some(waiting) = places.get(key).filter(|waiting| waiting.promise.is_some()) else {
                    continue;
                };
                match waiting.hold.expire() {
                    Expiry::Over => waiting.promise.take().map(|promise| (promise, waiting.about.clone())),
                    Expiry::Later(None) => None,
                    Expiry::Later(Some(later)) => {
                        drop(places);
                        lock(&self.alarm).push(later, key);
                        None
                    }
                }
            };
            if let Some((promise, about)) = over {
                settled = settled.and(promise.settle(py, Err(raise_about(py, &Error::expired(), &about))));
            }
        }
        self.arm(py).and(settled)
    }

    /// All are told, whatever comes in between.
    fn drain(&self, py: Python<'_>) -> PyResult<()> {
        if !self.process.is_current() {
            return Ok(());
        }
        let mut settled = Ok(());
        let mut burst = std::mem::take(&mut *lock(&self.burst));
        self.arrivals.drain(&mut burst);
        for arrival in burst.drain(..) {
            match arrival {
                Arrival::Mail(mail) => {
                    for mail in mail {
                        settled = settled.and(self.take_mail(py, mail));
                    }
                }
                Arrival::Outcome(key, outcome) => settled = settled.and(self.take_outcome(py, key, outcome)),
            }
        }
        *lock(&self.burst) = burst;
        settled
    }

    fn take_mail(&self, py: Python<'_>, mail: Mail) -> PyResult<()> {
        // What is not wanted is dropped when the lock is free again.
        let Mail { key, response, end, credit } = mail;
        let (released, _unwanted) = {
            let mut places = lock(&self.places);
            let unwanted = match places.get(key) {
                Some(Waiting { hold: Hold::Core { only, .. }, .. }) => {
                    response.and_then(|response| only.put(response))
                }
                _ => response,
            };
            (end.is_some().then(|| places.release(key)).flatten(), unwanted)
        };
        drop(credit);
        let (Some(Waiting { promise, hold, about }), Some(mut end)) = (released, end) else { return Ok(()) };
        let (Some(promise), Hold::Core { spec, only, .. }) = (promise, hold) else {
            return Ok(());
        };
        let is_plain = end.request.classes.is_empty();
        let answer = || answer(&spec, only, &mut end);
        let answer = if is_plain { answer() } else { exit::detached_inside(py, answer) };
        promise.settle(py, result(py, answer, &about))
    }

    fn take_outcome(&self, py: Python<'_>, key: u64, outcome: Outcome) -> PyResult<()> {
        let released = lock(&self.places).release(key);
        let Some(Waiting { promise: Some(promise), about, .. }) = released else { return Ok(()) };
        let outcome = match outcome {
            Outcome::Infer(_, answer) => result(py, answer, &about),
            Outcome::Call(answer) => call_answer(py, answer, &about),
            Outcome::Come => Ok(py.None()),
        };
        promise.settle(py, outcome)
    }

    /// The caller has gone, or has settled the future itself. The call ends in its own time.
    fn give_up(&self, key: u64) {
        if !self.process.is_current() {
            return;
        }
        let promise = {
            let mut places = lock(&self.places);
            let waiting = places.get(key);
            waiting.and_then(|waiting| waiting.promise.take().inspect(|_| waiting.hold.cancel()))
        };
        drop(promise);
    }

    /// The loop will not run again.
    fn close(&self) {
        if !self.process.is_current() {
            let _left = ManuallyDrop::new(std::mem::take(&mut *lock(&self.places)));
            return;
        }
        self.arrivals.close();
        let left = lock(&self.places).clear();
        for waiting in &left {
            waiting.hold.cancel();
        }
        self.arrivals.drain(&mut Vec::new());
    }
}

/// Ends the states of loops that were closed without letting their readers go.
fn sweep(py: Python<'_>) {
    let states: Vec<Arc<EventLoop>> = lock(&LOOPS).iter().filter_map(|(_, state)| state.upgrade()).collect();
    for state in states.into_iter().filter(|state| state.process.is_current()) {
        let closed = state.asyncio.call_method0(py, intern!(py, "is_closed"));
        if closed.and_then(|closed| closed.is_truthy(py)).unwrap_or(false) {
            state.close();
        }
    }
}
