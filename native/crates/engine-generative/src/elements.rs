//! Elements of tensors, as a request has them and an answer needs them.

use kushi_core::{Buffer, DataType, Error, Shape, Tensor};

/// The only text of an input.
pub(crate) fn text<'a>(name: &str, tensor: &'a Tensor) -> Result<&'a str, Error> {
    let mut rest = tensor.data.as_bytes();
    let mut first = None;
    while let Some((length, tail)) = rest.split_first_chunk() {
        let (element, tail) = tail.split_at(u32::from_le_bytes(*length) as usize);
        if first.replace(element).is_some() {
            return Err(Error::invalid(format!("input '{name}' has more than one text")));
        }
        rest = tail;
    }
    let bytes = first.ok_or_else(|| Error::invalid(format!("input '{name}' has no text")))?;
    str::from_utf8(bytes).map_err(|_| Error::invalid(format!("input '{name}' is not UTF-8")))
}

/// The first element of an input.
pub(crate) fn flag(tensor: &Tensor) -> bool {
    tensor.data.as_bytes().first().is_some_and(|&byte| byte != 0)
}

pub(crate) fn texts<'a>(texts: impl ExactSizeIterator<Item = &'a str>) -> Tensor {
    let shape = Shape::from_slice(&[texts.len() as i64]);
    let mut bytes = Vec::new();
    for text in texts {
        bytes.extend_from_slice(&(text.len() as u32).to_le_bytes());
        bytes.extend_from_slice(text.as_bytes());
    }
    Tensor { datatype: DataType::Bytes, shape, data: Buffer::host(bytes) }
}

/// A vector of numbers.
pub(crate) fn numbers<const N: usize>(datatype: DataType, numbers: impl Iterator<Item = [u8; N]>) -> Tensor {
    let bytes: Vec<u8> = numbers.flatten().collect();
    let shape = Shape::from_slice(&[(bytes.len() / N) as i64]);
    Tensor { datatype, shape, data: Buffer::host(bytes) }
}

pub(crate) fn int32s(tensor: &Tensor) -> impl Iterator<Item = i32> {
    tensor.data.as_bytes().as_chunks().0.iter().map(|bytes| i32::from_le_bytes(*bytes))
}

pub(crate) fn floats(tensor: &Tensor) -> impl Iterator<Item = f32> {
    tensor.data.as_bytes().as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes))
}
