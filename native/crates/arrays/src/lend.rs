//! The joined inputs of a batch, as arrays for an engine that is written in Python.
//!
//! The arrays show the batch's memory and may not be written to: it may be a caller's own. Whoever keeps one
//! longer than the call keeps that memory, and the slot takes other memory for its next batch.

use std::sync::{Mutex, PoisonError};

use kushi_core::{Batch, Buffer, DataType, Error, Scratch, Shape};
use pyo3::ffi;
use pyo3::prelude::*;
use smallvec::SmallVec;

use crate::Fault;
use crate::datatypes::dtype;
use crate::write::{View, copied, show};

/// The inputs of all requests, joined, by position in the model's specification. Made without the interpreter lock:
/// to join them is to copy them.
pub struct Joined<'a> {
    batch: &'a mut Batch,
    scratch: &'a mut Scratch,
    parts: SmallVec<[Option<Part>; 4]>,
}

impl<'a> Joined<'a> {
    /// To be called before any of the requests ends. Fails where there is no memory for them.
    pub fn new(batch: &'a mut Batch, scratch: &'a mut Scratch) -> Result<Self, Error> {
        let parts = batch.gather(scratch)?.into_iter().map(|input| {
            input.map(|input| Part {
                datatype: input.datatype,
                start: input.bytes.as_ptr(),
                length: input.bytes.len(),
                shape: input.shape,
            })
        });
        let parts = parts.collect();
        Ok(Self { batch, scratch, parts })
    }

    pub fn batch(&self) -> &Batch {
        self.batch
    }

    /// Calls `call` with the inputs.
    pub fn lend<'py, R>(
        self,
        py: Python<'py>,
        call: impl FnOnce(&[Option<Bound<'py, PyAny>>]) -> R,
    ) -> Result<R, Fault> {
        let Self { batch, scratch, parts } = self;
        let loan = Bound::new(py, Loan { kept: Mutex::new(None) })?;
        let guard = Guard { loan, batch, scratch };
        let arrays = parts.iter().map(|part| part.as_ref().map(|part| part.array(&guard.loan)).transpose());
        let arrays: SmallVec<[_; 4]> = arrays.collect::<Result<_, Fault>>()?;
        let result = call(&arrays);
        // The references that are left then are not ours.
        drop(arrays);
        drop(guard);
        Ok(result)
    }
}

/// Where one joined input is, for as long as its batch and scratch memory are not touched.
struct Part {
    datatype: DataType,
    shape: Shape,
    start: *const u8,
    length: usize,
}

impl Part {
    fn array<'py>(&self, loan: &Bound<'py, Loan>) -> Result<Bound<'py, PyAny>, Fault> {
        let py = loan.py();
        match dtype(py, self.datatype).filter(|_| self.datatype != DataType::Bytes) {
            // SAFETY: gathered inputs fill their shapes. While the guard is there nothing touches the batch
            // or the scratch memory, and when it goes it gives both to the loan, if that is still held.
            Some(dtype) => unsafe { show(dtype, &self.shape, self.start, loan.clone().into_any(), 0) },
            None => {
                // SAFETY: as above.
                let bytes = unsafe { std::slice::from_raw_parts(self.start, self.length) };
                copied(py, &View { datatype: self.datatype, shape: &self.shape, bytes })
            }
        }
    }
}

/// The base of the arrays of one call.
#[pyclass(frozen, module = "kushi_native")]
struct Loan {
    kept: Mutex<Option<Kept>>,
}

/// What the arrays show, once they have outlived their call.
struct Kept {
    _scratch: Scratch,
    _buffers: Vec<Buffer>,
}

/// Whatever happens in the call, panics included, memory that is still shown is kept.
struct Guard<'a, 'py> {
    loan: Bound<'py, Loan>,
    batch: &'a mut Batch,
    scratch: &'a mut Scratch,
}

impl Drop for Guard<'_, '_> {
    fn drop(&mut self) {
        // SAFETY: a reference count is read, under the GIL.
        if unsafe { ffi::Py_REFCNT(self.loan.as_ptr()) } == 1 {
            return;
        }
        let requests = (0..self.batch.len()).filter_map(|index| self.batch.request(index));
        let inputs = requests.flat_map(|request| request.inputs.iter().flatten());
        let buffers = inputs.map(|input| input.data.clone()).collect();
        let kept = Kept { _scratch: std::mem::take(self.scratch), _buffers: buffers };
        *self.loan.get().kept.lock().unwrap_or_else(PoisonError::into_inner) = Some(kept);
    }
}
