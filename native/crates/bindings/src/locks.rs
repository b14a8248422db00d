//! The locks of this crate.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// No lock is held while Python runs, or anything else that may panic: a poisoned one still guards whole data.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
