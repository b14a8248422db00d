//! What a server's refusal, a broken answer and a lost connection become: errors of the core's kinds.

use std::error::Error as _;
use std::fmt::Display;
use std::io;

use hyper::header::{HeaderMap, LOCATION};
use hyper::{StatusCode, Version};
use kushi_core::{AskedVersion, Error, ErrorKind};
use kushi_oip::json::{Scanner, read};

use super::body::ReadError;
use super::path;
use super::server::Reply;
use crate::address::Address;
use crate::kinds::{self, unavailable};
use crate::tls;

/// How much of a body that is no answer of the protocol is shown.
const SHOWN_BYTES: usize = 200;
/// What Triton, servers on `FastAPI` and ours say to a path that is no route of theirs.
const NO_ROUTE: &str = "Not Found";
const ADVICE: &str = "give the client the address of the server";

/// The error that an answer of any status but 200 to a request for `path` stands for.
pub(super) fn refusal(address: &Address, path: &str, reply: &Reply) -> Error {
    let status = reply.status;
    let text = error_text(&reply.body);
    if let (Some(NO_ROUTE), Some(label)) = (text.as_deref(), path::label(path)) {
        // A model without labels has no such routes.
        return AskedVersion::no_number(label);
    }
    let message = match &text {
        Some(text) if text == NO_ROUTE => {
            format!("{address} does not know this route of the protocol: {text}; {ADVICE}, without /v2")
        }
        Some(text) if !text.is_empty() => text.clone(),
        _ if status.is_redirection() => {
            let place = reply.headers.get(LOCATION).map_or_else(String::new, |place| {
                format!(" to '{}'", String::from_utf8_lossy(place.as_bytes()))
            });
            format!("{address} redirects{place}, which is not followed: {ADVICE}")
        }
        _ => format!("{address} answered with the status {status}{}", Shown(&reply.body)),
    };
    Error::new(kind(status, &reply.headers, text.as_deref().unwrap_or(&message)), message)
}

/// The kind of a failure: what our own server names, otherwise what status and text mean in Triton.
pub(super) fn kind(status: StatusCode, headers: &HeaderMap, text: &str) -> ErrorKind {
    kinds::named(headers, |kind| kind.http_status() == status.as_u16())
        .unwrap_or_else(|| foreign_kind(status, text))
}

fn foreign_kind(status: StatusCode, text: &str) -> ErrorKind {
    match status.as_u16() {
        401 | 403 => ErrorKind::AccessDenied,
        404 if text == NO_ROUTE => ErrorKind::Unsupported,
        404 => ErrorKind::ModelNotFound,
        408 | 504 => ErrorKind::DeadlineExceeded,
        429 => ErrorKind::Overloaded,
        499 | 503 => unavailable(text),
        502 => ErrorKind::ConnectionLost,
        300..=399 | 405 | 501 => ErrorKind::Unsupported,
        400..=499 => ErrorKind::InvalidInput,
        _ => ErrorKind::EngineFailed,
    }
}

/// The member `error` of a JSON object; `detail` is what servers on `FastAPI` call it.
fn error_text(body: &[u8]) -> Option<String> {
    let mut found = None;
    let mut scanner = Scanner::new(body);
    let read_whole = scanner.document(|scanner| {
        if !scanner.is_object() {
            return scanner.skip().map(drop);
        }
        scanner.object(|scanner, key| {
            let span = scanner.skip()?;
            if let (true, read::Value::String(raw)) =
                (key.is("error") || key.is("detail"), read::value(&body[span]))
            {
                found.get_or_insert_with(|| read::text(raw).into_owned());
            }
            Ok(())
        })
    });
    read_whole.ok().and(found)
}

struct Shown<'a>(&'a [u8]);

impl Display for Shown<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let text = String::from_utf8_lossy(&self.0[..self.0.len().min(SHOWN_BYTES)]);
        let words: Vec<&str> = text.split_whitespace().collect();
        if words.is_empty() {
            return f.write_str(" and no text");
        }
        let more = if self.0.len() > SHOWN_BYTES { "…" } else { "" };
        write!(f, " and no error of the protocol: {}{more}", words.join(" "))
    }
}

/// An answer with the status 200 that is not what the protocol says.
pub(super) fn unreadable(address: &Address, what: impl Display) -> Error {
    Error::new(ErrorKind::EngineFailed, format!("the answer of {address} cannot be read: {what}"))
}

/// Why an exchange on an open connection ended without an answer.
pub(super) fn lost(address: &Address, error: &hyper::Error) -> Error {
    if error.is_parse_too_large() {
        return unreadable(address, "its head is too large");
    }
    if error.is_parse_version_h2() {
        return unreadable(address, format_args!("it speaks HTTP/2, expected {:?}", Version::HTTP_11));
    }
    let cause = error.source().and_then(|source| source.downcast_ref::<io::Error>());
    if let Some(what) = cause.and_then(tls::error_text) {
        let text = format!("the connection to {address} was lost before the answer was complete: {what}");
        return Error::new(ErrorKind::ConnectionLost, text);
    }
    let cause = cause.map(io::Error::kind);
    // How hyper words a chunk that is none.
    let garbage = matches!(cause, Some(io::ErrorKind::InvalidInput | io::ErrorKind::InvalidData));
    if error.is_parse() || garbage {
        let advice = if address.secure { "" } else { "; where it speaks TLS, its url begins with https://" };
        return unreadable(address, format_args!("it is no HTTP/1.1 ({error}){advice}"));
    }
    let what = match cause {
        Some(io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe) => "the server reset it",
        Some(io::ErrorKind::TimedOut) => "the server has been silent for too long",
        _ => "the server closed it",
    };
    let text = format!("the connection to {address} was lost before the answer was complete: {what}");
    Error::new(ErrorKind::ConnectionLost, text)
}

pub(super) fn unread(address: &Address, error: &ReadError) -> Error {
    match error {
        ReadError::Broken(error) => lost(address, error),
        ReadError::TooLarge(max) => unreadable(
            address,
            format_args!("it has more than {max} bytes, which is the limit of the client"),
        ),
        ReadError::NoMemory(bytes) => {
            unreadable(address, format_args!("there is no memory for its {bytes} bytes"))
        }
    }
}
