//! How a call ends: a code, and a text.

use std::fmt::Write;

use http::HeaderMap;
use http::header::HeaderValue;
use kushi_core::{Error, ErrorKind};

/// Codes that no kind of error has.
pub(crate) const INVALID_ARGUMENT: u8 = 3;
pub(crate) const DEADLINE_EXCEEDED: u8 = 4;
pub(crate) const NOT_FOUND: u8 = 5;
pub(crate) const RESOURCE_EXHAUSTED: u8 = 8;
pub(crate) const UNIMPLEMENTED: u8 = 12;
pub(crate) const INTERNAL: u8 = 13;

/// Of a text, as it is written: clients take 8 KiB of metadata, and lose the whole status where there is more.
const MOST_TEXT_BYTES: usize = 6 << 10;
const ELLIPSIS: &str = "%E2%80%A6";

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Status {
    code: u8,
    text: String,
    /// Of an error of the core, for our own clients: one code stands for several kinds.
    kind: Option<ErrorKind>,
}

impl Status {
    pub(crate) fn ok() -> Self {
        Self { code: 0, text: String::new(), kind: None }
    }

    pub(crate) fn new(code: u8, text: impl Into<String>) -> Self {
        Self { code, text: text.into(), kind: None }
    }

    pub(crate) fn deadline_exceeded() -> Self {
        Self::new(DEADLINE_EXCEEDED, "Deadline Exceeded")
    }

    /// Of a message for which there is no room even where there is no other.
    pub(crate) fn too_large(error: Error) -> Self {
        Self::new(RESOURCE_EXHAUSTED, error.message)
    }

    pub(crate) fn is_unimplemented(&self) -> bool {
        self.code == UNIMPLEMENTED
    }

    pub(crate) fn into_parts(self) -> (i32, String) {
        (self.code.into(), self.text)
    }

    pub(crate) fn write(&self, headers: &mut HeaderMap) {
        headers.insert("grpc-status", HeaderValue::from(u16::from(self.code)));
        if !self.text.is_empty()
            && let Ok(text) = HeaderValue::try_from(encoded(&self.text))
        {
            headers.insert("grpc-message", text);
        }
        if let Some(kind) = self.kind {
            headers.insert("kushi-error", HeaderValue::from_static(kind.name()));
        }
    }
}

impl From<Error> for Status {
    fn from(error: Error) -> Self {
        Self { kind: Some(error.kind), ..Self::new(error.kind.grpc_code() as u8, error.message) }
    }
}

/// As gRPC writes texts: what is no printable ASCII character by its bytes. A long one is cut.
fn encoded(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len().min(MOST_TEXT_BYTES));
    for character in text.chars() {
        let before = encoded.len();
        if matches!(character, ' '..='~') && character != '%' {
            encoded.push(character);
        } else {
            for byte in character.encode_utf8(&mut [0; 4]).bytes() {
                let _ = write!(encoded, "%{byte:02X}");
            }
        }
        if encoded.len() > MOST_TEXT_BYTES - ELLIPSIS.len() {
            encoded.truncate(before);
            encoded.push_str(ELLIPSIS);
            break;
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_written_as_grpc_does() {
        assert_eq!(encoded("model 'm' is 100% 串\n"), "model 'm' is 100%25 %E4%B8%B2%0A");
    }

    #[test]
    fn a_long_text_is_cut_behind_a_whole_character() {
        for text in ["a", "串", "aé"] {
            let long = encoded(&text.repeat(32 << 10));
            assert!((MOST_TEXT_BYTES - 20..=MOST_TEXT_BYTES).contains(&long.len()), "{}", long.len());
            let whole = encoded(text);
            let repeated = long.strip_suffix(ELLIPSIS).unwrap();
            assert!(repeated.trim_start_matches(&whole).len() < whole.len(), "{text}");
        }
        let most = "a".repeat(MOST_TEXT_BYTES - ELLIPSIS.len());
        assert_eq!(encoded(&most), most);
    }

    #[test]
    fn a_call_that_went_well_says_no_more_than_that() {
        let mut headers = HeaderMap::new();
        Status::ok().write(&mut headers);
        assert_eq!((headers.len(), &headers["grpc-status"]), (1, &HeaderValue::from_static("0")));
        Status::from(Error::invalid("no")).write(&mut headers);
        assert_eq!(
            (&headers["grpc-status"], &headers["grpc-message"], &headers["kushi-error"]),
            (&"3".parse().unwrap(), &"no".parse().unwrap(), &"invalid_input".parse().unwrap())
        );
    }
}
