//! What a door sends back: status, headers and a body whose length is known.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use hyper::header::{ALLOW, CONTENT_TYPE, HeaderName, HeaderValue, RETRY_AFTER};
use hyper::{Response, StatusCode};
use kushi_core::{Error, ErrorKind, Timings};
use kushi_dataplane::Trace;
use kushi_net::{Answering, Budget, COUNTED_BYTES, Reservation};
use kushi_oip::json::write;
use smallvec::SmallVec;
use tokio::sync::mpsc;

use crate::header_names;
use crate::route::NoRoute;

/// The name of the kind of an error.
const ERROR: HeaderName = HeaderName::from_static("kushi-error");
const TIMINGS: HeaderName = HeaderName::from_static(header_names::TIMINGS);
const JSON_LENGTH: HeaderName = HeaderName::from_static(header_names::JSON_LENGTH);

/// Longer JSON is cut.
const TEXT_PIECE_BYTES: usize = 1 << 20;

/// Pieces of a body, sent in order without joining them.
#[derive(Default)]
pub(crate) struct Chunks {
    /// Few: most answers are one.
    pieces: SmallVec<[Bytes; 1]>,
    left: u64,
    answering: Option<Answering>,
    /// The last piece holds one.
    held: bool,
    /// Pieces that are yet to come, nobody knows how many.
    more: Option<mpsc::Receiver<Bytes>>,
    /// Until it has left.
    trace: Option<Trace>,
}

/// The last piece of a large answer, with what is held until it has been written.
struct Last<H> {
    bytes: Bytes,
    _held: H,
}

impl<H> AsRef<[u8]> for Last<H> {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// `text` that is counted until it has been written, if it is large, in the place of what was counted before.
pub(crate) fn counted(text: Vec<u8>, before: Option<Reservation>, budget: &Arc<Budget>) -> Bytes {
    if text.len() < COUNTED_BYTES {
        return text.into();
    }
    let mut held = before.unwrap_or_else(|| budget.open());
    held.owe_in_all(text.len());
    Bytes::from_owner(Last { bytes: text.into(), _held: held })
}

impl Chunks {
    pub(crate) fn push(&mut self, piece: Bytes) {
        if !piece.is_empty() {
            self.left += piece.len() as u64;
            self.pieces.push(piece);
        }
    }
}

impl Chunks {
    /// Text in pieces, so that its memory is given back piece by piece as it leaves.
    pub(crate) fn push_text(&mut self, text: Vec<u8>) {
        if text.len() <= TEXT_PIECE_BYTES {
            self.push(text.into());
        } else {
            text.chunks(TEXT_PIECE_BYTES).for_each(|piece| self.push(Bytes::copy_from_slice(piece)));
        }
    }

    pub(crate) fn pieces(&self) -> Vec<Bytes> {
        self.pieces.iter().cloned().collect()
    }

    pub(crate) fn replace(&mut self, whole: Bytes) {
        self.pieces.clear();
        self.left = 0;
        self.push(whole);
    }

    pub(crate) fn left(&self) -> usize {
        self.left as usize
    }

    /// Whether it takes memory that nobody counts yet.
    pub(crate) fn is_uncounted(&self) -> bool {
        self.answering.is_none() && self.left as usize >= COUNTED_BYTES && !self.held
    }

    pub(crate) fn set_trace(&mut self, trace: Trace) {
        self.trace = Some(trace);
    }

    pub(crate) fn take_trace(&mut self) -> Option<Trace> {
        self.trace.take()
    }

    /// Holds `answering` until the connection has taken the last piece, which it has written soon; a
    /// large one until it has been written.
    pub(crate) fn until_written(&mut self, mut answering: Answering) {
        let bytes = self.left as usize;
        if self.more.is_some() {
            // Its events count themselves.
            self.answering = Some(answering);
            return;
        }
        match self.pieces.last_mut() {
            Some(last) if bytes >= COUNTED_BYTES => {
                answering.owe_in_all(bytes);
                self.held = true;
                let bytes = std::mem::take(last);
                *last = Bytes::from_owner(Last { bytes, _held: answering });
            }
            _ => self.answering = Some(answering),
        }
    }
}

impl Body for Chunks {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let piece = (!self.pieces.is_empty()).then(|| self.pieces.remove(0));
        if let (None, Some(more)) = (&piece, &mut self.more) {
            return more.poll_recv(context).map(|piece| Some(Ok(Frame::data(piece?))));
        }
        self.left -= piece.as_ref().map_or(0, |piece| piece.len() as u64);
        Poll::Ready(piece.map(|piece| Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.pieces.is_empty() && self.more.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        if self.more.is_some() { SizeHint::default() } else { SizeHint::with_exact(self.left) }
    }
}

pub(crate) type HttpAnswer = Response<Chunks>;

pub(crate) fn empty(code: u16) -> HttpAnswer {
    let mut response = Response::new(Chunks::default());
    *response.status_mut() = status(code);
    response
}

fn with_body(code: u16, content_type: &'static str, body: Chunks) -> HttpAnswer {
    let mut response = Response::new(body);
    *response.status_mut() = status(code);
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

pub(crate) fn json(code: u16, body: impl Into<Bytes>) -> HttpAnswer {
    let mut chunks = Chunks::default();
    chunks.push(body.into());
    with_body(code, "application/json", chunks)
}

pub(crate) fn text(body: impl Into<Bytes>) -> HttpAnswer {
    file("text/plain; charset=utf-8", body.into())
}

pub(crate) fn file(content_type: &'static str, body: Bytes) -> HttpAnswer {
    let mut chunks = Chunks::default();
    chunks.push(body);
    with_body(200, content_type, chunks)
}

pub(crate) fn long_json(body: Vec<u8>) -> HttpAnswer {
    let mut chunks = Chunks::default();
    chunks.push_text(body);
    with_body(200, "application/json", chunks)
}

pub(crate) fn tensors(json_length: usize, body: Chunks) -> HttpAnswer {
    let mut response = with_body(200, "application/octet-stream", body);
    response.headers_mut().insert(JSON_LENGTH, HeaderValue::from(json_length));
    response
}

/// Server-sent events: the first of them, and `more`; the status and the headers are those of `head`.
pub(crate) fn events(head: HttpAnswer, first: Bytes, more: mpsc::Receiver<Bytes>) -> HttpAnswer {
    let mut response = head.map(|_| Chunks { more: Some(more), ..Chunks::default() });
    response.body_mut().push(first);
    let content_type = HeaderValue::from_static("text/event-stream; charset=utf-8");
    response.headers_mut().insert(CONTENT_TYPE, content_type);
    response
}

pub(crate) fn error(error: &Error) -> HttpAnswer {
    refusal(error.kind.http_status(), error.kind, &error.message)
}

/// A failure whose status is not that of its kind.
pub(crate) fn refusal(code: u16, kind: ErrorKind, message: &str) -> HttpAnswer {
    let mut response = json(code, write::error(message));
    let headers = response.headers_mut();
    headers.insert(ERROR, HeaderValue::from_static(kind.name()));
    if kind.retryable() {
        headers.insert(RETRY_AFTER, HeaderValue::from_static("1"));
    }
    response
}

pub(crate) fn no_route(reason: &NoRoute) -> HttpAnswer {
    match reason {
        NoRoute::NotFound => refusal(404, ErrorKind::Unsupported, "Not Found"),
        NoRoute::WrongMethod(allowed) => {
            let mut response = refusal(405, ErrorKind::Unsupported, "Method Not Allowed");
            response.headers_mut().insert(ALLOW, HeaderValue::from_static(allowed));
            response
        }
        NoRoute::Refused(reason) => error(reason),
    }
}

/// Tells where the time of a request went, in nanoseconds.
pub(crate) fn tell_timings(answer: &mut HttpAnswer, timings: &Timings) {
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
