//! Documents that are read, and those that are refused.

use super::*;

fn check(text: &[u8]) -> Result<(), Fault> {
    Scanner::new(text).document(|scanner| scanner.skip().map(drop))
}

#[test]
fn refuses_at_the_offsets_of_rapidjson() {
    use Syntax as S;
    #[rustfmt::skip]
    let table: &[(&[u8], S, usize)] = &[
        (b"", S::Empty, 0), (b"  ", S::Empty, 2), (b"]", S::Empty, 0), (b"{} 1", S::RootNotSingular, 3),
        (b"nul", S::ValueInvalid, 3), (b"nan", S::ValueInvalid, 1), (b"-a", S::ValueInvalid, 1), (b"[1,]", S::ValueInvalid, 3),
        (b"[,1]", S::ValueInvalid, 1), (b"{\"a\":}", S::ValueInvalid, 5), (b"{a:1}", S::MissName, 1), (b"{\"a\":1,}", S::MissName, 7),
        (b"{\"a\" 1}", S::MissColon, 5), (b"{\"a\":1 2}", S::MissCommaOrBrace, 7), (b"[1 2]", S::MissCommaOrBracket, 3),
        (b"\"\\u12G4\"", S::BadHex, 1), (b"\"\\uD800x\"", S::BadSurrogate, 1), (b"\"\\q\"", S::BadEscape, 1),
        (b"\"ab", S::MissQuotation, 3), (b"\"a\0\"", S::MissQuotation, 2), (b"\"a\n\"", S::BadEncoding, 2),
        (b"[1e400]", S::NumberTooBig, 1), (b"1.", S::MissFraction, 2), (b"1e+", S::MissExponent, 3), (b"01", S::RootNotSingular, 1),
        (b"Infx", S::RootNotSingular, 3), (b"tRue", S::ValueInvalid, 1), (b"[", S::ValueInvalid, 1), (b"{", S::MissName, 1),
    ];
    for &(text, what, offset) in table {
        let expected = Err(Fault::Syntax { what, offset });
        assert_eq!(check(text), expected, "{}", String::from_utf8_lossy(text));
    }
}

#[test]
fn accepts_what_rapidjson_accepts() {
    let texts: &[&[u8]] = &[
        b"{}\0garbage",
        b"\xef\xbb\xbf[1, 2.5e3, -0]",
        b"[NaN, Infinity, -Inf]",
        b"\"\xff\\u00e9\\ud83d\\ude00\"",
        b"{\"a\":{\"b\":[{},[]]},\"a\":null}",
        b"123456789012345678901234567890",
        b"1e-400",
    ];
    for text in texts {
        assert_eq!(check(text), Ok(()), "{}", String::from_utf8_lossy(text));
    }
}

#[test]
fn a_string_ends_at_its_first_special_byte_wherever_that_is() {
    for length in 0..20 {
        for place in 0..length {
            for byte in 0..=255_u8 {
                let mut text = vec![b'\x7f'; length];
                text[place] = byte;
                let is_special = byte < 0x20 || byte == b'"' || byte == b'\\';
                assert_eq!(plain_length(&text), if is_special { place } else { length }, "{text:?}");
            }
        }
    }
}

#[test]
fn numbers_that_lead_an_array_are_refused_as_those_behind_other_values_are() {
    let too_large = "9".repeat(400);
    for wrong in ["01", "-", "1.", "1.e5", ".5", "1 2", "", "1e", "-00", "1e400", "+1", "1\x002", &too_large]
    {
        for after in ["", ",5"] {
            let found = |before: &str| {
                let text = format!("[{before}{wrong}{after}]");
                match check(text.as_bytes()) {
                    Err(Fault::Syntax { what, offset }) => (what, offset - before.len()),
                    other => panic!("{text}: {other:?}"),
                }
            };
            for before in ["1,", "-0.5, 12, ", "1e5,7,", "0,[2],3, ", "1,  2\t,3 ,"] {
                assert_eq!(found(before), found("true,"), "{before}{wrong}{after}");
            }
        }
    }
    let large = "9".repeat(300);
    for right in ["0", "-0", "10.25", "1e5", "-1.5E-3", "NaN", "[1]", "\"a\"", &large] {
        assert_eq!(check(format!("[1,2.0, {right},3]").as_bytes()), Ok(()), "{right}");
    }
}

#[test]
fn nesting_is_bounded() {
    let deep = |n: usize| [b"[".repeat(n), b"]".repeat(n)].concat();
    assert_eq!(check(&deep(120)), Ok(()));
    assert_eq!(check(&deep(100_000)), Err(Fault::TooDeep(100)));
    let text = deep(31);
    let shallow = Scanner::with_depth(&text, 10).document(|scanner| scanner.skip().map(drop));
    assert_eq!(shallow, Err(Fault::TooDeep(10)));
}
