//! The second pass: values out of spans that [`Scanner`](super::Scanner) has found well formed.

use std::borrow::Cow;

use kushi_core::Parameter;

/// A scalar, or the fact that it is none.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value<'a> {
    Bool(bool),
    /// A number as it stands in the text.
    Number(&'a [u8]),
    /// A string in its JSON form, without the quotes.
    String(&'a [u8]),
    Array,
    Object,
    Null,
}

pub fn value(text: &[u8]) -> Value<'_> {
    match text.first() {
        Some(b't') => Value::Bool(true),
        Some(b'f') => Value::Bool(false),
        Some(b'n') | None => Value::Null,
        Some(b'"') => Value::String(&text[1..text.len() - 1]),
        Some(b'[') => Value::Array,
        Some(b'{') => Value::Object,
        Some(_) => Value::Number(text),
    }
}

/// A parameter of the protocol; a list, an object or nothing is none.
pub fn parameter(value: Value<'_>) -> Option<Parameter> {
    match value {
        Value::Bool(value) => Some(Parameter::Bool(value)),
        Value::Number(number) => {
            Some(signed(number).map_or_else(|| Parameter::Double(double(number)), Parameter::Int))
        }
        Value::String(raw) => Some(Parameter::String(text(raw).into_owned())),
        Value::Array | Value::Object | Value::Null => None,
    }
}

/// A string as text; what is no UTF-8 in it is replaced.
pub fn text(raw: &[u8]) -> Cow<'_, str> {
    match unescape(raw) {
        // Nearly all text is right, and found so faster than it is repaired.
        Cow::Borrowed(bytes) => {
            str::from_utf8(bytes).map_or_else(|_| String::from_utf8_lossy(bytes), Cow::Borrowed)
        }
        Cow::Owned(bytes) => Cow::Owned(String::from_utf8_lossy(&bytes).into_owned()),
    }
}

pub fn unescape(raw: &[u8]) -> Cow<'_, [u8]> {
    let Some(first) = raw.iter().position(|&byte| byte == b'\\') else {
        return Cow::Borrowed(raw);
    };
    let mut text = raw[..first].to_vec();
    let mut rest = &raw[first..];
    while let Some((&byte, after)) = rest.split_first() {
        if byte != b'\\' {
            text.push(byte);
            rest = after;
            continue;
        }
        rest = &after[1..];
        match after[0] {
            b'b' => text.push(8),
            b'f' => text.push(12),
            b'n' => text.push(b'\n'),
            b'r' => text.push(b'\r'),
            b't' => text.push(b'\t'),
            b'u' => {
                let mut code = hex4(rest);
                rest = &rest[4..];
                if (0xD800..0xDC00).contains(&code) {
                    code = 0x10000 + (code - 0xD800) * 0x400 + (hex4(&rest[2..]) - 0xDC00);
                    rest = &rest[6..];
                }
                let character = char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER);
                text.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
            }
            other => text.push(other),
        }
    }
    Cow::Owned(text)
}

fn hex4(digits: &[u8]) -> u32 {
    digits[..4].iter().fold(0, |code, &digit| code << 4 | char::from(digit).to_digit(16).unwrap_or(0))
}

pub fn double(number: &[u8]) -> f64 {
    let text = std::str::from_utf8(number).unwrap_or("0");
    // The standard library knows the names "NaN", "Inf" and "Infinity" too.
    text.parse().unwrap_or(f64::NAN)
}

/// `None` for a fraction, an exponent or a value beyond the type: RapidJSON makes those doubles.
pub fn unsigned(number: &[u8]) -> Option<u64> {
    match number.strip_prefix(b"-") {
        None => digits(number),
        Some(rest) => digits(rest).filter(|&magnitude| magnitude == 0),
    }
}

pub fn signed(number: &[u8]) -> Option<i64> {
    match number.strip_prefix(b"-") {
        None => digits(number).and_then(|magnitude| i64::try_from(magnitude).ok()),
        Some(rest) => digits(rest).and_then(|magnitude| 0_i64.checked_sub_unsigned(magnitude)),
    }
}

fn digits(number: &[u8]) -> Option<u64> {
    number.iter().try_fold(0_u64, |value, &digit| {
        if !digit.is_ascii_digit() {
            return None;
        }
        value.checked_mul(10)?.checked_add(u64::from(digit - b'0'))
    })
}

/// The leaves of an array, however it is nested, with the number of arrays around each.
pub struct Leaves<'a> {
    text: &'a [u8],
    at: usize,
    depth: usize,
}

impl<'a> Leaves<'a> {
    pub fn new(array: &'a [u8]) -> Self {
        Self { text: array, at: 0, depth: 0 }
    }
}

impl<'a> Iterator for Leaves<'a> {
    type Item = (usize, Value<'a>);

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let &byte = self.text.get(self.at)?;
            match byte {
                b'[' => self.depth += 1,
                b']' => self.depth -= 1,
                b' ' | b'\n' | b'\r' | b'\t' | b',' => {}
                _ => break,
            }
            self.at += 1;
        }
        let start = self.at;
        let rest = &self.text[start..];
        let length = match rest[0] {
            b'"' => string_length(rest),
            b'{' => {
                // No element is an object; whoever asked stops here.
                self.at = self.text.len();
                return Some((self.depth, Value::Object));
            }
            _ => rest
                .iter()
                .position(|b| matches!(b, b',' | b']' | b' ' | b'\n' | b'\r' | b'\t'))
                .unwrap_or(rest.len()),
        };
        self.at += length;
        Some((self.depth, value(&rest[..length])))
    }
}

fn string_length(text: &[u8]) -> usize {
    let mut at = 1;
    while text[at] != b'"' {
        at += if text[at] == b'\\' { 2 } else { 1 };
    }
    at + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_leaves_at_any_depth() {
        let leaves: Vec<_> = Leaves::new(br#"[[1, -2.5],[ "a\"]b" ,[true]],[]]"#).collect();
        let expected = [
            (2, Value::Number(b"1")),
            (2, Value::Number(b"-2.5")),
            (2, Value::String(br#"a\"]b"#)),
            (3, Value::Bool(true)),
        ];
        assert_eq!(leaves, expected);
    }

    #[test]
    fn tells_integers_from_doubles() {
        assert_eq!(unsigned(b"18446744073709551615"), Some(u64::MAX));
        assert_eq!(unsigned(b"18446744073709551616"), None);
        assert_eq!((unsigned(b"-1"), unsigned(b"-0"), unsigned(b"1.0")), (None, Some(0), None));
        assert_eq!(signed(b"-9223372036854775808"), Some(i64::MIN));
        assert_eq!(signed(b"9223372036854775808"), None);
    }

    #[test]
    fn unescapes_what_json_escapes() {
        assert_eq!(&*unescape(br#"a\n\"\/\u00e9\ud83d\ude00\u0000"#), "a\n\"/é😀\0".as_bytes());
    }
}
