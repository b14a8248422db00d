//! Which process an object belongs to: a forked child has copies of everything and none of the threads.

use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::{process, thread};

use kushi_core::{Error, ErrorKind};
use kushi_engine_python::exit;
use kushi_server::Server;
use pyo3::exceptions::PyImportError;
use pyo3::ffi;
use pyo3::prelude::*;

use crate::locks::lock;

/// How many forks lie between this process and the one that loaded the module.
static FORKS: AtomicU32 = AtomicU32::new(0);
static SERVERS: Mutex<Vec<Weak<Server>>> = Mutex::new(Vec::new());

/// A child may not register anything: another thread of its parent may have held the lock for that.
extern "C" fn before_fork() {
    #[cfg(target_env = "gnu")]
    leaving::child_leaves_threads_at_exit(FORKS.load(Ordering::Relaxed));
}

extern "C" fn in_child() {
    FORKS.fetch_add(1, Ordering::Relaxed);
}

/// The cores of this process: its affinity mask, and the quota of its cgroup and of all those above it. At least one.
#[pyfunction]
pub(crate) fn usable_cores() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}

/// From now on a division without a result has one: in a process that opens no engine of its own, or when something that
/// was loaded may have taken the signal.
#[pyfunction]
pub(crate) fn survive_divisions() {
    kushi_engine_onnx::survive_divisions();
}

/// From now on the end of the process leaves the threads of libraries alone that were loaded before: to take a library
/// down around a thread that is inside of it would crash.
#[pyfunction]
pub(crate) fn leave_threads_at_exit() {
    #[cfg(target_env = "gnu")]
    leaving::leave_threads_at_exit();
}

/// The end of a process behind the exit handlers of Python and before those of libraries that were loaded earlier: ONNX
/// Runtime's wait for threads, which a forked child does not have.
#[cfg(target_env = "gnu")]
mod leaving {
    use std::ffi::{c_int, c_void};
    use std::ptr;
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::FORKS;

    /// How many libraries had been loaded when a child's end was last seen to.
    static LOADED: AtomicU64 = AtomicU64::new(0);

    unsafe extern "C" {
        fn on_exit(function: extern "C" fn(c_int, *mut c_void), argument: *mut c_void) -> c_int;
    }

    /// See [`super::leave_threads_at_exit`].
    pub(super) fn leave_threads_at_exit() {
        leave_at_exit_after(0);
    }

    /// What this process registers, its children have; what was registered since the last library came will do.
    pub(super) fn child_leaves_threads_at_exit(forks: u32) {
        let loaded = libraries_loaded();
        if LOADED.load(Ordering::Relaxed) != loaded {
            leave_at_exit_after(forks as usize + 1);
            LOADED.store(loaded, Ordering::Relaxed);
        }
    }

    fn leave_at_exit_after(forks: usize) {
        // SAFETY: the function may be called at any exit of this process, and of its children.
        unsafe {
            on_exit(leave, ptr::without_provenance_mut(forks));
        }
    }

    /// `forks`: how many there are at least in a process that ends this way.
    extern "C" fn leave(status: c_int, forks: *mut c_void) {
        if (FORKS.load(Ordering::Relaxed) as usize) < forks.addr() {
            return;
        }
        // SAFETY: flushes what an exit flushes, and ends the process.
        unsafe {
            libc::fflush(ptr::null_mut());
            libc::_exit(status);
        }
    }

    /// How many there have been so far.
    fn libraries_loaded() -> u64 {
        extern "C" fn take(library: *mut libc::dl_phdr_info, _: usize, count: *mut c_void) -> c_int {
            // SAFETY: the first is what the loader says of a library, the last is what was handed in below.
            unsafe { count.cast::<u64>().write((*library).dlpi_adds) };
            1
        }
        let mut count = 0_u64;
        // SAFETY: the function writes to that number, and does not keep it.
        unsafe { libc::dl_iterate_phdr(Some(take), ptr::from_mut(&mut count).cast()) };
        count
    }
}

/// To be called once, when the module is loaded.
pub(crate) fn watch(module: &Bound<'_, PyModule>) -> PyResult<()> {
    // SAFETY: the handler of the child changes an atomic and nothing else, which it may do.
    if unsafe { libc::pthread_atfork(Some(before_fork), None, Some(in_child)) } != 0 {
        log::warn!("forks are not noticed: an engine used in a forked child will hang");
    }
    // What is registered later runs first: servers are closed, then those who are in Python are waited for.
    exit::watch(module.py())?;
    let close = wrap_pyfunction!(close_servers, module)?;
    module.py().import("atexit")?.call_method1("register", (close,))?;
    Ok(())
}

/// Statics of this module and of NumPy's are the main interpreter's.
pub(crate) fn refuse_sub_interpreters() -> PyResult<()> {
    // SAFETY: an interpreter is attached, whose state is looked at.
    let id = unsafe { ffi::PyInterpreterState_GetID(ffi::PyInterpreterState_Get()) };
    if id == 0 {
        return Ok(());
    }
    let text = "kushi_native does not work in a sub-interpreter: import it in the main interpreter";
    Err(PyImportError::new_err(text))
}

/// The process that made an object.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Process {
    forks: u32,
    id: u32,
}

impl Process {
    pub(crate) fn current() -> Self {
        Self { forks: FORKS.load(Ordering::Relaxed), id: process::id() }
    }

    pub(crate) fn is_current(self) -> bool {
        FORKS.load(Ordering::Relaxed) == self.forks
    }

    /// `what` is the object as its user knows it.
    pub(crate) fn check(self, what: &str) -> Result<(), Error> {
        if self.is_current() {
            return Ok(());
        }
        let (parent, child) = (self.id, process::id());
        let text = format!(
            "this {what} belongs to process {parent} and does not work in its forked child {child}: make it after the \
             fork"
        );
        Err(Error::new(ErrorKind::Unsupported, text))
    }
}

/// What the process alone drops that has made it. In a forked child it is left as it is: threads that are not there may
/// hold its locks, and a handle of such a thread leads to memory that is gone.
pub(crate) struct Own<T> {
    value: ManuallyDrop<T>,
    process: Process,
}

impl<T> Own<T> {
    pub(crate) fn new(value: T) -> Self {
        Self { value: ManuallyDrop::new(value), process: Process::current() }
    }

    pub(crate) fn process(&self) -> Process {
        self.process
    }
}

impl<T> Deref for Own<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T> Drop for Own<T> {
    fn drop(&mut self) {
        if self.process.is_current() {
            // SAFETY: it is not used after this.
            unsafe { ManuallyDrop::drop(&mut self.value) };
        }
    }
}

/// Closes the server before the interpreter goes: threads of an engine in Python need it to come home.
pub(crate) fn close_at_exit(server: &Arc<Server>) {
    let mut servers = lock(&SERVERS);
    servers.retain(|server| server.strong_count() > 0);
    servers.push(Arc::downgrade(server));
}

#[pyfunction]
fn close_servers(py: Python<'_>) {
    exit::detached(py, || {
        let servers = std::mem::take(&mut *lock(&SERVERS));
        // Does nothing in a child of the process that made it.
        servers.iter().filter_map(Weak::upgrade).for_each(|server| server.close());
    });
}
