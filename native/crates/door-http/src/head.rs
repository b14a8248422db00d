//! What a client hears whose head does not come, or cannot be read: hyper has no words for either, both are written
//! past it. And what hyper reads in a head and is refused here.

use hyper::HeaderMap;
use hyper::header::TRANSFER_ENCODING;
use kushi_core::{Error, ErrorKind};
use kushi_oip::json::write;

use crate::limits::HttpLimits;

/// The longest that hyper takes, whatever a head may have.
const TARGET_BYTES: u16 = u16::MAX - 1;
/// What hyper writes by itself is no longer than this, and says so.
const HYPERS_BYTES: usize = 256;
const HYPERS_END: &[u8] = b"\r\n\r\n";
const NO_BODY: &[u8] = b"content-length: 0\r\n";

pub(crate) fn timed_out() -> Vec<u8> {
    let text = "the head of the request did not arrive in time (--http-head-timeout-secs)";
    let (headers, body) = refusal(ErrorKind::DeadlineExceeded, text);
    let status = "HTTP/1.1 408 Request Timeout\r\nconnection: close\r\n".as_bytes();
    [status, &headers[..], b"\r\n", &body[..]].concat()
}

/// Whether a body that has a coding is in chunks and nothing else. hyper undoes the chunks of one that is coded in
/// another way as well, and leaves it at that.
pub(crate) fn is_framed_plainly(headers: &HeaderMap) -> bool {
    let mut codings = headers.get_all(TRANSFER_ENCODING).iter();
    let Some(coding) = codings.next() else { return true };
    coding.as_bytes().trim_ascii().eq_ignore_ascii_case(b"chunked") && codings.next().is_none()
}

pub(crate) fn unknown_coding() -> Error {
    Error::invalid("a request body may be chunked, no other Transfer-Encoding is known")
}

/// hyper's answer to a head that it cannot read, with what is wrong. `None` is no such answer.
pub(crate) fn explained(written: &[u8], limits: &HttpLimits) -> Option<Vec<u8>> {
    let text = match written.get(9..12)? {
        b"400" => "the head of the request is no HTTP/1.1".to_owned(),
        b"414" => format!("the target of the request is longer than {TARGET_BYTES} bytes"),
        b"431" => format!(
            "the head of the request has more than {} headers (--http-max-headers) or {} bytes (--http-max-head-size)",
            limits.max_headers, limits.max_head_bytes
        ),
        _ => return None,
    };
    if written.len() > HYPERS_BYTES || !written.ends_with(HYPERS_END) {
        return None;
    }
    let at = written.windows(NO_BODY.len()).position(|part| part == NO_BODY)?;
    let (headers, body) = refusal(ErrorKind::InvalidInput, &text);
    Some([&written[..at], &headers[..], &written[at + NO_BODY.len()..], &body[..]].concat())
}

fn refusal(kind: ErrorKind, text: &str) -> (Vec<u8>, Vec<u8>) {
    let body = write::error(text);
    let headers = format!(
        "content-type: application/json\r\nkushi-error: {}\r\ncontent-length: {}\r\n",
        kind.name(),
        body.len()
    );
    (headers.into(), body)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HYPERS: &str = "HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\ncontent-length: 0\r\n\
                          date: Sat, 21 Nov 2026 05:01:19 GMT\r\n\r\n";

    #[test]
    fn hypers_own_answer_gets_a_body_and_no_other_does() {
        let limits = HttpLimits { max_headers: 7, ..HttpLimits::default() };
        let explained =
            |text: &str| explained(text.as_bytes(), &limits).map(|bytes| String::from_utf8(bytes).unwrap());
        let body = r#"{"error":"the head of the request has more than 7 headers (--http-max-headers) or 65536 bytes (--http-max-head-size)"}"#;
        let expected = format!(
            "HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\ncontent-type: application/json\r\n\
             kushi-error: invalid_input\r\ncontent-length: {}\r\ndate: Sat, 21 Nov 2026 05:01:19 GMT\r\n\r\n{body}",
            body.len()
        );
        assert_eq!(explained(HYPERS), Some(expected));
        for other in [
            "",
            "HTTP/1.1 4",
            &HYPERS.replace("431", "200"),
            &HYPERS.replace("-length: 0", "-length: 9"),
            &HYPERS[..HYPERS.len() - 1],
            &HYPERS.replace("date: ", &format!("date: {}", "x".repeat(200))),
        ] {
            assert_eq!(explained(other), None, "{other}");
        }
    }
}
