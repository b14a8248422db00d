//! What the suite sends.

use kushi_core::DataType;

use super::probe::{Input, input};

/// Elements that differ from each other and from seed to seed. Floats get every kind of bit pattern.
fn elements(datatype: DataType, count: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 24) as u8
    };
    match datatype.size() {
        Some(_) if datatype == DataType::Bool => (0..count).map(|_| next() & 1).collect(),
        Some(size) => (0..count * size).map(|_| next()).collect(),
        None => {
            let strings = (0..count).map(|index| (0..index % 5).map(|_| next()).collect());
            strings_of(&strings.collect::<Vec<Vec<u8>>>())
        }
    }
}

pub(super) fn strings_of(strings: &[impl AsRef<[u8]>]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for string in strings {
        let string = string.as_ref();
        bytes.extend_from_slice(&(string.len() as u32).to_le_bytes());
        bytes.extend_from_slice(string);
    }
    bytes
}

pub(super) fn some_input(datatype: DataType, shape: &[i64], seed: u64) -> Input<'static> {
    let count = shape.iter().product::<i64>() as usize;
    input("IN", datatype, shape, elements(datatype, count, seed))
}

pub(super) fn int32(values: &[i32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

pub(super) fn int64(values: &[i64]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}
