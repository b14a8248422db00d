//! BYTES tensors: the protocol's length-prefixed elements and OpenVINO's strings.
//!
//! A string tensor is an array of `std::string`. The C API fills one from texts that end with a zero and cannot read
//! it, so what has a zero byte is written in place, and elements are read where they lie: a `std::string` of libstdc++
//! begins with a pointer and a length. [`check_layout`] looks once whether the library's are like that.

use std::ffi::c_char;

use kushi_core::DataType;

use crate::api::Api;
use crate::status::OpenVinoFailure;
use crate::tensor::RawTensor;

/// The beginning of a `std::string`.
#[repr(C)]
struct Text {
    start: *mut u8,
    length: usize,
}

/// Of a `std::string`, which keeps up to 15 bytes in itself.
const SIZE: usize = 32;

/// Short and long ones, empty ones, and what is not text.
const SAMPLES: [&[u8]; 4] = [b"short", b"", b"longer than a string keeps in itself", b"zero\0byte\xff"];

/// Refuses a library whose strings do not lie as they are read here.
pub(crate) fn check_layout(api: &Api) -> Result<(), String> {
    let mut bytes = Vec::new();
    for sample in SAMPLES {
        bytes.extend_from_slice(&(sample.len() as u32).to_le_bytes());
        bytes.extend_from_slice(sample);
    }
    let there_and_back = || {
        let tensor = decode(api, &[SAMPLES.len() as i64], &bytes)?;
        encode(&tensor, SAMPLES.len())
    };
    match there_and_back() {
        Ok(same) if same == bytes => Ok(()),
        Ok(_) => Err("the strings of this openvino library do not lie as expected".to_owned()),
        Err(failure) => Err(format!("the strings of this openvino library: {}", failure.text())),
    }
}

/// A string tensor with a copy of the elements in `bytes`, which the core has checked.
pub(crate) fn decode<'a>(
    api: &'a Api,
    shape: &[i64],
    bytes: &[u8],
) -> Result<RawTensor<'a>, OpenVinoFailure> {
    let tensor = RawTensor::allocate(api, DataType::Bytes, shape)?;
    let mut elements = Vec::new();
    let mut rest = bytes;
    while let Some((length, tail)) = rest.split_first_chunk() {
        let (element, tail) = tail.split_at(u32::from_le_bytes(*length) as usize);
        elements.push(element);
        rest = tail;
    }
    if elements.is_empty() {
        return Ok(tensor);
    }
    let texts: Vec<Vec<u8>> = elements.iter().map(|element| without_zeros(element)).collect();
    let pointers: Vec<*const c_char> = texts.iter().map(|text| text.as_ptr().cast()).collect();
    // SAFETY: there are so many texts, each ends with a zero, and all are copied.
    api.check(unsafe {
        (api.ov_tensor_set_string_data)(tensor.as_ptr(), pointers.as_ptr(), pointers.len())
    })?;
    for (index, element) in elements.iter().enumerate().filter(|(_, element)| element.contains(&0)) {
        let text = text_at(&tensor, index, elements.len())?;
        if text.length != element.len() {
            return Err(OpenVinoFailure::new("a string has not the length that it was given"));
        }
        // SAFETY: the string was just made with this length, and nobody else knows it.
        unsafe { text.start.copy_from_nonoverlapping(element.as_ptr(), element.len()) };
    }
    Ok(tensor)
}

/// The elements of a string tensor as the protocol writes them.
pub(crate) fn encode(tensor: &RawTensor<'_>, count: usize) -> Result<Vec<u8>, OpenVinoFailure> {
    let mut bytes = Vec::with_capacity(8 * count);
    for index in 0..count {
        let text = text_at(tensor, index, count)?;
        bytes.extend_from_slice(&(text.length as u32).to_le_bytes());
        if text.length > 0 {
            // SAFETY: a string has so many bytes from there, and nothing writes to them.
            bytes.extend_from_slice(unsafe { std::slice::from_raw_parts(text.start, text.length) });
        }
    }
    Ok(bytes)
}

/// As long as the element, with a zero behind it and none within.
fn without_zeros(element: &[u8]) -> Vec<u8> {
    let bytes = element.iter().map(|byte| if *byte == 0 { b' ' } else { *byte });
    bytes.chain([0]).collect()
}

fn text_at(tensor: &RawTensor<'_>, index: usize, count: usize) -> Result<Text, OpenVinoFailure> {
    if tensor.byte_size()? != count * SIZE {
        return Err(OpenVinoFailure::new("a tensor of strings is not made of strings"));
    }
    // SAFETY: the tensor has `count` objects of this size, `index` is below, and each begins like this.
    Ok(unsafe { tensor.data()?.add(index * SIZE).cast::<Text>().read_unaligned() })
}
