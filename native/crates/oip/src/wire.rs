//! The protobuf encoding, for messages that are read and written where their parts lie.
//!
//! A message type that is built first costs an allocation for each string in it, and one that is read
//! whole may cost many times its bytes. Groups, which proto3 does not have, are refused.

use std::fmt;

use bytes::BufMut;

/// What stands behind a field's key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value<'a> {
    Varint(u64),
    Fixed64(u64),
    Fixed32(u32),
    Bytes(&'a [u8]),
}

/// The bytes are no message, or not the one that was expected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WireError(&'static str);

impl fmt::Display for WireError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for WireError {}

/// Of one message, with those of the messages in it: reading more would keep others waiting.
const MOST_FIELDS: usize = 1 << 18;

pub const TOO_MANY_FIELDS: WireError = WireError("it has too many fields");
const CUT_SHORT: WireError = WireError("it ends in the middle of a field");
const OTHER_TYPE: WireError = WireError("a field has another type than expected");

impl<'a> Value<'a> {
    pub fn varint(self) -> Result<u64, WireError> {
        match self {
            Self::Varint(value) => Ok(value),
            _ => Err(OTHER_TYPE),
        }
    }

    pub fn bytes(self) -> Result<&'a [u8], WireError> {
        match self {
            Self::Bytes(value) => Ok(value),
            _ => Err(OTHER_TYPE),
        }
    }

    pub fn text(self) -> Result<&'a str, WireError> {
        std::str::from_utf8(self.bytes()?).map_err(|_| WireError("a text is no UTF-8"))
    }

    pub fn double(self) -> Result<f64, WireError> {
        match self {
            Self::Fixed64(value) => Ok(f64::from_bits(value)),
            _ => Err(OTHER_TYPE),
        }
    }

    /// The elements of a repeated number: packed ones, or one that stands alone.
    pub fn varints(self, mut each: impl FnMut(u64) -> Result<(), WireError>) -> Result<(), WireError> {
        match self {
            Self::Varint(value) => each(value),
            Self::Bytes(mut packed) => {
                while !packed.is_empty() {
                    each(take_varint(&mut packed)?)?;
                }
                Ok(())
            }
            _ => Err(OTHER_TYPE),
        }
    }
}

/// How many fields may still be read.
#[derive(Debug)]
pub struct Room(usize);

impl Default for Room {
    fn default() -> Self {
        Self(MOST_FIELDS)
    }
}

impl Room {
    /// For one more.
    pub fn take(&mut self) -> Result<(), WireError> {
        self.0 = self.0.checked_sub(1).ok_or(TOO_MANY_FIELDS)?;
        Ok(())
    }
}

/// The fields of a message, in the order in which they stand.
#[derive(Clone, Debug)]
pub struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    pub fn new(message: &'a [u8]) -> Self {
        Self(message)
    }

    /// The next field with its number; `None` at the end.
    pub fn next_field(&mut self) -> Result<Option<(u32, Value<'a>)>, WireError> {
        if self.0.is_empty() {
            return Ok(None);
        }
        let key = take_varint(&mut self.0)?;
        let number = u32::try_from(key >> 3).ok().filter(|number| (1..1 << 29).contains(number));
        let number = number.ok_or(WireError("a field has no number"))?;
        let value = match key & 7 {
            0 => Value::Varint(take_varint(&mut self.0)?),
            1 => Value::Fixed64(u64::from_le_bytes(self.take_array()?)),
            2 => {
                let length = usize::try_from(take_varint(&mut self.0)?).map_err(|_| CUT_SHORT)?;
                let (bytes, rest) = self.0.split_at_checked(length).ok_or(CUT_SHORT)?;
                self.0 = rest;
                Value::Bytes(bytes)
            }
            5 => Value::Fixed32(u32::from_le_bytes(self.take_array()?)),
            _ => return Err(WireError("a field has an unknown type")),
        };
        Ok(Some((number, value)))
    }

    fn take_array<const N: usize>(&mut self) -> Result<[u8; N], WireError> {
        let (array, rest) = self.0.split_first_chunk().ok_or(CUT_SHORT)?;
        self.0 = rest;
        Ok(*array)
    }
}

fn take_varint(bytes: &mut &[u8]) -> Result<u64, WireError> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (&byte, rest) = bytes.split_first().ok_or(CUT_SHORT)?;
        *bytes = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            // The tenth byte has room for one bit.
            return if shift == 63 && byte > 1 { Err(TOO_LONG) } else { Ok(value) };
        }
    }
    Err(TOO_LONG)
}

const TOO_LONG: WireError = WireError("a number has more than 64 bits");

const VARINT: u32 = 0;
const FIXED64: u32 = 1;
const DELIMITED: u32 = 2;

pub fn put_number(out: &mut impl BufMut, field: u32, value: u64) {
    put_key(out, field, VARINT);
    put_varint(out, value);
}

pub fn put_double(out: &mut impl BufMut, field: u32, value: f64) {
    put_key(out, field, FIXED64);
    out.put_f64_le(value);
}

/// Left out when empty, which means the same.
pub fn put_text(out: &mut impl BufMut, field: u32, text: &str) {
    if !text.is_empty() {
        put_bytes(out, field, text.as_bytes());
    }
}

pub fn put_bytes(out: &mut impl BufMut, field: u32, bytes: &[u8]) {
    put_length(out, field, bytes.len());
    out.put_slice(bytes);
}

/// What stands before so many bytes of a message, a text or bytes.
pub fn put_length(out: &mut impl BufMut, field: u32, length: usize) {
    put_key(out, field, DELIMITED);
    put_varint(out, length as u64);
}

/// Packed; left out when there are none, which means the same.
pub fn put_numbers(out: &mut impl BufMut, field: u32, values: &[i64]) {
    if !values.is_empty() {
        put_length(out, field, packed_length(values));
        for &value in values {
            put_varint(out, value as u64);
        }
    }
}

/// The length of a field that [`put_number`] writes.
pub fn number_length(field: u32, value: u64) -> usize {
    key_length(field) + varint_length(value)
}

/// The length of a field that [`put_text`] writes.
pub fn text_length(field: u32, text: &str) -> usize {
    if text.is_empty() { 0 } else { bytes_length(field, text.len()) }
}

/// The length of a field of so many bytes, with what stands before them.
pub fn bytes_length(field: u32, length: usize) -> usize {
    key_length(field) + varint_length(length as u64) + length
}

/// The length of a field that [`put_numbers`] writes.
pub fn numbers_length(field: u32, values: &[i64]) -> usize {
    if values.is_empty() { 0 } else { bytes_length(field, packed_length(values)) }
}

fn packed_length(values: &[i64]) -> usize {
    values.iter().map(|&value| varint_length(value as u64)).sum()
}

fn put_key(out: &mut impl BufMut, field: u32, wire_type: u32) {
    put_varint(out, u64::from(field << 3 | wire_type));
}

fn key_length(field: u32) -> usize {
    varint_length(u64::from(field << 3))
}

fn put_varint(out: &mut impl BufMut, mut value: u64) {
    while value >= 0x80 {
        out.put_u8(value as u8 | 0x80);
        value >>= 7;
    }
    out.put_u8(value as u8);
}

fn varint_length(value: u64) -> usize {
    (u64::BITS - (value | 1).leading_zeros()).div_ceil(7) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_reads_back_and_its_length_was_known() {
        let numbers = [0, 1, 127, 128, 16_383, 16_384, u64::MAX >> 1, u64::MAX];
        for value in numbers {
            for field in [1, 15, 16, 1001] {
                let mut out = Vec::new();
                put_number(&mut out, field, value);
                assert_eq!(out.len(), number_length(field, value));
                put_double(&mut out, field, 0.5);
                let mut fields = Fields::new(&out);
                assert_eq!(fields.next_field(), Ok(Some((field, Value::Varint(value)))));
                assert_eq!(fields.next_field().unwrap().unwrap().1.double(), Ok(0.5));
                assert_eq!(fields.next_field(), Ok(None));
            }
        }
        let mut out = Vec::new();
        let shape = numbers.map(|number| number as i64);
        put_numbers(&mut out, 3, &shape);
        put_numbers(&mut out, 3, &[]);
        assert_eq!(out.len(), numbers_length(3, &shape));
        let mut read = Vec::new();
        let (_, value) = Fields::new(&out).next_field().unwrap().unwrap();
        let mut push = |number| {
            read.push(number);
            Ok(())
        };
        value.varints(&mut push).unwrap();
        assert_eq!(read, numbers);
        let mut out = Vec::new();
        put_text(&mut out, 2, "串");
        put_text(&mut out, 2, "");
        assert_eq!(out.len(), text_length(2, "串") + text_length(2, ""));
        assert_eq!(Fields::new(&out).next_field().unwrap().unwrap().1.text(), Ok("串"));
    }

    #[test]
    fn what_is_no_message_is_refused() {
        let eleven = [[8].as_slice(), &[0xff; 10], &[1]].concat();
        let too_large = [[8].as_slice(), &[0xff; 9], &[2]].concat();
        for bytes in [
            &[8][..],
            &[0x80],
            &[0, 1],
            &[0x0a, 2, 1],
            &[0x09, 1, 2, 3],
            &[0x0d, 1, 2, 3],
            &[0x0b],
            &[0x0e],
            &[0x0a, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1],
            &eleven,
            &too_large,
        ] {
            Fields::new(bytes).next_field().unwrap_err();
        }
        Value::Bytes(&[0xff]).text().unwrap_err();
        Value::Varint(1).bytes().unwrap_err();
        Value::Fixed32(1).varint().unwrap_err();
    }
}
