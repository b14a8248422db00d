//! What management answers: a status, and JSON, text or nothing.

use bytes::Bytes;
use kushi_core::{Error, ErrorKind};

use crate::json::write;

#[derive(Debug)]
pub struct Reply {
    pub status: u16,
    /// Of a failure; a status of 400 that says "not well" has none.
    pub kind: Option<ErrorKind>,
    /// JSON, or empty.
    pub body: Bytes,
    /// The body is plain text.
    pub text: bool,
    /// The method that the path takes, where another one was tried.
    pub allow: Option<&'static str>,
}

impl Reply {
    pub fn json(body: impl Into<Bytes>) -> Self {
        Self { body: body.into(), ..Self::empty(200) }
    }

    pub fn text(body: String) -> Self {
        Self { body: body.into(), text: true, ..Self::empty(200) }
    }

    pub fn empty(status: u16) -> Self {
        Self { status, kind: None, body: Bytes::new(), text: false, allow: None }
    }

    pub fn error(error: &Error) -> Self {
        Self::refusal(error.kind.http_status(), error.kind, &error.message)
    }

    pub fn not_found() -> Self {
        Self::refusal(404, ErrorKind::Unsupported, "Not Found")
    }

    pub fn wrong_method(allowed: &'static str) -> Self {
        let refusal = Self::refusal(405, ErrorKind::Unsupported, "Method Not Allowed");
        Self { allow: Some(allowed), ..refusal }
    }

    pub fn refusal(status: u16, kind: ErrorKind, text: &str) -> Self {
        let mut body = b"{\"error\":".to_vec();
        write::string(&mut body, text.as_bytes());
        body.push(b'}');
        Self { kind: Some(kind), body: body.into(), ..Self::empty(status) }
    }
}

impl From<Result<(), Error>> for Reply {
    fn from(done: Result<(), Error>) -> Self {
        match done {
            Ok(()) => Self::empty(200),
            Err(error) => Self::error(&error),
        }
    }
}
