//! The elements of a tensor as Triton's traces have them: in a row, separated by commas.

use std::fmt::{Display, Write};

use kushi_core::DataType;

pub(crate) fn write(out: &mut String, datatype: DataType, bytes: &[u8]) {
    match datatype {
        DataType::Bool => each(out, bytes, |[byte]: [u8; 1]| u8::from(byte != 0)),
        DataType::Uint8 => each(out, bytes, |[byte]: [u8; 1]| byte),
        DataType::Int8 => each(out, bytes, i8::from_le_bytes),
        DataType::Uint16 => each(out, bytes, u16::from_le_bytes),
        DataType::Int16 => each(out, bytes, i16::from_le_bytes),
        DataType::Uint32 => each(out, bytes, u32::from_le_bytes),
        DataType::Int32 => each(out, bytes, i32::from_le_bytes),
        DataType::Uint64 => each(out, bytes, u64::from_le_bytes),
        DataType::Int64 => each(out, bytes, i64::from_le_bytes),
        DataType::Fp32 => each(out, bytes, f32::from_le_bytes),
        DataType::Fp64 => each(out, bytes, f64::from_le_bytes),
        DataType::Bytes => texts(out, bytes),
        // Triton has no text for them.
        DataType::Fp16 | DataType::Bf16 => {}
    }
}

fn each<const SIZE: usize, T: Display>(out: &mut String, bytes: &[u8], read: impl Fn([u8; SIZE]) -> T) {
    for (index, &element) in bytes.as_chunks().0.iter().enumerate() {
        let comma = if index == 0 { "" } else { "," };
        // A text takes all.
        let _ = write!(out, "{comma}{}", read(element));
    }
}

fn texts(out: &mut String, mut bytes: &[u8]) {
    let mut comma = "";
    while let Some((length, rest)) = bytes.split_first_chunk() {
        let length = u32::from_le_bytes(*length) as usize;
        let Some((text, rest)) = rest.split_at_checked(length) else { return };
        let _ = write!(out, "{comma}\"{}\"", String::from_utf8_lossy(text));
        (bytes, comma) = (rest, ",");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(datatype: DataType, bytes: &[u8]) -> String {
        let mut out = String::new();
        write(&mut out, datatype, bytes);
        out
    }

    #[test]
    fn numbers_are_written_so_that_they_read_back() {
        assert_eq!(text(DataType::Bool, &[0, 1, 7]), "0,1,1");
        assert_eq!(text(DataType::Int8, &[255, 1]), "-1,1");
        let floats: Vec<u8> = [0.1_f32, 1.0, f32::NAN].iter().flat_map(|one| one.to_le_bytes()).collect();
        assert_eq!(text(DataType::Fp32, &floats), "0.1,1,NaN");
        assert_eq!(text(DataType::Int64, &i64::MIN.to_le_bytes()), "-9223372036854775808");
        assert_eq!(text(DataType::Fp16, &[0, 60]), "");
        assert_eq!(text(DataType::Fp64, &[]), "");
    }

    #[test]
    fn strings_stand_in_quotes_up_to_a_cut() {
        assert_eq!(text(DataType::Bytes, b"\x01\0\0\0a\x02\0\0\0b\""), r#""a","b"""#);
        assert_eq!(text(DataType::Bytes, b"\x01\0\0\0a\xff\xff\xff\xffb"), "\"a\"");
        assert_eq!(text(DataType::Bytes, b"\x01\0\0\0\xff"), "\"\u{fffd}\"");
    }
}
