//! BYTES tensors and arrays of objects.

use kushi_core::{Buffer, element_count};
use numpy::PyUntypedArray;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString};

use crate::Fault;
use crate::memory::data;
use crate::read::pointers;
use crate::write::{View, empty};

/// The elements of a contiguous array of objects, each behind its length.
pub(crate) fn encode(array: &Bound<'_, PyUntypedArray>) -> Result<Buffer, Fault> {
    let elements = pointers(array);
    let mut bytes = Vec::with_capacity(elements.len() * 16);
    for (index, &element) in elements.iter().enumerate() {
        // SAFETY: an element is a reference that the array holds, or null, which stands for None.
        let element = unsafe { Borrowed::from_ptr_or_opt(array.py(), element) };
        append(&mut bytes, element.as_deref()).map_err(|text| {
            Fault::Refused(format!("has {text} at element {index}, expected bytes or str"))
        })?;
    }
    Ok(Buffer::host(bytes))
}

/// Says what it was if it was no string. Runs no Python code, so that the array cannot change meanwhile.
fn append(bytes: &mut Vec<u8>, element: Option<&Bound<'_, PyAny>>) -> Result<(), String> {
    let element = element.filter(|element| !element.is_none()).ok_or("None")?;
    let text;
    let content = if let Ok(content) = element.cast::<PyBytes>() {
        content.as_bytes()
    } else if let Ok(string) = element.cast::<PyString>() {
        text = string.to_str().map_err(|_| "a str that is no valid Unicode")?;
        text.as_bytes()
    } else {
        return Err(match element.get_type().name() {
            Ok(name) => format!("an object of type {name}"),
            Err(_) => "an object of another type".into(),
        });
    };
    let length = u32::try_from(content.len()).map_err(|_| "a string of 4 GiB or more")?;
    bytes.extend_from_slice(&length.to_le_bytes());
    bytes.extend_from_slice(content);
    Ok(())
}

/// An array of objects of type `bytes`.
pub(crate) fn decode<'py>(py: Python<'py>, view: &View<'_>) -> Result<Bound<'py, PyAny>, Fault> {
    let cut_short = || Fault::Refused("is cut short".into());
    let count = element_count(view.shape).ok_or_else(cut_short)?;
    let mut rest = view.bytes;
    // Each takes four bytes at least: a shape that promises more reserves no memory.
    if count > rest.len() / 4 {
        return Err(cut_short());
    }
    let array = empty(py, view.datatype, view.shape)?;
    #[expect(clippy::cast_ptr_alignment, reason = "NumPy aligns what it allocates")]
    let places = data(&array).cast::<*mut ffi::PyObject>();
    for index in 0..count {
        let (length, behind) = rest.split_first_chunk::<4>().ok_or_else(cut_short)?;
        let length = u32::from_le_bytes(*length) as usize;
        let content = behind.get(..length).ok_or_else(cut_short)?;
        rest = &behind[length..];
        let element = PyBytes::new(py, content).into_ptr();
        // SAFETY: the array has `count` places; a new one holds null or None, which need no release.
        unsafe { *places.add(index) = element };
    }
    Ok(array.into_any())
}
