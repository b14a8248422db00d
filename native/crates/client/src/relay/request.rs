//! A request as it came, and as it goes on.

use bytes::Bytes;
use hyper::header::{
    CONNECTION, CONTENT_LENGTH, HOST, HeaderMap, HeaderName, HeaderValue, TRANSFER_ENCODING,
};
use hyper::http::uri::PathAndQuery;
use hyper::{Method, Uri};

use super::headers::{is_of_the_connection, named};
use super::pieces::{Misfit, OutgoingPieces, Pieces};

/// The longest that hyper takes.
const TARGET_BYTES: usize = u16::MAX as usize - 1;

/// How a server is asked that is not the one which the client meant.
#[derive(Clone, Debug, Default)]
pub struct Destination {
    /// In the place of the client's.
    host: Option<HeaderValue>,
    /// In front of every path.
    prefix: String,
}

impl Destination {
    pub fn new(host: Option<&[u8]>, prefix: &str) -> Result<Self, Refused> {
        let host = host.map(HeaderValue::from_bytes).transpose();
        let host = host.map_err(|_| Refused::malformed("the host is no value of a header"))?;
        Ok(Self { host, prefix: prefix.to_owned() })
    }
}

/// A request that no server would take.
#[derive(Debug, PartialEq, Eq)]
pub struct Refused {
    pub status: u16,
    pub text: String,
}

impl Refused {
    fn malformed(text: impl Into<String>) -> Self {
        Self { status: 400, text: text.into() }
    }
}

pub struct Request {
    pub(super) message: hyper::Request<OutgoingPieces>,
    pub(super) pieces: Pieces,
}

impl Request {
    /// `body` is what has come of it, `is_complete` whether that is all.
    pub fn new<'a>(
        method: &str,
        target: &[&[u8]],
        headers: impl IntoIterator<Item = (&'a [u8], &'a [u8])>,
        destination: &Destination,
        body: Bytes,
        is_complete: bool,
    ) -> Result<Self, Refused> {
        let method = method_of(method)?;
        let uri = uri_of(target, destination)?;
        let mut passed = HeaderMap::with_capacity(16);
        if let Some(host) = &destination.host {
            passed.insert(HOST, host.clone());
        }
        let mut length = None;
        let mut connection: Vec<&[u8]> = Vec::new();
        let mut is_chunked = false;
        for (name, value) in headers {
            let name = HeaderName::from_bytes(name).map_err(|_| {
                Refused::malformed(format!("'{}' is no name of a header", name.escape_ascii()))
            })?;
            if name == CONTENT_LENGTH {
                let found = length_of(value)?;
                if length.replace(found).is_some() {
                    return Err(Refused::malformed("the request has more than one content-length"));
                }
            } else if name == CONNECTION {
                connection.push(value);
            } else if name == TRANSFER_ENCODING {
                is_chunked = true;
            } else if !(is_of_the_connection(&name) || (name == HOST && destination.host.is_some())) {
                let value = HeaderValue::from_bytes(value).map_err(|_| {
                    Refused::malformed(format!("the header '{name}' has a value that is none"))
                })?;
                let appended = passed.try_append(name, value);
                appended
                    .map_err(|_| Refused { status: 431, text: "the request has too many headers".into() })?;
            }
        }
        for name in named(connection.into_iter()).iter().filter(|&name| name != HOST) {
            passed.remove(name);
        }
        if is_chunked && length.is_some() {
            return Err(Refused::malformed("the request has both a content-length and a transfer-encoding"));
        }
        let pieces = match length {
            Some(length) => {
                if (body.len() as u64) > length {
                    return Err(Refused::malformed(Misfit::Long.to_string()));
                }
                if is_complete && (body.len() as u64) < length {
                    return Err(Refused::malformed(Misfit::Short.to_string()));
                }
                passed.insert(CONTENT_LENGTH, length.into());
                Pieces::new(Some(length), body, is_complete)
            }
            None if body.is_empty() && is_complete => Pieces::new(Some(0), body, true),
            None => {
                passed.insert(TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
                Pieces::new(None, body, is_complete)
            }
        };
        let mut message = hyper::Request::new(pieces.outgoing());
        *message.method_mut() = method;
        *message.uri_mut() = uri;
        *message.headers_mut() = passed;
        Ok(Self { message, pieces })
    }
}

fn method_of(text: &str) -> Result<Method, Refused> {
    let method = Method::from_bytes(text.as_bytes()).ok().filter(|method| *method != Method::CONNECT);
    method
        .ok_or_else(|| Refused::malformed(format!("'{}' is no method for this server", text.escape_debug())))
}

fn uri_of(target: &[&[u8]], destination: &Destination) -> Result<Uri, Refused> {
    let mut whole = Vec::with_capacity(target.iter().map(|part| part.len()).sum::<usize>() + 1);
    whole.extend_from_slice(destination.prefix.as_bytes());
    for part in target {
        whole.extend_from_slice(part);
    }
    if whole.len() > TARGET_BYTES {
        let text = format!("the target of the request is longer than {TARGET_BYTES} bytes");
        return Err(Refused { status: 414, text });
    }
    let is_path = whole.first() == Some(&b'/');
    let parsed = PathAndQuery::from_maybe_shared(Bytes::from(whole)).ok().filter(|_| is_path);
    parsed.map(Uri::from).ok_or_else(|| Refused::malformed("the target of the request is no path"))
}

fn length_of(value: &[u8]) -> Result<u64, Refused> {
    let digits =
        std::str::from_utf8(value).ok().filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
    digits.and_then(|digits| digits.parse().ok()).ok_or_else(|| {
        Refused::malformed(format!("the content-length is '{}', expected a number", value.escape_ascii()))
    })
}
