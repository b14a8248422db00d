//! What went wrong, as clients of OpenAI's API read it.

use hyper::header::{HeaderName, HeaderValue, RETRY_AFTER};
use kushi_core::{Error, ErrorKind};
use kushi_oip::json::write;

use crate::answer::{self, HttpAnswer};

/// The name of the kind of an error.
const ERROR: HeaderName = HeaderName::from_static("kushi-error");

pub(super) fn answer(error: &Error) -> HttpAnswer {
    let status = error.kind.openai_status();
    let mut body = Vec::new();
    write(&mut body, error);
    let mut answer = answer::json(status, body);
    let headers = answer.headers_mut();
    headers.insert(ERROR, HeaderValue::from_static(error.kind.name()));
    if error.kind.retryable() {
        headers.insert(RETRY_AFTER, HeaderValue::from_static("1"));
    }
    answer
}

pub(super) fn write(body: &mut Vec<u8>, error: &Error) {
    let kind = match error.kind.openai_status() {
        429 => "rate_limit_error",
        500.. => "server_error",
        _ => "invalid_request_error",
    };
    let code = if error.kind == ErrorKind::InvalidInput { None } else { Some(error.kind.name()) };
    body.extend_from_slice(b"{\"error\":{\"message\":");
    // no client of these routes gives its requests names
    let text = error.message.strip_prefix("[request id: <id_unknown>] ").unwrap_or(&error.message);
    write::string(body, text.as_bytes());
    body.extend_from_slice(b",\"type\":");
    write::string(body, kind.as_bytes());
    body.extend_from_slice(b",\"param\":null,\"code\":");
    match code {
        Some(code) => write::string(body, code.as_bytes()),
        None => body.extend_from_slice(b"null"),
    }
    body.extend_from_slice(b"}}");
}
