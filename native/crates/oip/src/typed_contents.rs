//! Tensors in typed fields, as some clients send them: made the bytes that they stand for.

use bytes::{BufMut, BytesMut};
use kushi_core::DataType;

use crate::wire::{Fields, Value, WireError};

/// Why typed fields are no tensor.
#[derive(Debug, PartialEq, Eq)]
pub enum Fault {
    /// They are of another type.
    Type(&'static str),
    /// There are several of them.
    Several,
    Unreadable(WireError),
}

/// `None`: the message is empty.
pub fn bytes(contents: &[u8], datatype: DataType) -> Result<Option<BytesMut>, Fault> {
    let Some(length) = length(contents, datatype)? else { return Ok(None) };
    let mut bytes = BytesMut::with_capacity(length);
    walk(contents, datatype, |element| bytes.put_slice(element))?;
    Ok(Some(bytes))
}

/// How many bytes they are: up to eight for each one that came.
pub fn length(contents: &[u8], datatype: DataType) -> Result<Option<usize>, Fault> {
    let mut length = 0;
    let found = walk(contents, datatype, |element| length += element.len())?;
    Ok(found.then_some(length))
}

/// Gives the bytes of the tensor, piece by piece. False: there is no field.
fn walk(contents: &[u8], datatype: DataType, mut put: impl FnMut(&[u8])) -> Result<bool, Fault> {
    let mut fields = Fields::new(contents);
    let mut found = None;
    while let Some((field, value)) = fields.next_field().map_err(Fault::Unreadable)? {
        let Some(types) = types(field) else { continue };
        if found.is_some_and(|found| found != field) {
            return Err(Fault::Several);
        }
        found = Some(field);
        if !types.contains(&datatype) {
            return Err(Fault::Type(types[0].name()));
        }
        elements(datatype, value, &mut put).map_err(Fault::Unreadable)?;
    }
    Ok(found.is_some())
}

/// That a field may hold, the one that it is named for first.
fn types(field: u32) -> Option<&'static [DataType]> {
    use DataType::{Bool, Bytes, Fp32, Fp64, Int8, Int16, Int32, Int64, Uint8, Uint16, Uint32, Uint64};
    Some(match field {
        1 => &[Bool],
        2 => &[Int32, Int16, Int8],
        3 => &[Int64],
        4 => &[Uint32, Uint16, Uint8],
        5 => &[Uint64],
        6 => &[Fp32],
        7 => &[Fp64],
        8 => &[Bytes],
        _ => return None,
    })
}

fn elements(datatype: DataType, value: Value<'_>, put: &mut impl FnMut(&[u8])) -> Result<(), WireError> {
    match datatype {
        DataType::Bytes => {
            let element = value.bytes()?;
            put(&(element.len() as u32).to_le_bytes());
            put(element);
            Ok(())
        }
        // Packed, they are what they are in a tensor.
        DataType::Fp32 | DataType::Fp64 => {
            match value {
                Value::Fixed32(bits) => put(&bits.to_le_bytes()),
                Value::Fixed64(bits) => put(&bits.to_le_bytes()),
                value => put(value.bytes()?),
            }
            Ok(())
        }
        _ => {
            let size = datatype.size().unwrap_or(8);
            // The low bytes of a number, as in Triton.
            value.varints(|number| {
                let number = if datatype == DataType::Bool { u64::from(number != 0) } else { number };
                put(&number.to_le_bytes()[..size]);
                Ok(())
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use prost::Message;

    use super::*;
    use crate::InferTensorContents;

    fn read(contents: &InferTensorContents, datatype: DataType) -> Result<Option<Vec<u8>>, Fault> {
        bytes(&contents.encode_to_vec(), datatype).map(|bytes| bytes.map(|bytes| bytes.to_vec()))
    }

    #[test]
    fn each_type_has_its_field() {
        let contents = InferTensorContents { int_contents: vec![1, -2], ..Default::default() };
        assert_eq!(
            read(&contents, DataType::Int32),
            Ok(Some([1_i32.to_le_bytes(), (-2_i32).to_le_bytes()].concat()))
        );
        assert_eq!(read(&contents, DataType::Int8), Ok(Some(vec![1, 0xfe])));
        assert_eq!(read(&contents, DataType::Int64), Err(Fault::Type("INT32")));
        let contents = InferTensorContents { fp32_contents: vec![0.5], ..Default::default() };
        assert_eq!(read(&contents, DataType::Fp32), Ok(Some(0.5_f32.to_le_bytes().to_vec())));
        assert_eq!(read(&contents, DataType::Fp16), Err(Fault::Type("FP32")));
        let contents = InferTensorContents { bool_contents: vec![true, false], ..Default::default() };
        assert_eq!(read(&contents, DataType::Bool), Ok(Some(vec![1, 0])));
        let texts = vec!["ab".into(), "".into()];
        let contents = InferTensorContents { bytes_contents: texts, ..Default::default() };
        assert_eq!(read(&contents, DataType::Bytes), Ok(Some(b"\x02\0\0\0ab\0\0\0\0".to_vec())));
    }

    #[test]
    fn the_length_is_known_before_there_are_bytes() {
        let contents = InferTensorContents { int64_contents: vec![1; 1000], ..Default::default() };
        assert_eq!(length(&contents.encode_to_vec(), DataType::Int64), Ok(Some(8000)));
        let contents = InferTensorContents { bytes_contents: vec!["".into(); 10], ..Default::default() };
        assert_eq!(length(&contents.encode_to_vec(), DataType::Bytes), Ok(Some(40)));
        assert_eq!(length(b"", DataType::Int64), Ok(None));
    }

    #[test]
    fn there_is_one_field_at_most() {
        assert_eq!(read(&InferTensorContents::default(), DataType::Fp32), Ok(None));
        let contents =
            InferTensorContents { fp32_contents: vec![0.5], int_contents: vec![1], ..Default::default() };
        assert_eq!(read(&contents, DataType::Int32), Err(Fault::Several));
    }
}
