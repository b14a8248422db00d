//! Parameters in messages: entries of a map, by their names.

use kushi_core::Parameter;

use crate::wire::{bytes_length, put_bytes, put_double, put_length, put_number, put_text, text_length};

pub fn put_parameter(out: &mut Vec<u8>, map: u32, key: &str, value: &Parameter) {
    put_entry(out, map, key, |out| match value {
        Parameter::Bool(value) => put_number(out, 1, u64::from(*value)),
        Parameter::Int(value) => put_number(out, 2, *value as u64),
        Parameter::String(value) => put_bytes(out, 3, value.as_bytes()),
        Parameter::Double(value) => put_double(out, 4, *value),
    });
}

/// One whose value is of a kind that [`Parameter`] has not. They are rare.
pub fn put_entry(out: &mut Vec<u8>, map: u32, key: &str, put_value: impl FnOnce(&mut Vec<u8>)) {
    let mut value = Vec::new();
    put_value(&mut value);
    put_length(out, map, text_length(1, key) + bytes_length(2, value.len()));
    put_text(out, 1, key);
    put_bytes(out, 2, &value);
}
