//! Owners of memory that crosses between Rust and Python.

use kushi_core::Buffer;
use numpy::{PyUntypedArray, PyUntypedArrayMethods};
use pyo3::prelude::*;

/// The bytes of an array that Python owns. Dropped without the GIL, its reference goes back when somebody
/// takes the GIL next.
pub(crate) struct Borrowed {
    start: *const u8,
    length: usize,
    _owner: Py<PyUntypedArray>,
}

// SAFETY: the memory is the array's, which does not move it while it has a second owner; a reference
// to it may be given back on any thread.
unsafe impl Send for Borrowed {}

impl Borrowed {
    /// All bytes of `array`, which must be contiguous.
    pub(crate) fn new(array: Bound<'_, PyUntypedArray>, length: usize) -> Self {
        Self { start: data(&array).cast_const(), length, _owner: array.unbind() }
    }
}

impl AsRef<[u8]> for Borrowed {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: the array holds as many bytes and is kept. That nobody writes to it while a call
        // reads it is the caller's business, as with any array that another thread works on.
        unsafe { std::slice::from_raw_parts(self.start, self.length) }
    }
}

/// Where the first element of an array is.
pub(crate) fn data(array: &Bound<'_, PyUntypedArray>) -> *mut u8 {
    // SAFETY: it is an array, whose fields may be read under the GIL.
    unsafe { (*array.as_array_ptr()).fields.data.cast() }
}

/// The base of an array that shows a buffer: keeps it for as long as Python refers to it.
#[pyclass(frozen, module = "kushi_native", name = "Memory")]
pub(crate) struct Memory {
    _buffer: Buffer,
}

impl Memory {
    pub(crate) fn new(buffer: Buffer) -> Self {
        Self { _buffer: buffer }
    }
}
