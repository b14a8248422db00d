//! BYTES tensors: the protocol's length-prefixed elements and ONNX Runtime's strings.
//!
//! Lengths are carried both ways, so that zero bytes and text that is not UTF-8 survive.

use std::ptr::null_mut;

use kushi_core::DataType;

use crate::status::{OrtFailure, check};
use crate::value::Value;

/// A string tensor with a copy of the elements in `bytes`, which the core has checked.
pub(crate) fn decode(shape: &[i64], bytes: &[u8]) -> Result<Value, OrtFailure> {
    let value = Value::allocate(DataType::Bytes, shape)?;
    let mut rest = bytes;
    let mut index = 0;
    while let Some((length, tail)) = rest.split_first_chunk() {
        let (element, tail) = tail.split_at(u32::from_le_bytes(*length) as usize);
        let mut place = null_mut();
        // SAFETY: the tensor is owned here; an index beyond its end is refused with a status. The
        // place that is answered has exactly the length that was asked for.
        unsafe {
            let length = element.len();
            check((ort::api().GetResizedStringTensorElementBuffer)(
                value.as_ptr(),
                index,
                length,
                &raw mut place,
            ))?;
            place.cast::<u8>().copy_from_nonoverlapping(element.as_ptr(), length);
        }
        rest = tail;
        index += 1;
    }
    Ok(value)
}

/// The elements of a string tensor as the protocol writes them.
pub(crate) fn encode(value: &Value, count: usize) -> Result<Vec<u8>, OrtFailure> {
    let api = ort::api();
    let mut total = 0;
    // SAFETY: the value is alive; one that holds no strings is refused with a status.
    check(unsafe { (api.GetStringTensorDataLength)(value.as_ptr(), &raw mut total) })?;
    let mut bytes = Vec::with_capacity(total + 4 * count);
    for index in 0..count {
        let mut length = 0;
        // SAFETY: as above; an index beyond the end is refused with a status.
        check(unsafe { (api.GetStringTensorElementLength)(value.as_ptr(), index, &raw mut length) })?;
        bytes.extend_from_slice(&(length as u32).to_le_bytes());
        bytes.reserve(length);
        // SAFETY: room for `length` bytes was reserved, all of which are written when the status is good.
        unsafe {
            let place = bytes.as_mut_ptr().add(bytes.len());
            check((api.GetStringTensorElement)(value.as_ptr(), length, index, place.cast()))?;
            bytes.set_len(bytes.len() + length);
        }
    }
    Ok(bytes)
}
