//! The calls of one event loop that wait for their ends, each in a place with a key.

use std::sync::Arc;
use std::time::Instant;

use kushi_core::{Alarm, ModelSpec, OnlyResponse, Response, Ticket};
use pyo3::exceptions::PyException;
use pyo3::intern;
use pyo3::prelude::*;
use slotmap::{Key as _, KeyData, SlotMap};

use crate::errors::About;

/// One call in flight.
pub(crate) struct Waiting {
    /// `None` once it has been given up: then the call waits for its end, to release what it holds.
    pub promise: Option<Promise>,
    pub hold: Hold,
    pub about: About,
}

/// The future that the caller has, and what hears of its cancellation.
pub(crate) struct Promise {
    pub future: Py<PyAny>,
    pub on_done: Py<PyAny>,
}

impl Promise {
    /// Tells the caller, who may have gone. What is no error and comes in between, a `KeyboardInterrupt` say, goes on
    /// its way.
    pub(crate) fn settle(self, py: Python<'_>, outcome: PyResult<Py<PyAny>>) -> PyResult<()> {
        let future = self.future.bind(py);
        match tell(future, self.on_done.bind(py), outcome) {
            Err(error) if error.is_instance_of::<PyException>(py) => {
                error.write_unraisable(py, Some(future));
                Ok(())
            }
            told => told,
        }
    }
}

fn tell(future: &Bound<'_, PyAny>, on_done: &Bound<'_, PyAny>, outcome: PyResult<Py<PyAny>>) -> PyResult<()> {
    let py = future.py();
    // A future that is done has given its callbacks to the loop.
    let removed = future.call_method1(intern!(py, "remove_done_callback"), (on_done,))?;
    if removed.extract::<usize>()? == 0 && future.call_method0(intern!(py, "done"))?.is_truthy()? {
        return Ok(());
    }
    match outcome {
        Ok(value) => future.call_method1(intern!(py, "set_result"), (value,))?,
        Err(error) if error.is_instance_of::<PyException>(py) => {
            future.call_method1(intern!(py, "set_exception"), (error.into_value(py),))?
        }
        // CancelledError, which a future does not take as an exception of its own.
        Err(_) => future.call_method0(intern!(py, "cancel"))?,
    };
    Ok(())
}

/// What a call has at the other side.
#[allow(clippy::large_enum_variant, reason = "most are of the large kind")]
pub(crate) enum Hold {
    /// A place in a model's queue in this process, and the responses that have come from there.
    Core { ticket: Ticket, spec: Arc<ModelSpec>, only: OnlyResponse<Response>, alarm: Alarm },
    /// A client's.
    Client(Box<dyn Fn() + Send>),
}

/// What is to be done about a call whose time has come.
pub(crate) enum Expiry {
    /// Nobody needs to wait for its end.
    Over,
    /// Its end comes by itself, at this time at the latest.
    Later(Option<Instant>),
}

impl Hold {
    pub(crate) fn cancel(&self) {
        match self {
            Self::Core { ticket, .. } => drop(ticket.cancel()),
            Self::Client(cancel) => cancel(),
        }
    }

    pub(crate) fn expire(&mut self) -> Expiry {
        match self {
            Self::Core { ticket, alarm, .. } => {
                if alarm.ring(ticket) {
                    Expiry::Over
                } else {
                    Expiry::Later(alarm.when())
                }
            }
            Self::Client(cancel) => {
                cancel();
                Expiry::Over
            }
        }
    }
}

slotmap::new_key_type! {
    struct Key;
}

/// `None` until the call is put there.
#[derive(Default)]
pub(crate) struct Places(SlotMap<Key, Option<Waiting>>);

/// An answer carries its key as a number. One for a call that is no more finds nobody.
fn key(number: u64) -> Key {
    KeyData::from_ffi(number).into()
}

impl Places {
    /// The key under which a call can be put.
    pub(crate) fn reserve(&mut self) -> u64 {
        self.0.insert(None).data().as_ffi()
    }

    pub(crate) fn put(&mut self, number: u64, waiting: Waiting) {
        if let Some(place) = self.0.get_mut(key(number)) {
            *place = Some(waiting);
        }
    }

    pub(crate) fn get(&mut self, number: u64) -> Option<&mut Waiting> {
        self.0.get_mut(key(number))?.as_mut()
    }

    /// Gives the place to others.
    pub(crate) fn release(&mut self, number: u64) -> Option<Waiting> {
        self.0.remove(key(number))?
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &Waiting> {
        self.0.values().flatten()
    }

    pub(crate) fn clear(&mut self) -> Vec<Waiting> {
        self.0.drain().filter_map(|(_, waiting)| waiting).collect()
    }
}
