//! The end of the interpreter.
//!
//! A thread that asks for the GIL while Python finalizes never comes back: before Python 3.14 it is unwound, which no
//! frame of Rust survives. So a function is registered with `atexit`, which lets nobody in any more and waits for those
//! who are inside. A forked child has the count of its parent's threads: no lock is taken here before the end.

use std::sync::atomic::{AtomicUsize, Ordering, fence};
use std::sync::{Condvar, Mutex, OnceLock, PoisonError};
use std::thread::{self, ThreadId};
use std::time::Duration;

use kushi_core::{Error, ErrorKind};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;

/// How long the end of the process waits for those who are in Python.
const PATIENCE: Duration = Duration::from_secs(10);

static INSIDE: AtomicUsize = AtomicUsize::new(0);
/// The thread that ends the interpreter, once it has begun to.
static ENDED_BY: OnceLock<ThreadId> = OnceLock::new();
static LEAVING: Mutex<()> = Mutex::new(());
static LEFT: Condvar = Condvar::new();

/// While it is there, Python stays.
pub struct Inside(());

impl Inside {
    fn new() -> Self {
        INSIDE.fetch_add(1, Ordering::SeqCst);
        // Whoever ends the interpreter sees this one, or is seen by it.
        fence(Ordering::SeqCst);
        Self(())
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        INSIDE.fetch_sub(1, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        if ENDED_BY.get().is_some() {
            drop(LEAVING.lock());
            LEFT.notify_all();
        }
    }
}

/// For a thread of Rust's that goes to Python. `None` once the interpreter has begun to go.
pub(crate) fn enter() -> Option<Inside> {
    let inside = Inside::new();
    ENDED_BY.get().is_none().then_some(inside)
}

/// What a batch ends with that meets the end of the interpreter.
pub(crate) fn gone() -> Error {
    Error::new(ErrorKind::ShuttingDown, "the Python interpreter is shutting down")
}

/// For a thread of Python's, before it is in Rust and in Python by turns. Once the interpreter has begun to go, it
/// stays here for ever without the GIL, as a thread that asks for the GIL does by itself from Python 3.14 on.
pub fn enter_from_python(py: Python<'_>) -> Inside {
    let inside = Inside::new();
    if !is_over() {
        return inside;
    }
    drop(inside);
    py.detach(stay)
}

/// For a thread that came in by [`enter_from_python`], and has waited without the GIL, before it takes the GIL again.
pub fn stay_if_over() {
    if is_over() {
        drop(Inside(()));
        stay::<()>();
    }
}

/// For what a thread of Python's does without the GIL, as it takes longer than the interpreter may stay: nobody waits for
/// it, and where it comes back too late, it stays here for ever.
pub fn detached<T: Send>(py: Python<'_>, work: impl FnOnce() -> T + Send) -> T {
    let (done, inside) = py.detach(|| {
        let done = work();
        let inside = Inside::new();
        if is_over() {
            drop(inside);
            stay::<()>();
            unreachable!("it stays");
        }
        (done, inside)
    });
    // With the GIL again: whoever ends the interpreter has waited.
    drop(inside);
    done
}

/// For all threads but the one that ends the interpreter.
fn is_over() -> bool {
    ENDED_BY.get().is_some_and(|&by| by != thread::current().id())
}

fn stay<T>() -> T {
    loop {
        thread::park();
    }
}

/// Sees to it that nobody is in Python by turns when the interpreter goes. Every engine does this when it is made; a
/// module that closes engines at exit calls it before it registers that, and so has it done behind that.
pub fn watch(py: Python<'_>) -> PyResult<()> {
    static WATCHED: PyOnceLock<()> = PyOnceLock::new();
    let register = || {
        let close = wrap_pyfunction!(close, py)?;
        py.import("atexit")?.call_method1("register", (close, std::process::id()))?;
        PyResult::Ok(())
    };
    WATCHED.get_or_try_init(py, register).copied()
}

/// `process`: the one that registered it. In a child that was forked from it, those inside never leave.
#[pyfunction]
fn close(py: Python<'_>, process: u32) {
    ENDED_BY.get_or_init(|| thread::current().id());
    fence(Ordering::SeqCst);
    if std::process::id() != process {
        return;
    }
    py.detach(|| {
        let leaving = LEAVING.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = LEFT.wait_timeout_while(leaving, PATIENCE, |()| INSIDE.load(Ordering::SeqCst) > 0);
        drop(waited);
    });
}
