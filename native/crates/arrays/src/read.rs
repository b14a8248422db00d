//! Python's arrays, and what can be one, as tensors.
//!
//! A large array that is contiguous and of the machine's byte order is borrowed; any other is copied, once.

use std::ffi::c_char;

use bytes::Bytes;
use kushi_core::{Buffer, DataType, Shape, Tensor};
use numpy::npyffi::{NPY_ORDER, PY_ARRAY_API};
use numpy::{PyArrayDescr, PyArrayDescrMethods, PyUntypedArray, PyUntypedArrayMethods};
use pyo3::exceptions::PyTypeError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBytes, PyList, PyString, PyTuple};

use crate::datatypes::{Elements, dtype, elements};
use crate::memory::{Borrowed, data};
use crate::{BORROWED_BYTES, Fault, strings};

/// An object as a tensor. A large array is borrowed: nobody should write to it until the tensor is gone.
pub fn tensor(object: &Bound<'_, PyAny>) -> Result<Tensor, Fault> {
    match object.cast::<PyUntypedArray>() {
        Ok(array) => read(array.clone()),
        Err(_) => read(asarray(object)?),
    }
}

/// Whether an object is an array already.
pub fn is_array(object: &Bound<'_, PyAny>) -> bool {
    object.is_instance_of::<PyUntypedArray>()
}

fn read(array: Bound<'_, PyUntypedArray>) -> Result<Tensor, Fault> {
    let dtype = array.dtype();
    let shape: Shape = array.shape().iter().map(|&dim| dim as i64).collect();
    let (datatype, data) = match elements(&dtype) {
        Elements::Plain(datatype) => (datatype, plain(array, &dtype, datatype)?),
        Elements::Objects => (DataType::Bytes, strings::encode(&contiguous(array)?)?),
        Elements::Strings => (DataType::Bytes, strings::encode(&contiguous(objects(&array)?)?)?),
        Elements::Other => {
            let text = format!("has dtype {dtype}, expected bool, integers, floats or strings");
            return Err(Fault::Refused(text));
        }
    };
    Ok(Tensor { datatype, shape, data })
}

fn plain(
    array: Bound<'_, PyUntypedArray>,
    dtype: &Bound<'_, PyArrayDescr>,
    datatype: DataType,
) -> Result<Buffer, Fault> {
    let swapped = dtype.byteorder() == OTHER_BYTE_ORDER;
    let array = if swapped { native(&array, dtype)? } else { contiguous(array)? };
    let length = array.len() * datatype.size().unwrap_or(0);
    let borrowed = Borrowed::new(array, length);
    Ok(if length < BORROWED_BYTES {
        Buffer::host(Bytes::copy_from_slice(borrowed.as_ref()))
    } else {
        Buffer::from_owner(borrowed)
    })
}

const OTHER_BYTE_ORDER: u8 = if cfg!(target_endian = "little") { b'>' } else { b'<' };

/// The array itself, or a copy in row-major order.
fn contiguous(array: Bound<'_, PyUntypedArray>) -> Result<Bound<'_, PyUntypedArray>, Fault> {
    if array.is_c_contiguous() {
        return Ok(array);
    }
    let py = array.py();
    // SAFETY: it is an array; the reference to the copy is new and ours, or an exception is set.
    let copy = unsafe {
        let copy = PY_ARRAY_API.PyArray_NewCopy(py, array.as_array_ptr(), NPY_ORDER::NPY_CORDER);
        Bound::from_owned_ptr_or_err(py, copy)?
    };
    as_array(copy)
}

/// A copy in row-major order and the machine's byte order.
fn native<'py>(
    array: &Bound<'py, PyUntypedArray>,
    dtype: &Bound<'py, PyArrayDescr>,
) -> Result<Bound<'py, PyUntypedArray>, Fault> {
    let py = array.py();
    // SAFETY: both are what they say; the cast takes over the reference to the new dtype, and its
    // result is ours, or an exception is set.
    let copy = unsafe {
        let native = PY_ARRAY_API.PyArray_DescrNewByteorder(py, dtype.as_dtype_ptr(), b'=' as c_char);
        if native.is_null() {
            return Err(PyErr::fetch(py).into());
        }
        let copy = PY_ARRAY_API.PyArray_CastToType(py, array.as_array_ptr(), native, 0);
        Bound::from_owned_ptr_or_err(py, copy)?
    };
    as_array(copy)
}

/// As an array of objects, which a subclass has no say in.
fn objects<'py>(array: &Bound<'py, PyUntypedArray>) -> Result<Bound<'py, PyUntypedArray>, Fault> {
    numpy_asarray(array, true)
}

fn asarray<'py>(object: &Bound<'py, PyAny>) -> Result<Bound<'py, PyUntypedArray>, Fault> {
    // Not in NumPy's own form for strings, which cuts off zeros at their ends.
    numpy_asarray(object, begins_with_a_string(object))
}

fn numpy_asarray<'py>(
    object: &Bound<'py, PyAny>,
    of_objects: bool,
) -> Result<Bound<'py, PyUntypedArray>, Fault> {
    static ASARRAY: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let py = object.py();
    let asarray = ASARRAY.import(py, "numpy", "asarray")?;
    let made = if of_objects {
        asarray.call1((object, dtype(py, DataType::Bytes)))
    } else {
        asarray.call1((object,))
    };
    as_array(made.map_err(|error| Fault::met(py, error))?)
}

fn begins_with_a_string(object: &Bound<'_, PyAny>) -> bool {
    let mut first = object.clone();
    // As deep as an array may be; a list may contain itself.
    for _ in 0..64 {
        let inner = if let Ok(list) = first.cast::<PyList>() {
            list.get_item(0)
        } else if let Ok(tuple) = first.cast::<PyTuple>() {
            tuple.get_item(0)
        } else {
            return first.is_instance_of::<PyBytes>() || first.is_instance_of::<PyString>();
        };
        match inner {
            Ok(inner) => first = inner,
            Err(_) => return false,
        }
    }
    false
}

fn as_array(object: Bound<'_, PyAny>) -> Result<Bound<'_, PyUntypedArray>, Fault> {
    object.cast_into().map_err(|error| {
        let got = error.into_inner().get_type();
        Fault::Raised(PyTypeError::new_err(format!("numpy made {got}, expected an array")))
    })
}

/// The elements of an array of objects, which must be contiguous.
pub(crate) fn pointers<'a>(array: &'a Bound<'_, PyUntypedArray>) -> &'a [*mut ffi::PyObject] {
    match array.len() {
        0 => &[],
        // SAFETY: as many pointers lie there one after the other, and the GIL is held.
        length => unsafe { std::slice::from_raw_parts(data(array).cast_const().cast(), length) },
    }
}
