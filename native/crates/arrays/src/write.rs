//! Tensors as NumPy arrays.

use std::ffi::c_int;

use kushi_core::{DataType, Tensor, element_count};
use numpy::npyffi::{NPY_ARRAY_WRITEABLE, NpyTypes, PY_ARRAY_API, get_type_object, npy_intp};
use numpy::{PyArrayDescr, PyArrayDescrMethods, PyUntypedArray, PyUntypedArrayMethods};
use pyo3::prelude::*;
use smallvec::SmallVec;

use crate::datatypes::dtype;
use crate::memory::{Memory, data};
use crate::{BORROWED_BYTES, Fault, strings};

/// From here on the GIL is given up for a copy.
const LONG_COPY_BYTES: usize = 1 << 20;

/// A tensor whose bytes are somewhere.
pub(crate) struct View<'a> {
    pub datatype: DataType,
    pub shape: &'a [i64],
    pub bytes: &'a [u8],
}

impl<'a> View<'a> {
    pub(crate) fn of(tensor: &'a Tensor) -> Self {
        Self { datatype: tensor.datatype, shape: &tensor.shape, bytes: tensor.data.as_bytes() }
    }

    /// That the bytes fill the shape.
    pub(crate) fn check(&self, size: usize) -> Result<(), Fault> {
        let expected = element_count(self.shape).and_then(|count| count.checked_mul(size));
        if expected == Some(self.bytes.len()) {
            return Ok(());
        }
        let text = format!("of {} bytes does not fill its shape {:?}", self.bytes.len(), self.shape);
        Err(Fault::Refused(text))
    }
}

/// A tensor as an array that may not be written to: a large one shows the tensor's memory, which others may
/// see as well, and keeps it. A small one is a copy, and is no different to work with.
pub fn array<'py>(py: Python<'py>, tensor: &Tensor) -> Result<Bound<'py, PyAny>, Fault> {
    let array = view_or_copy(py, tensor, 0)?;
    if let Ok(array) = array.cast::<PyUntypedArray>() {
        // SAFETY: it is an array, whose fields may be changed under the GIL; nobody else has seen it.
        unsafe { (*array.as_array_ptr()).fields.flags &= !NPY_ARRAY_WRITEABLE };
    }
    Ok(array)
}

/// A tensor as an array that may be written to, which is for memory that the caller alone sees.
pub fn writable_array<'py>(py: Python<'py>, tensor: &Tensor) -> Result<Bound<'py, PyAny>, Fault> {
    view_or_copy(py, tensor, NPY_ARRAY_WRITEABLE)
}

/// A large tensor is shown with these flags.
fn view_or_copy<'py>(py: Python<'py>, tensor: &Tensor, flags: c_int) -> Result<Bound<'py, PyAny>, Fault> {
    let view = View::of(tensor);
    let size = tensor.datatype.size().filter(|_| view.bytes.len() >= BORROWED_BYTES);
    let Some(size) = size.filter(|&size| view.bytes.as_ptr().align_offset(size) == 0) else {
        return copied(py, &view);
    };
    let Some(dtype) = dtype(py, tensor.datatype) else {
        return copied(py, &view);
    };
    view.check(size)?;
    let owner = Bound::new(py, Memory::new(tensor.data.clone()))?;
    // SAFETY: the bytes fill the shape and are kept by the owner. Where the flags say that they are writable,
    // the caller does.
    unsafe { show(dtype, view.shape, view.bytes.as_ptr(), owner.into_any(), flags) }
}

/// A tensor as an array with memory of its own.
pub(crate) fn copied<'py>(py: Python<'py>, view: &View<'_>) -> Result<Bound<'py, PyAny>, Fault> {
    let Some(size) = view.datatype.size() else {
        return strings::decode(py, view);
    };
    view.check(size)?;
    let Some(dtype) = dtype(py, view.datatype) else {
        return widened(py, view);
    };
    let array = make(dtype, view.shape)?;
    let target = Target(data(&array));
    // SAFETY: the array is new, has as many bytes, and nobody else knows it.
    let copy = || unsafe { target.fill(view.bytes) };
    if view.bytes.len() >= LONG_COPY_BYTES {
        #[allow(clippy::disallowed_methods, reason = "whoever calls this keeps the interpreter")]
        py.detach(copy);
    } else {
        copy();
    }
    Ok(array.into_any())
}

struct Target(*mut u8);

// SAFETY: an address; what is done with it is said where it is used.
unsafe impl Sync for Target {}

impl Target {
    /// # Safety
    /// As many bytes lie there for the caller alone.
    unsafe fn fill(&self, bytes: &[u8]) {
        // SAFETY: the caller's promise.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.0, bytes.len()) };
    }
}

/// BF16 as the float32 of the same value, for want of a dtype.
fn widened<'py>(py: Python<'py>, view: &View<'_>) -> Result<Bound<'py, PyAny>, Fault> {
    let array = empty(py, DataType::Fp32, view.shape)?;
    #[expect(clippy::cast_ptr_alignment, reason = "NumPy aligns what it allocates")]
    let mut place = data(&array).cast::<f32>();
    for half in view.bytes.as_chunks::<2>().0 {
        let value = f32::from_bits(u32::from(u16::from_le_bytes(*half)) << 16);
        // SAFETY: the array is new and has as many elements as there are pairs of bytes.
        unsafe {
            place.write(value);
            place = place.add(1);
        }
    }
    Ok(array.into_any())
}

/// A new array; one of objects holds none yet.
pub(crate) fn empty<'py>(
    py: Python<'py>,
    datatype: DataType,
    shape: &[i64],
) -> Result<Bound<'py, PyUntypedArray>, Fault> {
    let dtype = dtype(py, datatype).ok_or_else(|| Fault::Refused("has no dtype".into()))?;
    make(dtype, shape)
}

fn make<'py>(dtype: Bound<'py, PyArrayDescr>, shape: &[i64]) -> Result<Bound<'py, PyUntypedArray>, Fault> {
    // SAFETY: without memory of somebody else's NumPy takes its own.
    unsafe { new(dtype, shape, std::ptr::null(), 0) }
}

/// An array over memory that `owner` keeps.
///
/// # Safety
/// As many bytes as the shape says are readable from `start` on, and writable if `flags` say so, for as
/// long as `owner` lives.
pub(crate) unsafe fn show<'py>(
    dtype: Bound<'py, PyArrayDescr>,
    shape: &[i64],
    start: *const u8,
    owner: Bound<'py, PyAny>,
    flags: c_int,
) -> Result<Bound<'py, PyAny>, Fault> {
    let py = owner.py();
    // SAFETY: the caller's promise; the array takes over the reference to its owner.
    unsafe {
        let array = new(dtype, shape, start, flags)?;
        if PY_ARRAY_API.PyArray_SetBaseObject(py, array.as_array_ptr(), owner.into_ptr()) < 0 {
            return Err(PyErr::fetch(py).into());
        }
        Ok(array.into_any())
    }
}

/// # Safety
/// As for [`show`]; with `start` null the array has memory of its own.
unsafe fn new<'py>(
    dtype: Bound<'py, PyArrayDescr>,
    shape: &[i64],
    start: *const u8,
    flags: c_int,
) -> Result<Bound<'py, PyUntypedArray>, Fault> {
    let py = dtype.py();
    let mut dims: SmallVec<[npy_intp; 8]> = shape.iter().map(|&dim| dim as npy_intp).collect();
    // SAFETY: the dimensions are as many as said; the call takes over the reference to the dtype, and
    // its result is ours, or an exception is set.
    let array = unsafe {
        let array = PY_ARRAY_API.PyArray_NewFromDescr(
            py,
            get_type_object(py, NpyTypes::PyArray_Type),
            dtype.into_dtype_ptr(),
            dims.len() as c_int,
            dims.as_mut_ptr(),
            std::ptr::null_mut(),
            start.cast_mut().cast(),
            flags,
            std::ptr::null_mut(),
        );
        Bound::from_owned_ptr_or_err(py, array)
    };
    // More dimensions than NumPy knows.
    let array = array.map_err(|error| Fault::met(py, error))?;
    // SAFETY: the call makes arrays.
    Ok(unsafe { array.cast_into_unchecked() })
}
