//! Tensors as JSON: a `data` member into bytes, and bytes into a `data` member.

use kushi_core::{Buffer, DataType, Error, ErrorKind};

use crate::json::read::{self, Leaves, Value};
use crate::json::{Fault, write};

/// What a tensor may be.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    pub bytes: usize,
    /// A value inside so many arrays is refused, as Triton refuses it.
    pub depth: u32,
}

/// The bytes of a tensor of `shape` given as a JSON array, nested or flat.
pub fn read(
    data: &[u8],
    name: &str,
    datatype: Option<DataType>,
    shape: &[i64],
    bounds: Bounds,
) -> Result<Buffer, Error> {
    let count = element_count(name, shape)?;
    if count == 0 {
        return Ok(Buffer::host(Vec::new()));
    }
    if read::value(data) != Value::Array {
        return Err(unreadable("Unable to parse 'data': attempt to access JSON non-array as array"));
    }
    let Some(datatype) = datatype else {
        return Err(Error::invalid(format!("invalid datatype for input {name}")));
    };
    let Some(size) = datatype.size() else {
        return read_strings(data, name, bounds);
    };
    let bytes = check_size(name, count, size, bounds.bytes)?;
    read_numbers(data, name, datatype, count, bytes, bounds.depth)
}

/// The bytes of `count` elements, in arrays or a single one outside of any.
pub fn read_values(
    data: &[u8],
    name: &str,
    datatype: DataType,
    count: usize,
    bounds: Bounds,
) -> Result<Buffer, Error> {
    match datatype.size() {
        None => read_strings(data, name, bounds),
        Some(size) => read_numbers(data, name, datatype, count, count.saturating_mul(size), bounds.depth),
    }
}

fn read_numbers(
    data: &[u8],
    name: &str,
    datatype: DataType,
    count: usize,
    bytes: usize,
    depth: u32,
) -> Result<Buffer, Error> {
    let size = datatype.size().unwrap_or(0);
    let mut out = Vec::with_capacity(bytes.min(data.len().saturating_mul(size)));
    macro_rules! integers {
        ($read:path, $type:ty, $what:literal) => {
            fill(data, count, depth, &mut out, |value| match value {
                Value::Number(number) => Ok(($read(number).ok_or($what)? as $type).to_le_bytes()),
                _ => Err($what),
            })
        };
    }
    macro_rules! unsigned {
        ($type:ty) => {
            integers!(read::unsigned, $type, "non-unsigned-integer as unsigned-integer")
        };
    }
    macro_rules! signed {
        ($type:ty) => {
            integers!(read::signed, $type, "non-signed-integer as signed-integer")
        };
    }
    let double = |value: Value<'_>| match value {
        Value::Number(number) => Ok(read::double(number)),
        _ => Err("non-number as double"),
    };
    match datatype {
        DataType::Bool => fill(data, count, depth, &mut out, |value| match value {
            Value::Bool(value) => Ok([u8::from(value)]),
            _ => Err("non-boolean as boolean"),
        }),
        DataType::Uint8 => unsigned!(u8),
        DataType::Uint16 => unsigned!(u16),
        DataType::Uint32 => unsigned!(u32),
        DataType::Uint64 => unsigned!(u64),
        DataType::Int8 => signed!(i8),
        DataType::Int16 => signed!(i16),
        DataType::Int32 => signed!(i32),
        DataType::Int64 => signed!(i64),
        DataType::Fp32 => {
            fill(data, count, depth, &mut out, |value| Ok((double(value)? as f32).to_le_bytes()))
        }
        DataType::Fp64 => fill(data, count, depth, &mut out, |value| Ok(double(value)?.to_le_bytes())),
        DataType::Fp16 | DataType::Bf16 | DataType::Bytes => Err(Error::invalid(format!(
            "receiving {datatype} data via JSON is not supported. Please use the binary data format for input {name}"
        ))),
    }?;
    Ok(Buffer::host(out))
}

fn fill<const N: usize>(
    data: &[u8],
    count: usize,
    most_depth: u32,
    out: &mut Vec<u8>,
    convert: impl Fn(Value<'_>) -> Result<[u8; N], &'static str>,
) -> Result<(), Error> {
    let mut seen = 0;
    for (depth, value) in Leaves::new(data) {
        if depth >= most_depth as usize {
            let fault = Fault::TooDeep(most_depth);
            return Err(Error::invalid(format!("Unable to parse 'data': {fault}")));
        }
        if seen == count {
            return Err(unreadable(
                "Unable to parse 'data': Shape does not match true shape of 'data' field",
            ));
        }
        let bytes = convert(value)
            .map_err(|what| unreadable(format!("Unable to parse 'data': attempt to access JSON {what}")))?;
        out.extend_from_slice(&bytes);
        seen += 1;
    }
    if seen < count {
        return Err(unreadable("Failed to parse 'data' field: shape does not match true shape"));
    }
    Ok(())
}

/// Strings keep their own count; the model's checks compare it with the shape.
fn read_strings(data: &[u8], name: &str, bounds: Bounds) -> Result<Buffer, Error> {
    let mut out = Vec::with_capacity(data.len());
    for (depth, value) in Leaves::new(data) {
        if depth >= bounds.depth as usize {
            return Err(Error::invalid(Fault::TooDeep(bounds.depth).to_string()));
        }
        let Value::String(raw) = value else {
            let text = "Unable to parse JSON bytes array: attempt to access JSON non-string as string";
            return Err(unreadable(text));
        };
        let text = read::unescape(raw);
        out.extend_from_slice(&(text.len() as u32).to_le_bytes());
        out.extend_from_slice(&text);
    }
    if out.is_empty() {
        return Err(unreadable("Failed to parse 'data' field: output buffer unavailable"));
    }
    if out.len() > bounds.bytes {
        return Err(too_large(name, out.len(), bounds.bytes));
    }
    Ok(Buffer::host(out))
}

/// The product of the dimensions; none at all count as zero here, as in Triton.
fn element_count(name: &str, shape: &[i64]) -> Result<usize, Error> {
    if shape.is_empty() {
        return Ok(0);
    }
    let mut count = 1_i64;
    for &dim in shape {
        if dim == 0 {
            return Ok(0);
        }
        if dim < 0 {
            return Err(Error::invalid(format!(
                "invalid shape for input '{name}': shape {} contains one or more invalid dimensions",
                list(shape)
            )));
        }
        count = count.checked_mul(dim).ok_or_else(|| {
            Error::invalid(format!(
                "invalid shape for input '{name}': shape {} causes total element count to exceed maximum size of {}",
                list(shape),
                i64::MAX
            ))
        })?;
    }
    Ok(count as usize)
}

fn check_size(name: &str, count: usize, size: usize, max_bytes: usize) -> Result<usize, Error> {
    let bytes = count.checked_mul(size).filter(|&bytes| i64::try_from(bytes).is_ok()).ok_or_else(|| {
        Error::invalid(format!(
            "byte size overflow for input '{name}': element count ({count}) * data type size ({size}) exceeds \
             maximum allowed size ({})",
            i64::MAX
        ))
    })?;
    if bytes > max_bytes {
        return Err(too_large(name, bytes, max_bytes));
    }
    Ok(bytes)
}

fn too_large(name: &str, bytes: usize, max_bytes: usize) -> Error {
    Error::invalid(format!(
        "JSON input '{name}' has a byte_size ({bytes} bytes) that exceeds the maximum allowed value of {max_bytes} \
         bytes. Use --http-max-input-size to increase the limit."
    ))
}

fn list(shape: &[i64]) -> String {
    let dims: Vec<String> = shape.iter().map(i64::to_string).collect();
    format!("[{}]", dims.join(","))
}

fn unreadable(text: impl Into<std::borrow::Cow<'static, str>>) -> Error {
    Error::new(ErrorKind::UnreadableInput, text)
}

/// JSON has no numbers of half precision.
pub fn check_writable(datatype: DataType) -> Result<(), Error> {
    match datatype {
        DataType::Fp16 | DataType::Bf16 => Err(Error::invalid(format!(
            "sending {datatype} data via JSON is not supported. Please use the binary data format for output"
        ))),
        _ => Ok(()),
    }
}

/// Writes the elements of a tensor, flat, without the brackets. FP16 and BF16 have no JSON form.
pub fn write(out: &mut Vec<u8>, datatype: DataType, data: &[u8]) {
    macro_rules! numbers {
        ($type:ty, $write:expr) => {
            for (i, element) in data.as_chunks::<{ size_of::<$type>() }>().0.iter().enumerate() {
                if i > 0 {
                    out.push(b',');
                }
                $write(&mut *out, <$type>::from_le_bytes(*element));
            }
        };
    }
    match datatype {
        DataType::Bool => numbers!(u8, |out: &mut Vec<u8>, value| {
            out.extend_from_slice(if value == 0 { b"false" } else { b"true" });
        }),
        DataType::Uint8 => numbers!(u8, write::integer),
        DataType::Uint16 => numbers!(u16, write::integer),
        DataType::Uint32 => numbers!(u32, write::integer),
        DataType::Uint64 => numbers!(u64, write::integer),
        DataType::Int8 => numbers!(i8, write::integer),
        DataType::Int16 => numbers!(i16, write::integer),
        DataType::Int32 => numbers!(i32, write::integer),
        DataType::Int64 => numbers!(i64, write::integer),
        DataType::Fp32 => numbers!(f32, |out: &mut Vec<u8>, value| write::double(out, f64::from(value))),
        DataType::Fp64 => numbers!(f64, write::double),
        DataType::Bytes => strings(out, data),
        DataType::Fp16 | DataType::Bf16 => {}
    }
}

fn strings(out: &mut Vec<u8>, mut data: &[u8]) {
    let mut first = true;
    while let Some((length, rest)) = data.split_first_chunk::<4>() {
        let length = (u32::from_le_bytes(*length) as usize).min(rest.len());
        if !first {
            out.push(b',');
        }
        first = false;
        write::string(out, &rest[..length]);
        data = &rest[length..];
    }
}
