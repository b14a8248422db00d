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

/// As gRPC writes texts: what is no printable ASCII character by its bytes.
fn encoded(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if matches!(byte, b' '..=b'~') && byte != b'%' {
            encoded.push(char::from(byte));
        } else {
            let _ = write!(encoded, "%{byte:02X}");
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
