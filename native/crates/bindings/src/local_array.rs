//! Arrays in memory that the engine can see.

use kushi_arrays::Fault;
use kushi_client::local::{Arena, SLOT_BYTES};
use kushi_core::{Buffer, DataType, Error, Shape, Tensor, element_count};
use pyo3::exceptions::PyException;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyString;

use crate::errors::{About, raise_about};

/// `dtype` is the name of a type of the protocol, or anything that NumPy takes for a dtype.
pub(crate) fn empty<'py>(
    arena: &Arena,
    shape: &Bound<'py, PyAny>,
    dtype: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = dtype.py();
    let (datatype, dtype) = read_dtype(dtype)?;
    let Some(size) = datatype.size() else {
        return Err(refused(py, format!("dtype is {dtype}, expected bool, integers or floats")));
    };
    let dims = read_shape(shape)?;
    let length = element_count(&dims).and_then(|count| count.checked_mul(size));
    let length = length.ok_or_else(|| refused(py, format!("shape is {shape}, more than memory can hold")))?;
    let data = if length < SLOT_BYTES { None } else { arena.buffer(length) };
    let Some(data) = data else {
        return py.import(intern!(py, "numpy"))?.call_method1(intern!(py, "empty"), (shape, dtype));
    };
    let tensor = Tensor { datatype, shape: dims, data };
    kushi_arrays::writable_array(py, &tensor).map_err(|fault| wrong_dtype(py, fault))
}

/// NumPy's dtype in the machine's byte order, and what it is to us: those of an array without elements.
fn read_dtype<'py>(given: &Bound<'py, PyAny>) -> PyResult<(DataType, Bound<'py, PyAny>)> {
    let py = given.py();
    let name = given.cast::<PyString>().ok().and_then(|name| name.to_str().ok());
    let named: Option<DataType> = name.and_then(|name| name.parse().ok());
    let sample = match named {
        Some(datatype) => {
            let shape = Shape::from_slice(&[0]);
            let tensor = Tensor { datatype, shape, data: Buffer::host(&b""[..]) };
            kushi_arrays::array(py, &tensor).map_err(|fault| wrong_dtype(py, fault))?
        }
        None => {
            let made = py.import(intern!(py, "numpy"))?.call_method1(intern!(py, "empty"), (0, given));
            made.map_err(|error| {
                if error.is_instance_of::<PyException>(py) {
                    refused(py, format!("dtype cannot be read: {error}"))
                } else {
                    error
                }
            })?
        }
    };
    let datatype = kushi_arrays::tensor(&sample).map_err(|fault| wrong_dtype(py, fault))?.datatype;
    match named.filter(|&named| named != datatype) {
        Some(named) => {
            Err(refused(py, format!("dtype is {named}, for which the package ml_dtypes is needed")))
        }
        None => Ok((datatype, sample.getattr(intern!(py, "dtype"))?)),
    }
}

fn read_shape(given: &Bound<'_, PyAny>) -> PyResult<Shape> {
    let dims: Option<Shape> = match given.extract::<i64>() {
        Ok(dim) => Some(Shape::from_slice(&[dim])),
        Err(_) => given.extract::<Vec<i64>>().ok().map(Shape::from_vec),
    };
    let dims = dims.filter(|dims| dims.iter().all(|&dim| dim >= 0));
    dims.ok_or_else(|| refused(given.py(), format!("shape is {given}, expected ints of 0 or more")))
}

fn wrong_dtype(py: Python<'_>, fault: Fault) -> PyErr {
    match fault {
        Fault::Refused(why) => refused(py, format!("an array that {why}")),
        Fault::Unreadable(error) | Fault::Raised(error) => error,
    }
}

fn refused(py: Python<'_>, text: String) -> PyErr {
    raise_about(py, &Error::invalid(text), &About::default())
}
