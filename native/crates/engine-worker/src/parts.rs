//! What all messages are made of: heads, texts, parameters, and the bytes of tensors. What a worker writes is not trusted:
//! it runs code of a user's.

use bytes::Bytes;
use kushi_core::{Buffer, DataType, Parameter};

pub(crate) const ALIGNMENT: usize = 64;
/// Of what a worker says of itself, in the log and in errors.
pub(crate) const TEXT_BYTES: usize = 64 << 10;

/// Triton's flags of a request.
pub(crate) const SEQUENCE_START: u32 = 1;
pub(crate) const SEQUENCE_END: u32 = 2;

/// A flag of an answer: it is the last one.
pub(crate) const FINAL: u32 = 2;

/// A payload: what was written for it, and the bytes of tensors behind that, each with its offset.
pub(crate) struct Payload<'a> {
    pub(crate) heads: Vec<u8>,
    pub(crate) tensors: Vec<(usize, &'a [u8])>,
    pub(crate) length: usize,
}

/// What a worker has written that it should not have.
#[derive(Debug)]
pub(crate) struct Garbage(pub(crate) &'static str);

/// What a worker says, as far as `most_bytes` go: a copy, since it can still write where the payload lies.
pub(crate) fn text_of(payload: &Bytes, most_bytes: usize) -> String {
    let text = payload[..payload.len().min(most_bytes)].to_vec();
    String::from_utf8(text).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
}

/// The heads of a payload, whose length goes before them: a copy, since what was checked must not change any more.
pub(crate) fn heads_of(payload: &Bytes) -> Result<Vec<u8>, Garbage> {
    let short = || Garbage("the heads of a message are cut short");
    let (length, rest) = payload.split_first_chunk().ok_or_else(short)?;
    rest.get(..u32::from_le_bytes(*length) as usize).map(<[u8]>::to_vec).ok_or_else(short)
}

/// The bytes of the tensors behind the heads of a payload, one after the other.
pub(crate) struct Tensors<'a> {
    payload: &'a Bytes,
    at: usize,
}

impl<'a> Tensors<'a> {
    pub(crate) fn behind(heads: &[u8], payload: &'a Bytes) -> Self {
        Self { payload, at: size_of::<u32>() + heads.len() }
    }

    /// Numbers are not copied: any bytes are some. Strings are, since whoever reads them goes by the lengths in them.
    pub(crate) fn next(&mut self, datatype: DataType, length: usize) -> Result<Buffer, Garbage> {
        let start = self.at.next_multiple_of(ALIGNMENT);
        let end = start.checked_add(length).filter(|&end| end <= self.payload.len());
        self.at = end.ok_or(Garbage("a tensor lies outside of its message"))?;
        let data = self.payload.slice(start..self.at);
        Ok(Buffer::host(if datatype.size().is_some() { data } else { Bytes::copy_from_slice(&data) }))
    }
}

/// As JSON; nothing where there are none.
pub(crate) fn parameters_text(parameters: &[(String, Parameter)]) -> String {
    if parameters.is_empty() {
        return String::new();
    }
    let value = |parameter: &Parameter| match parameter {
        Parameter::Bool(value) => (*value).into(),
        Parameter::Int(value) => (*value).into(),
        Parameter::Double(value) => (*value).into(),
        Parameter::String(value) => value.as_str().into(),
    };
    let members = parameters.iter().map(|(name, parameter)| (name.clone(), value(parameter)));
    serde_json::Value::Object(members.collect()).to_string()
}

/// Triton's number of a data type.
pub(crate) fn number(datatype: DataType) -> u32 {
    DataType::ALL.iter().position(|known| *known == datatype).map_or(0, |position| position as u32 + 1)
}

/// The data type with Triton's number.
pub(crate) fn datatype(number: usize) -> Result<DataType, Garbage> {
    let datatype = number.checked_sub(1).and_then(|index| DataType::ALL.get(index)).copied();
    datatype.ok_or(Garbage("a tensor has an unknown data type"))
}

/// A JSON object; nothing where there are none.
pub(crate) fn read_parameters(json: &[u8]) -> Result<Vec<(String, Parameter)>, Garbage> {
    if json.is_empty() {
        return Ok(Vec::new());
    }
    let members: serde_json::Map<String, serde_json::Value> =
        serde_json::from_slice(json).map_err(|_| Garbage("the parameters of a message cannot be read"))?;
    Ok(members.into_iter().filter_map(|(name, value)| Some((name, parameter(value)?))).collect())
}

/// `None` for what is no parameter.
fn parameter(value: serde_json::Value) -> Option<Parameter> {
    Some(match value {
        serde_json::Value::Bool(value) => Parameter::Bool(value),
        serde_json::Value::String(value) => Parameter::String(value),
        serde_json::Value::Number(value) => match value.as_i64() {
            Some(value) => Parameter::Int(value),
            None => Parameter::Double(value.as_f64()?),
        },
        _ => return None,
    })
}
