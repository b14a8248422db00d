//! The locks, counters and threads of the crate: the standard library's, or loom's when it is model-checked.

#[cfg(not(loom))]
pub(crate) use std::{
    sync::{Condvar, Mutex, MutexGuard, atomic},
    thread,
};

#[cfg(loom)]
pub(crate) use loom::{
    sync::{Condvar, Mutex, MutexGuard},
    thread,
};

#[cfg(loom)]
pub(crate) mod atomic;

/// A lock is never held across an engine or a callback, so a poisoned one still guards whole data.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
