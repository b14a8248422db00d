//! Writes JSON as RapidJSON's writer does.

use kushi_core::Parameter;

pub fn string(out: &mut Vec<u8>, text: &[u8]) {
    out.push(b'"');
    for &byte in text {
        match byte {
            b'"' => out.extend_from_slice(b"\\\""),
            b'\\' => out.extend_from_slice(b"\\\\"),
            8 => out.extend_from_slice(b"\\b"),
            12 => out.extend_from_slice(b"\\f"),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\t' => out.extend_from_slice(b"\\t"),
            0..0x20 => {
                let hex = |nibble: u8| b"0123456789ABCDEF"[usize::from(nibble)];
                out.extend_from_slice(&[b'\\', b'u', b'0', b'0', hex(byte >> 4), hex(byte & 15)]);
            }
            _ => out.push(byte),
        }
    }
    out.push(b'"');
}

/// What went wrong, as every error of the protocol is written.
pub fn error(message: &str) -> Vec<u8> {
    let mut out = b"{\"error\":".to_vec();
    string(&mut out, message.as_bytes());
    out.push(b'}');
    out
}

pub fn integer(out: &mut Vec<u8>, value: impl itoa::Integer) {
    out.extend_from_slice(itoa::Buffer::new().format(value).as_bytes());
}

/// Of JSON, with its brackets.
pub fn array<T>(out: &mut Vec<u8>, items: impl IntoIterator<Item = T>, item: impl FnMut(&mut Vec<u8>, T)) {
    out.push(b'[');
    list(out, items, item);
    out.push(b']');
}

/// What stands in one.
pub fn list<T>(out: &mut Vec<u8>, items: impl IntoIterator<Item = T>, mut item: impl FnMut(&mut Vec<u8>, T)) {
    for (i, each) in items.into_iter().enumerate() {
        if i > 0 {
            out.push(b',');
        }
        item(out, each);
    }
}

/// What JSON has no number for is nothing.
pub fn parameter(out: &mut Vec<u8>, value: &Parameter) {
    match value {
        Parameter::Bool(value) => out.extend_from_slice(if *value { b"true" } else { b"false" }),
        Parameter::Int(value) => integer(out, *value),
        Parameter::Double(value) if value.is_finite() => double(out, *value),
        Parameter::Double(_) => out.extend_from_slice(b"null"),
        Parameter::String(value) => string(out, value.as_bytes()),
    }
}

pub fn double(out: &mut Vec<u8>, value: f64) {
    if value.is_nan() {
        out.extend_from_slice(b"NaN");
    } else if value.is_infinite() {
        out.extend_from_slice(if value > 0.0 { b"Infinity" } else { b"-Infinity" });
    } else {
        let mut buffer = zmij::Buffer::new();
        let shortest = buffer.format_finite(value).as_bytes();
        match shortest.iter().position(|&byte| byte == b'e') {
            None => out.extend_from_slice(shortest),
            Some(e) => rescale(out, &shortest[..e], &shortest[e + 1..]),
        }
    }
}

/// Lays out the digits of `mantissa`e`exponent` as RapidJSON does: plain up to 21 places before the
/// point and down to six zeros after it, with an exponent beyond.
fn rescale(out: &mut Vec<u8>, mantissa: &[u8], exponent: &[u8]) {
    let exponent: i32 = std::str::from_utf8(exponent).ok().and_then(|text| text.parse().ok()).unwrap_or(0);
    let mantissa = match mantissa.strip_prefix(b"-") {
        Some(rest) => {
            out.push(b'-');
            rest
        }
        None => mantissa,
    };
    let whole = mantissa.iter().position(|&byte| byte == b'.').unwrap_or(mantissa.len());
    let mut digits: Vec<u8> = mantissa.iter().copied().filter(u8::is_ascii_digit).collect();
    while digits.len() > 1 && digits.last() == Some(&b'0') {
        digits.pop();
    }
    // The value is 0.DIGITS times ten to the power of `point`.
    let point = exponent + whole as i32;
    let count = digits.len() as i32;
    let zeros = |out: &mut Vec<u8>, n: i32| out.extend(std::iter::repeat_n(b'0', n as usize));
    if (1..=21).contains(&point) {
        let before = point.min(count) as usize;
        out.extend_from_slice(&digits[..before]);
        zeros(out, (point - count).max(0));
        out.push(b'.');
        out.extend_from_slice(if point < count { &digits[before..] } else { b"0" });
    } else if (-5..=0).contains(&point) {
        out.extend_from_slice(b"0.");
        zeros(out, -point);
        out.extend_from_slice(&digits);
    } else {
        out.push(digits[0]);
        if count > 1 {
            out.push(b'.');
            out.extend_from_slice(&digits[1..]);
        }
        out.push(b'e');
        integer(out, point - 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_doubles_as_rapidjson_does() {
        for (value, expected) in [
            (0.0, "0.0"),
            (-0.0, "-0.0"),
            (1.0, "1.0"),
            (f64::from(0.1_f32), "0.10000000149011612"),
            (1e16, "10000000000000000.0"),
            (1e20, "100000000000000000000.0"),
            (1e21, "1e21"),
            (1.5e300, "1.5e300"),
            (0.000_001, "0.000001"),
            (1e-7, "1e-7"),
            (5e-324, "5e-324"),
            (-1.25e-6, "-0.00000125"),
            (f64::NAN, "NaN"),
            (f64::NEG_INFINITY, "-Infinity"),
        ] {
            let mut out = Vec::new();
            double(&mut out, value);
            assert_eq!(String::from_utf8_lossy(&out), expected);
        }
    }

    #[test]
    fn escapes_control_characters() {
        let mut out = Vec::new();
        string(&mut out, b"a\"\\/\x00\x1f\n\xff");
        assert_eq!(out, b"\"a\\\"\\\\/\\u0000\\u001F\\n\xff\"");
    }
}
