//! What a door sends back: status, headers and a body whose length is known.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use hyper::header::{ALLOW, CONTENT_TYPE, HeaderName, HeaderValue, RETRY_AFTER};
use hyper::{Response, StatusCode};
use kushi_core::{Error, Timings};

use crate::house::Answering;
use crate::manage::Reply;

/// The name of the kind of an error.
const ERROR: HeaderName = HeaderName::from_static("kushi-error");
/// Asks for the answer header of the same name: queue, input, inference, output.
pub(crate) const TIMINGS: HeaderName = HeaderName::from_static("kushi-timings");
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

pub(crate) fn empty(code: u16) -> Answer {
    let mut response = Response::new(Chunks::default());
    *response.status_mut() = status(code);
    response
}

fn with_body(code: u16, content_type: &'static str, body: Chunks) -> Answer {
    let mut response = empty(code);
    *response.body_mut() = body;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

pub(crate) fn json(code: u16, body: impl Into<Bytes>) -> Answer {
    let mut chunks = Chunks::default();
    chunks.push(body.into());
    with_body(code, "application/json", chunks)
}

pub(crate) fn text(body: impl Into<Bytes>) -> Answer {
    let mut chunks = Chunks::default();
    chunks.push(body.into());
    with_body(200, "text/plain; charset=utf-8", chunks)
}

pub(crate) fn tensors(json_length: usize, body: Chunks) -> Answer {
    let mut response = with_body(200, "application/octet-stream", body);
    response.headers_mut().insert(JSON_LENGTH, HeaderValue::from(json_length));
    response
}

/// The answer to a request that is no inference.
pub(crate) fn managed(reply: Reply) -> Answer {
    let mut response = match (reply.body.is_empty(), reply.text) {
        (true, _) => empty(200),
        (false, true) => text(reply.body),
        (false, false) => json(200, reply.body),
    };
    *response.status_mut() = status(reply.status);
    let headers = response.headers_mut();
    if let Some(allowed) = reply.allow {
        headers.insert(ALLOW, HeaderValue::from_static(allowed));
    }
    if let Some(kind) = reply.kind {
        headers.insert(ERROR, HeaderValue::from_static(kind.name()));
        if kind.retryable() {
            headers.insert(RETRY_AFTER, HeaderValue::from_static("1"));
        }
    }
    response
}

pub(crate) fn error(error: &Error) -> Answer {
    managed(Reply::error(error))
}

/// Tells where the time of a request went, in nanoseconds.
pub(crate) fn tell_timings(answer: &mut Answer, timings: &Timings) {
    let Timings { queue, compute_input, compute_infer, compute_output } = *timings;
    let [queue, input, infer, output] =
        [queue, compute_input, compute_infer, compute_output].map(|time| time.as_nanos());
    if let Ok(value) = HeaderValue::from_str(&format!("{queue},{input},{infer},{output}")) {
        answer.headers_mut().insert(TIMINGS, value);
    }
}

fn status(code: u16) -> StatusCode {
    StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
}
