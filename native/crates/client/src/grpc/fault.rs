//! What a status, a broken answer and a lost connection become: errors of the core's kinds.

use std::fmt::Display;
use std::io;

use h2::Reason;
use hyper::StatusCode;
use hyper::header::HeaderMap;
use kushi_core::{Error, ErrorKind};
use percent_encoding::percent_decode;

use super::incoming::IncomingFault;
use crate::address::Address;
use crate::kinds::{self, unavailable};
use crate::tls;

/// How a call has ended, if these headers say so: the error that its status stands for.
pub(super) fn status(headers: &HeaderMap) -> Option<Result<(), Error>> {
    let code = headers.get("grpc-status")?;
    let code = code.to_str().ok().and_then(|code| code.parse().ok()).unwrap_or(UNKNOWN);
    if code == 0 {
        return Some(Ok(()));
    }
    let text = headers.get("grpc-message").map_or(&[][..], |text| text.as_bytes());
    let text = percent_decode(text).decode_utf8_lossy().into_owned();
    let kind = kinds::named(headers, |kind| kind.grpc_code() as u32 == code)
        .unwrap_or_else(|| foreign_kind(code, &text));
    let text = if text.is_empty() {
        format!("the server answered with the status {code} and no text")
    } else {
        text
    };
    Some(Err(Error::new(kind, text)))
}

const UNKNOWN: u32 = 2;

fn foreign_kind(code: u32, text: &str) -> ErrorKind {
    match code {
        // Nobody here has cancelled: the server gave the request up, as it does when it closes.
        1 => ErrorKind::ShuttingDown,
        3 | 6 | 9 | 10 | 11 => ErrorKind::InvalidInput,
        4 => ErrorKind::DeadlineExceeded,
        5 => ErrorKind::ModelNotFound,
        7 | 16 => ErrorKind::AccessDenied,
        8 => ErrorKind::Overloaded,
        12 => ErrorKind::Unsupported,
        14 => unavailable(text),
        _ => ErrorKind::EngineFailed,
    }
}

/// An answer of another status of HTTP than 200: of a proxy, or of what is no gRPC server.
pub(super) fn other_status(address: &Address, status: StatusCode) -> Error {
    let kind = match status.as_u16() {
        401 | 403 => ErrorKind::AccessDenied,
        404 => ErrorKind::Unsupported,
        429 | 503 => ErrorKind::Overloaded,
        502 | 504 => ErrorKind::ConnectionLost,
        _ => ErrorKind::EngineFailed,
    };
    Error::new(kind, format!("{address} answered with the HTTP status {status}, which no gRPC server does"))
}

/// An answer that is not what the protocol says.
pub(super) fn unreadable(address: &Address, what: impl Display) -> Error {
    Error::new(ErrorKind::EngineFailed, format!("the answer of {address} cannot be read: {what}"))
}

pub(super) fn unread(address: &Address, fault: &IncomingFault) -> Error {
    match fault {
        IncomingFault::Broken(error) => lost(address, error, true),
        IncomingFault::Compressed => unreadable(address, "it is compressed, which was not asked for"),
        IncomingFault::TooLarge(max) => unreadable(
            address,
            format_args!("it has more than {max} bytes, which is the limit of the client"),
        ),
        IncomingFault::CutShort => unreadable(address, "it ends in the midst of a message"),
    }
}

pub(super) fn silent(address: &Address) -> Error {
    let text = format!(
        "cannot connect to {address}: no answer in time; start the server, or give the client its address"
    );
    Error::new(ErrorKind::ConnectionLost, text)
}

/// Why a call on an open connection ended without an answer.
/// `has_answered`: the server has spoken gRPC on it before.
pub(super) fn lost(address: &Address, error: &h2::Error, has_answered: bool) -> Error {
    let cause = error.get_io();
    if let Some(what) = cause.and_then(tls::error_text) {
        let text = format!("the connection to {address} was lost before the answer was complete: {what}");
        return Error::new(ErrorKind::ConnectionLost, text);
    }
    let is_garbage = !error.is_remote()
        && matches!(error.reason(), Some(Reason::PROTOCOL_ERROR | Reason::FRAME_SIZE_ERROR));
    if is_garbage {
        let advice = if address.secure { "" } else { "; where it speaks TLS, its url begins with grpcs://" };
        return unreadable(
            address,
            format_args!("it is no HTTP/2 ({error}); gRPC has a port of its own{advice}"),
        );
    }
    let what = match (cause.map(io::Error::kind), error.reason()) {
        (Some(io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe), _) => {
            "the server reset it".to_owned()
        }
        (Some(io::ErrorKind::TimedOut), _) => "the server has been silent for too long".to_owned(),
        (None, Some(reason)) => format!("the server ended it ({reason})"),
        _ => "the server closed it".to_owned(),
    };
    let advice =
        if has_answered { "" } else { "; gRPC has a port of its own: does the server speak it there?" };
    let text = format!("the connection to {address} was lost before the answer was complete: {what}{advice}");
    Error::new(ErrorKind::ConnectionLost, text)
}

#[cfg(test)]
mod tests {
    use hyper::header::HeaderValue;

    use super::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        pairs.iter().map(|&(name, value)| (name.parse().unwrap(), HeaderValue::from_static(value))).collect()
    }

    #[test]
    fn a_status_is_an_error_of_its_kind() {
        assert_eq!(status(&headers(&[("grpc-status", "0")])), Some(Ok(())));
        assert_eq!(status(&HeaderMap::new()), None);
        for (code, text, kind) in [
            ("3", "expected 1 input", ErrorKind::InvalidInput),
            ("5", "unknown model", ErrorKind::ModelNotFound),
            ("7", "no", ErrorKind::AccessDenied),
            ("14", "Exceeds maximum queue size", ErrorKind::Overloaded),
            ("14", "Model 'm' is not at ready state", ErrorKind::ModelNotReady),
            ("99", "what", ErrorKind::EngineFailed),
            ("x", "what", ErrorKind::EngineFailed),
        ] {
            let read = status(&headers(&[("grpc-status", code), ("grpc-message", text)]));
            assert_eq!(read, Some(Err(Error::new(kind, text))), "{code} {text}");
        }
    }

    #[test]
    fn our_own_server_names_the_kind() {
        let read = |kind| {
            let pairs = [("grpc-status", "14"), ("grpc-message", "100%25 \u{0}"), ("kushi-error", kind)];
            let pairs: Vec<_> = pairs.into_iter().filter(|(_, value)| !value.contains('\u{0}')).collect();
            status(&headers(&pairs)).unwrap().unwrap_err().kind
        };
        assert_eq!(read("shutting_down"), ErrorKind::ShuttingDown);
        assert_eq!(read("cancelled"), ErrorKind::ShuttingDown);
        assert_eq!(read("of the future"), ErrorKind::Overloaded);
    }

    #[test]
    fn a_text_is_read_as_grpc_writes_it() {
        let read = status(&headers(&[("grpc-status", "3"), ("grpc-message", "100%25 %E4%B8%B2%0A%zz")]));
        assert_eq!(read, Some(Err(Error::invalid("100% 串\n%zz"))));
    }
}
