//! Which dtype is which data type.
//!
//! NumPy has no bfloat16 of its own; where the package `ml_dtypes` is installed, its type stands for BF16.

use std::ffi::{c_int, c_long};

use kushi_core::DataType;
use numpy::npyffi::{NPY_TYPES, PY_ARRAY_API};
use numpy::{PyArrayDescr, PyArrayDescrMethods};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;

/// What the elements of an array are, for a tensor.
pub(crate) enum Elements {
    Plain(DataType),
    /// Python objects, which may be strings.
    Objects,
    /// Strings in one of NumPy's own forms.
    Strings,
    Other,
}

const LONG_IS_64_BITS: bool = size_of::<c_long>() == 8;

pub(crate) fn elements(dtype: &Bound<'_, PyArrayDescr>) -> Elements {
    const fn number(number: NPY_TYPES) -> c_int {
        number as c_int
    }
    let datatype = match dtype.num() {
        n if n == number(NPY_TYPES::NPY_FLOAT) => DataType::Fp32,
        n if n == number(NPY_TYPES::NPY_BOOL) => DataType::Bool,
        n if n == number(NPY_TYPES::NPY_BYTE) => DataType::Int8,
        n if n == number(NPY_TYPES::NPY_UBYTE) => DataType::Uint8,
        n if n == number(NPY_TYPES::NPY_SHORT) => DataType::Int16,
        n if n == number(NPY_TYPES::NPY_USHORT) => DataType::Uint16,
        n if n == number(NPY_TYPES::NPY_INT) => DataType::Int32,
        n if n == number(NPY_TYPES::NPY_UINT) => DataType::Uint32,
        n if n == number(NPY_TYPES::NPY_LONG) && LONG_IS_64_BITS => DataType::Int64,
        n if n == number(NPY_TYPES::NPY_ULONG) && LONG_IS_64_BITS => DataType::Uint64,
        n if n == number(NPY_TYPES::NPY_LONG) => DataType::Int32,
        n if n == number(NPY_TYPES::NPY_ULONG) => DataType::Uint32,
        n if n == number(NPY_TYPES::NPY_LONGLONG) => DataType::Int64,
        n if n == number(NPY_TYPES::NPY_ULONGLONG) => DataType::Uint64,
        n if n == number(NPY_TYPES::NPY_HALF) => DataType::Fp16,
        n if n == number(NPY_TYPES::NPY_DOUBLE) => DataType::Fp64,
        n if n == number(NPY_TYPES::NPY_OBJECT) => return Elements::Objects,
        n if n == number(NPY_TYPES::NPY_STRING)
            || n == number(NPY_TYPES::NPY_UNICODE)
            || n == number(NPY_TYPES::NPY_VSTRING) =>
        {
            return Elements::Strings;
        }
        n if n >= number(NPY_TYPES::NPY_USERDEF) && is_bfloat16(dtype) => DataType::Bf16,
        _ => return Elements::Other,
    };
    Elements::Plain(datatype)
}

fn is_bfloat16(dtype: &Bound<'_, PyArrayDescr>) -> bool {
    bfloat16(dtype.py()).is_some_and(|bfloat16| bfloat16.typeobj().is(dtype.typeobj()))
}

/// The dtype of BF16, if there is one.
fn bfloat16(py: Python<'_>) -> Option<Bound<'_, PyArrayDescr>> {
    static BFLOAT16: PyOnceLock<Option<Py<PyArrayDescr>>> = PyOnceLock::new();
    let find = || {
        let scalar = py.import("ml_dtypes").ok()?.getattr("bfloat16").ok()?;
        PyArrayDescr::new(py, scalar).ok().map(Bound::unbind)
    };
    BFLOAT16.get_or_init(py, find).as_ref().map(|dtype| dtype.bind(py).clone())
}

/// The dtype of an array of this type; `None` for BF16 without a package that has it.
pub(crate) fn dtype(py: Python<'_>, datatype: DataType) -> Option<Bound<'_, PyArrayDescr>> {
    let number = match datatype {
        DataType::Bool => NPY_TYPES::NPY_BOOL,
        DataType::Uint8 => NPY_TYPES::NPY_UBYTE,
        DataType::Uint16 => NPY_TYPES::NPY_USHORT,
        DataType::Uint32 => NPY_TYPES::NPY_UINT,
        DataType::Uint64 if LONG_IS_64_BITS => NPY_TYPES::NPY_ULONG,
        DataType::Uint64 => NPY_TYPES::NPY_ULONGLONG,
        DataType::Int8 => NPY_TYPES::NPY_BYTE,
        DataType::Int16 => NPY_TYPES::NPY_SHORT,
        DataType::Int32 => NPY_TYPES::NPY_INT,
        DataType::Int64 if LONG_IS_64_BITS => NPY_TYPES::NPY_LONG,
        DataType::Int64 => NPY_TYPES::NPY_LONGLONG,
        DataType::Fp16 => NPY_TYPES::NPY_HALF,
        DataType::Fp32 => NPY_TYPES::NPY_FLOAT,
        DataType::Fp64 => NPY_TYPES::NPY_DOUBLE,
        DataType::Bytes => NPY_TYPES::NPY_OBJECT,
        DataType::Bf16 => return bfloat16(py),
    };
    // SAFETY: a built-in type has a dtype; the reference to it is new and ours.
    unsafe {
        let dtype = PY_ARRAY_API.PyArray_DescrFromType(py, number as c_int);
        Bound::from_owned_ptr_or_opt(py, dtype.cast()).map(|dtype| dtype.cast_into_unchecked())
    }
}
