//! An ordinary request that lies there whole, as its client sent it, and an answer as it goes out whole.
//!
//! Of what another parser could read in another way nothing is taken for ordinary: whoever reads the
//! unusual reads that too.

use bytes::Bytes;
use hyper::header::{CONNECTION, CONTENT_LENGTH, HeaderMap, HeaderName};
use hyper::{Method, StatusCode};

use super::headers::{is_of_the_connection, passed_on};

const MOST_HEADERS: usize = 64;

/// What of a client's request is ordinary.
pub struct Ordinary<'a> {
    pub method: &'a str,
    pub target: &'a str,
    pub headers: Vec<(&'a [u8], &'a [u8])>,
    /// Behind the head, to the end.
    pub body_at: usize,
    /// Of the body, as it is announced.
    pub missing_bytes: usize,
}

impl<'a> Ordinary<'a> {
    /// `None` unless `data` is one request below `/v2/`, with its whole head, that says nothing of its connection but that
    /// it stays open. The limits are those of whoever reads the unusual.
    pub fn read(data: &'a [u8], max_head_bytes: usize, max_headers: usize) -> Option<Self> {
        let mut room = [httparse::EMPTY_HEADER; MOST_HEADERS];
        let mut head = httparse::Request::new(&mut room);
        // Whoever reads the unusual may skip lines in front of a request.
        let begins = data.first().is_some_and(u8::is_ascii_uppercase);
        let httparse::Status::Complete(body_at) = head.parse(data).ok().filter(|_| begins)? else {
            return None;
        };
        let method =
            head.method.filter(|method| [Method::GET, Method::POST].iter().any(|one| one == method))?;
        let target = head.path.filter(|target| is_plain(target))?;
        let is_usual = head.version == Some(1)
            && body_at <= max_head_bytes
            && head.headers.len() <= max_headers
            && has_whole_line_ends(&data[..body_at]);
        if !is_usual {
            return None;
        }
        let mut length = None;
        let mut headers = Vec::with_capacity(head.headers.len());
        for header in head.headers.iter() {
            let name = HeaderName::from_bytes(header.name.as_bytes()).ok()?;
            if name == CONTENT_LENGTH {
                let digits = header.value.len() <= 9 && header.value.iter().all(u8::is_ascii_digit);
                let found: usize = std::str::from_utf8(header.value).ok().filter(|_| digits)?.parse().ok()?;
                if length.replace(found).is_some() {
                    return None;
                }
            } else if name == CONNECTION {
                header.value.eq_ignore_ascii_case(b"keep-alive").then_some(())?;
            } else if is_of_the_connection(&name) || header.value.iter().any(|&byte| byte >= 0x7f) {
                return None;
            }
            headers.push((header.name.as_bytes(), header.value));
        }
        let missing_bytes = length.unwrap_or(0).checked_sub(data.len() - body_at)?;
        Some(Self { method, target, headers, body_at, missing_bytes })
    }
}

/// A path that means the same to everyone, and maybe a query.
fn is_plain(target: &str) -> bool {
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let is_known = |byte: u8| byte.is_ascii_alphanumeric() || b"/._-~:@,;=+&".contains(&byte);
    path.starts_with("/v2/")
        && path.bytes().all(is_known)
        && !path.contains("..")
        && query.bytes().all(|byte| is_known(byte) || b"%?".contains(&byte))
}

/// Both bytes, always together.
fn has_whole_line_ends(head: &[u8]) -> bool {
    head.windows(2).all(|two| (two[0] == b'\r') == (two[1] == b'\n'))
}

/// The bytes of an answer on a connection that stays open, with the lines `before` in front of its headers.
/// `None` where the body is not framed by its length.
pub(super) fn written(status: u16, headers: &HeaderMap, body: &[Bytes], before: &[u8]) -> Option<Vec<u8>> {
    let length: usize = body.iter().map(Bytes::len).sum();
    let reason = StatusCode::from_u16(status).ok()?.canonical_reason()?;
    let mut bytes = Vec::with_capacity(512 + before.len() + length);
    bytes.extend_from_slice(b"HTTP/1.1 ");
    bytes.extend_from_slice(status.to_string().as_bytes());
    bytes.push(b' ');
    bytes.extend_from_slice(reason.as_bytes());
    bytes.extend_from_slice(b"\r\n");
    bytes.extend_from_slice(before);
    let mut is_framed = false;
    for (name, value) in passed_on(status, headers) {
        if name == CONTENT_LENGTH {
            is_framed = value.to_str().is_ok_and(|text| text.parse() == Ok(length));
        }
        bytes.extend_from_slice(name.as_ref());
        bytes.extend_from_slice(b": ");
        bytes.extend_from_slice(value.as_bytes());
        bytes.extend_from_slice(b"\r\n");
    }
    bytes.extend_from_slice(b"\r\n");
    for piece in body {
        bytes.extend_from_slice(piece);
    }
    is_framed.then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_ordinary(data: &[u8]) -> bool {
        Ordinary::read(data, 1024, 5).is_some_and(|read| read.missing_bytes == 0)
    }

    #[test]
    fn a_whole_request_of_the_protocol_is_ordinary() {
        assert!(is_ordinary(b"GET /v2/health/ready HTTP/1.1\r\nHost: a\r\n\r\n"));
        let data = b"POST /v2/models/m/infer?a=%20 HTTP/1.1\r\nhost: a\r\nConnection: Keep-Alive\r\nContent-Length: 3\r\n\r\nabc";
        let read = Ordinary::read(data, 1024, 5).unwrap();
        assert_eq!((read.method, read.target), ("POST", "/v2/models/m/infer?a=%20"));
        assert_eq!(&data[read.body_at..], b"abc");
        assert_eq!((read.headers.len(), read.missing_bytes), (3, 0));
        assert_eq!(Ordinary::read(&data[..data.len() - 3], 1024, 5).unwrap().missing_bytes, 3);
    }

    #[test]
    fn what_others_may_read_otherwise_is_not_ordinary() {
        let lines: [&[u8]; 17] = [
            b"Content-Length: 2\r\n",
            b"Content-Length: 4\r\n",
            b"Content-Length: +3\r\n",
            b"Content-Length: 3, 3\r\n",
            b"Content-Length: 3\r\nContent-Length: 3\r\n",
            b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n",
            b"Transfer-Encoding: chunked\r\n",
            b"Content-Length: 3\r\nConnection: close\r\n",
            b"Content-Length: 3\r\nConnection: keep-alive, upgrade\r\n",
            b"Content-Length: 3\r\nUpgrade: h2c\r\n",
            b"Content-Length: 3\r\nExpect: 100-continue\r\n",
            b"Content-Length: 3\r\nTE: trailers\r\n",
            b"Content-Length: 3\r\na: b\nc: d\r\n",
            b"Content-Length: 3\r\na: b\r\n c\r\n",
            b"Content-Length: 3\r\na : b\r\n",
            b"Content-Length: 3\r\na: \xff\r\n",
            b"Content-Length: 3\r\na: b\r\na: b\r\na: b\r\na: b\r\na: b\r\n",
        ];
        for line in lines {
            let data = [b"POST /v2/a HTTP/1.1\r\n", line, b"\r\nabc"].concat();
            assert!(!is_ordinary(&data), "{}", data.escape_ascii());
        }
    }

    #[test]
    fn other_beginnings_are_not_ordinary() {
        for begins in [
            "GET /v2/a HTTP/1.0",
            "HEAD /v2/a HTTP/1.1",
            "get /v2/a HTTP/1.1",
            "GET  /v2/a HTTP/1.1",
            "\r\nGET /v2/a HTTP/1.1",
            "GET /v2 HTTP/1.1",
            "GET /v3/a HTTP/1.1",
            "GET /v2/../a HTTP/1.1",
            "GET /v2/%2e%2e/a HTTP/1.1",
            "GET /v2/a#b HTTP/1.1",
            "GET http://a/v2/a HTTP/1.1",
            "CONNECT /v2/a HTTP/1.1",
        ] {
            assert!(!is_ordinary(format!("{begins}\r\nHost: a\r\n\r\n").as_bytes()), "{begins}");
        }
        assert!(!is_ordinary(b"GET /v2/a HTTP/1.1\r\n\r\nGET /v2/a HTTP/1.1\r\n\r\n"));
        assert!(!is_ordinary(b"GET /v2/a HTTP/1.1\r\nHost: "));
    }
}
