//! The end of the interpreter.
//!
//! A thread that asks for the GIL while Python finalizes never comes back: before Python 3.14 it is unwound, which no
//! frame of Rust survives. So a function is registered with `atexit`, which lets nobody in any more and waits for those
//! who are inside. A thread that needs the GIL after that stays where it is, as from Python 3.14 on by itself. A forked
//! child has the count of its parent's threads: no lock is taken here before the end.
//!
//! A thread is inside wherever it is in Rust and may ask for the GIL: a lint forbids `Python::attach` and
//! `Python::detach` everywhere else.

use std::cell::Cell;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicUsize, Ordering, fence};
use std::sync::{Condvar, Mutex, OnceLock, PoisonError};
use std::thread::{self, ThreadId};
use std::time::Duration;

use kushi_core::{Error, ErrorKind};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;

/// How long the end of the process waits for those who are in Python.
const PATIENCE: Duration = Duration::from_secs(10);

const GONE: &str = "the Python interpreter is shutting down";

/// How many threads are inside.
static INSIDE: AtomicUsize = AtomicUsize::new(0);
/// The thread that ends the interpreter, once it has begun to.
static ENDED_BY: OnceLock<ThreadId> = OnceLock::new();
static LEAVING: Mutex<()> = Mutex::new(());
static LEFT: Condvar = Condvar::new();

thread_local! {
    /// How often this thread has come in without going out: Python calls Rust that calls Python.
    static DEPTH: Cell<usize> = const { Cell::new(0) };
}

/// While it is there, Python stays.
pub struct Inside(PhantomData<*const ()>);

impl Inside {
    fn new() -> Self {
        if DEPTH.replace(DEPTH.get() + 1) == 0 {
            come_in();
        }
        Self(PhantomData)
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        let depth = DEPTH.get() - 1;
        DEPTH.set(depth);
        if depth == 0 {
            go_out();
        }
    }
}

fn come_in() {
    INSIDE.fetch_add(1, Ordering::SeqCst);
    // Whoever ends the interpreter sees this one, or is seen by it.
    fence(Ordering::SeqCst);
}

fn go_out() {
    INSIDE.fetch_sub(1, Ordering::SeqCst);
    fence(Ordering::SeqCst);
    if ENDED_BY.get().is_some() {
        drop(LEAVING.lock());
        LEFT.notify_all();
    }
}

/// For a thread that may do without it. `None` once the interpreter has begun to go.
pub fn enter() -> Option<Inside> {
    let was_inside = DEPTH.get() > 0;
    let inside = Inside::new();
    (was_inside || ENDED_BY.get().is_none()).then_some(inside)
}

/// For a thread of Rust's that goes to Python. `None` once the interpreter has begun to go.
#[allow(clippy::disallowed_methods, reason = "it is inside")]
pub fn attached<T>(work: impl FnOnce(Python<'_>) -> T) -> Option<T> {
    let _inside = enter()?;
    Python::try_attach(work)
}

/// What a batch ends with that meets the end of the interpreter.
pub(crate) fn gone() -> Error {
    Error::new(ErrorKind::ShuttingDown, GONE)
}

/// For a thread of Python's, before it is in Rust and in Python by turns. Once the interpreter has begun to go, it is sent
/// back, but for the thread that ends the interpreter.
pub fn enter_from_python(_: Python<'_>) -> PyResult<Inside> {
    let was_inside = DEPTH.get() > 0;
    let inside = Inside::new();
    if was_inside || !is_over() {
        return Ok(inside);
    }
    Err(PyRuntimeError::new_err(GONE))
}

/// What does not take long, or ends before the interpreter goes, without the GIL. It is waited for; once the interpreter
/// has begun to go, it is done with the GIL.
#[allow(clippy::disallowed_methods, reason = "it is inside")]
pub fn detached_shortly<T: Send>(py: Python<'_>, work: impl FnOnce() -> T + Send) -> T {
    match enter() {
        Some(_inside) => py.detach(work),
        None => work(),
    }
}

/// For an object of Python's that is dropped: what must not be done with the GIL, where this thread has it. See
/// [`detached`].
#[allow(clippy::disallowed_methods, reason = "it has the GIL, or none is to be had")]
pub fn detached_at_drop(work: impl Fn() + Sync) {
    if Python::try_attach(|py| detached(py, &work)).is_none() {
        work();
    }
}

/// What a thread that is inside does without the GIL. It is waited for, but where the interpreter has begun to go, it
/// stays here for ever.
#[allow(clippy::disallowed_methods, reason = "the caller is inside")]
pub fn detached_inside<T: Send>(py: Python<'_>, work: impl FnOnce() -> T + Send) -> T {
    py.detach(|| {
        let done = work();
        stay_if_over();
        done
    })
}

/// Before a thread that is inside takes the GIL again: where the interpreter has begun to go, it stays here for ever.
pub fn stay_if_over() {
    if is_over() {
        if DEPTH.take() > 0 {
            go_out();
        }
        stay::<()>();
    }
}

/// For what a thread of Python's does without the GIL, as it takes longer than the interpreter may stay: nobody waits for
/// it, and where it comes back too late, it stays here for ever.
#[allow(clippy::disallowed_methods, reason = "it comes in before it asks for the GIL")]
pub fn detached<T: Send>(py: Python<'_>, work: impl FnOnce() -> T + Send) -> T {
    let _inside = Inside::new();
    let away = Away(DEPTH.take());
    go_out();
    py.detach(|| {
        let _away = away;
        work()
    })
}

/// The time that a thread spends outside, and its depth before.
struct Away(usize);

impl Drop for Away {
    fn drop(&mut self) {
        come_in();
        DEPTH.set(self.0);
        stay_if_over();
    }
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
    #[allow(clippy::disallowed_methods, reason = "this thread ends the interpreter")]
    py.detach(|| {
        let leaving = LEAVING.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = LEFT.wait_timeout_while(leaving, PATIENCE, |()| INSIDE.load(Ordering::SeqCst) > 0);
        drop(waited);
    });
}
