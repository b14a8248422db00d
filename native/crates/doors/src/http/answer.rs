//! What a door sends back: status, headers and a body whose length is known.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use hyper::header::{ALLOW, CONTENT_TYPE, HeaderName, HeaderValue, RETRY_AFTER};
use hyper::{Method, Response, StatusCode};
use kushi_core::Error;

use crate::house::Answering;

use crate::json::write;

pub(crate) const JSON_LENGTH: HeaderName = HeaderName::from_static("inference-header-content-length");

/// Pieces of a body, sent in order without joining them.
#[derive(Default)]
pub(crate) struct Chunks {
    pieces: VecDeque<Bytes>,
    left: u64,
    answering: Option<Answering>,
}

impl Chunks {
    pub(crate) fn push(&mut self, piece: Bytes) {
        if !piece.is_empty() {
            self.left += piece.len() as u64;
            self.pieces.push_back(piece);
        }
    }
}

impl Chunks {
    /// Holds `answering` until the connection has taken the last piece.
    pub(crate) fn until_written(&mut self, answering: Answering) {
        self.answering = Some(answering);
    }
}

impl Body for Chunks {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let piece = self.pieces.pop_front();
        self.left -= piece.as_ref().map_or(0, |piece| piece.len() as u64);
        Poll::Ready(piece.map(|piece| Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.pieces.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left)
    }
}

pub(crate) type Answer = Response<Chunks>;

pub(crate) fn empty(status: u16) -> Answer {
    let mut response = Response::new(Chunks::default());
    *response.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response
}

fn with_body(status: u16, content_type: &'static str, body: Chunks) -> Answer {
    let mut response = empty(status);
    *response.body_mut() = body;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

pub(crate) fn json(status: u16, body: impl Into<Bytes>) -> Answer {
    let mut chunks = Chunks::default();
    chunks.push(body.into());
    with_body(status, "application/json", chunks)
}

pub(crate) fn text(body: String) -> Answer {
    let mut chunks = Chunks::default();
    chunks.push(body.into());
    with_body(200, "text/plain; charset=utf-8", chunks)
}

pub(crate) fn tensors(json_length: usize, body: Chunks) -> Answer {
    let mut response = with_body(200, "application/octet-stream", body);
    response.headers_mut().insert(JSON_LENGTH, HeaderValue::from(json_length));
    response
}

pub(crate) fn refusal(status: u16, text: &str) -> Answer {
    let mut body = b"{\"error\":".to_vec();
    write::string(&mut body, text.as_bytes());
    body.push(b'}');
    json(status, body)
}

pub(crate) fn method_not_allowed(allowed: &Method) -> Answer {
    let mut response = refusal(405, "Method Not Allowed");
    if let Ok(allowed) = HeaderValue::from_str(allowed.as_str()) {
        response.headers_mut().insert(ALLOW, allowed);
    }
    response
}

pub(crate) fn error(error: &Error) -> Answer {
    let mut response = refusal(error.kind.http_status(), &error.message);
    if error.kind.retryable() {
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
    }
    response
}
