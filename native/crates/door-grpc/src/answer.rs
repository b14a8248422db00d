//! What a call is answered with: messages and a status, or a status alone.

use std::future::poll_fn;
use std::time::Instant;

use bytes::{Bytes, BytesMut};
use h2::server::SendResponse;
use h2::{Reason, SendStream};
use http::header::{CONTENT_TYPE, HeaderValue};
use http::{HeaderMap, Response};
use kushi_core::{Error, ErrorKind, Timings};
use kushi_dataplane::{Event, Trace};
use kushi_net::Answering;
use smallvec::SmallVec;
use tokio::time::timeout_at;

use crate::coding::{self, AnswerCoding, REQUEST_CODING};
use crate::context::GrpcContext;
use crate::framing::{Message, SHORT_BYTES};
use crate::head::TIMINGS;
use crate::line::OpenCall;
use crate::load_report;
use crate::patience::patiently;
use crate::status::Status;

const GRPC: HeaderValue = HeaderValue::from_static("application/grpc");

/// Of several messages, in their order.
type Pieces = SmallVec<[Bytes; 4]>;

/// Of a call with one answer.
pub(crate) struct CallAnswer {
    message: Option<Message>,
    status: Status,
    /// Until it is sent.
    _answering: Option<Answering>,
    trace: Option<Trace>,
    /// For a client that wants to know where the time went.
    timings: Option<Timings>,
}

/// Where the answers of a call go.
pub(crate) struct Outlet<'a> {
    pub(crate) context: &'a GrpcContext,
    pub(crate) open: &'a OpenCall,
    pub(crate) respond: SendResponse<Bytes>,
    pub(crate) coding: Option<AnswerCoding>,
    /// Of the server, which the client wants to hear of behind its answers.
    pub(crate) load: Option<load_report::AskedReport>,
    pub(crate) deadline: Option<Instant>,
}

/// Answers of a call that has begun to answer.
pub(crate) struct Stream<'a> {
    context: &'a GrpcContext,
    open: &'a OpenCall,
    inner: SendStream<Bytes>,
    coding: Option<AnswerCoding>,
    load: Option<load_report::AskedReport>,
    deadline: Option<Instant>,
}

/// What became of something that was sent.
#[derive(PartialEq, Eq)]
enum Sent {
    Whole,
    /// The client has made no room for too long.
    Untaken,
    /// The client has given the call up, or its time is over: whoever asks [`Stream::over`] hears it.
    Over,
}

/// Short pieces that follow one another leave as one: each piece is a frame.
fn joined(pieces: Pieces) -> Pieces {
    if pieces.len() < 2 {
        return pieces;
    }
    let (mut joined, mut open) = (Pieces::new(), BytesMut::new());
    for piece in pieces {
        if piece.len() <= SHORT_BYTES {
            open.extend_from_slice(&piece);
            continue;
        }
        if !open.is_empty() {
            joined.push(open.split().freeze());
        }
        joined.push(piece);
    }
    if !open.is_empty() {
        joined.push(open.freeze());
    }
    joined
}

/// How calls end that are still open when the server closes.
pub(crate) fn closed() -> Status {
    let text = "GRPC server is shutting down and has stopped accepting new requests.";
    Error::new(ErrorKind::ShuttingDown, text).into()
}

impl CallAnswer {
    pub(crate) fn new(message: Message, answering: Answering) -> Self {
        Self {
            message: Some(message),
            status: Status::ok(),
            _answering: Some(answering),
            trace: None,
            timings: None,
        }
    }

    pub(crate) fn traced(self, trace: Option<Trace>) -> Self {
        Self { trace, ..self }
    }

    pub(crate) fn timed(self, timings: Option<Timings>) -> Self {
        Self { timings, ..self }
    }

    pub(crate) fn failed(status: Status) -> Self {
        Self { message: None, status, _answering: None, trace: None, timings: None }
    }

    pub(crate) async fn send(mut self, outlet: Outlet<'_>) -> Result<(), h2::Error> {
        let trace = self.trace.take();
        if let Some(trace) = &trace {
            trace.mark(Event::GrpcSendStart, Instant::now());
        }
        let sent = self.send_all(outlet).await;
        if let Some(trace) = trace {
            trace.mark(Event::GrpcSendEnd, Instant::now());
        }
        sent
    }

    async fn send_all(self, mut outlet: Outlet<'_>) -> Result<(), h2::Error> {
        let Some(message) = self.message else {
            let mut response = Response::new(());
            response.headers_mut().insert(CONTENT_TYPE, GRPC);
            self.status.write(response.headers_mut());
            if let Some(load) = outlet.load {
                load.tell(response.headers_mut(), &outlet.context.grpc.plane);
            }
            if self.status.is_unimplemented() {
                // It may be for its coding.
                let known = HeaderValue::from_static(coding::KNOWN_CODINGS);
                response.headers_mut().insert(coding::ACCEPTED_CODINGS, known);
            }
            outlet.respond.send_response(response, true)?;
            return Ok(());
        };
        let mut stream = outlet.open_with(self.timings)?;
        for piece in coding::coded(&stream.context.io.net, message, stream.coding).await {
            if stream.send_whole(piece).await? != Sent::Whole {
                stream.inner.send_reset(Reason::CANCEL);
                return Ok(());
            }
        }
        stream.end(&self.status)
    }
}

impl<'a> Outlet<'a> {
    /// Of a call that says nothing of compression.
    pub(crate) fn plain(context: &'a GrpcContext, open: &'a OpenCall, respond: SendResponse<Bytes>) -> Self {
        Self { context, open, respond, coding: None, load: None, deadline: None }
    }

    /// Sends the head of answers that are yet to come.
    pub(crate) fn open(self) -> Result<Stream<'a>, h2::Error> {
        self.open_with(None)
    }

    fn open_with(mut self, timings: Option<Timings>) -> Result<Stream<'a>, h2::Error> {
        let mut response = Response::new(());
        response.headers_mut().insert(CONTENT_TYPE, GRPC);
        if let Some(timings) = timings {
            tell_timings(response.headers_mut(), &timings);
        }
        if let Some(with) = self.coding {
            response.headers_mut().insert(REQUEST_CODING, HeaderValue::from_static(with.coding.name()));
        }
        let inner = self.respond.send_response(response, false)?;
        let Self { context, open, coding, load, deadline, .. } = self;
        Ok(Stream { context, open, inner, coding, load, deadline })
    }
}

/// In nanoseconds, as over HTTP.
fn tell_timings(headers: &mut HeaderMap, timings: &Timings) {
    let Timings { queue, compute_input, compute_infer, compute_output } = *timings;
    let [queue, input, infer, output] =
        [queue, compute_input, compute_infer, compute_output].map(|time| time.as_nanos());
    if let Ok(value) = HeaderValue::try_from(format!("{queue},{input},{infer},{output}")) {
        headers.insert(TIMINGS, value);
    }
}

impl Stream<'_> {
    pub(crate) async fn send(&mut self, message: Message) -> Result<(), h2::Error> {
        self.send_all([message]).await
    }

    /// As fast as the client takes them, and no longer than it waits. One that takes nothing for as long as bodies have
    /// loses the call: a model may wait for the room.
    pub(crate) async fn send_all(
        &mut self,
        messages: impl IntoIterator<Item = Message>,
    ) -> Result<(), h2::Error> {
        let mut pieces = Pieces::new();
        for message in messages {
            pieces.extend(coding::coded(&self.context.io.net, message, self.coding).await);
        }
        for piece in joined(pieces) {
            match self.send_whole(piece).await? {
                Sent::Whole => {}
                Sent::Untaken => {
                    self.inner.send_reset(Reason::CANCEL);
                    return Err(Reason::CANCEL.into());
                }
                Sent::Over => return Ok(()),
            }
        }
        self.open.has_answered();
        Ok(())
    }

    pub(crate) fn end(mut self, status: &Status) -> Result<(), h2::Error> {
        let mut trailers = HeaderMap::new();
        status.write(&mut trailers);
        if let Some(load) = self.load {
            load.tell(&mut trailers, &self.context.grpc.plane);
        }
        self.inner.send_trailers(trailers)
    }

    /// When the call is to end, whatever is still to come: its client gives it up, or has waited for as long as it said.
    pub(crate) async fn over(&mut self) -> Result<Status, h2::Error> {
        let reset = poll_fn(|task| self.inner.poll_reset(task));
        match self.deadline {
            Some(deadline) => match timeout_at(deadline.into(), reset).await {
                Ok(reason) => Err(reason?.into()),
                Err(_) => Ok(Status::deadline_exceeded()),
            },
            None => Err(reset.await?.into()),
        }
    }

    async fn send_whole(&mut self, mut bytes: Bytes) -> Result<Sent, h2::Error> {
        let Self { context, inner, deadline, .. } = self;
        while !bytes.is_empty() {
            inner.reserve_capacity(bytes.len());
            // As mostly: whoever waits for nothing is not watched.
            if inner.capacity() >= bytes.len() {
                inner.send_data(bytes, false)?;
                break;
            }
            let room = patiently(
                &context.io,
                tokio::time::Instant::now(),
                poll_fn(|task| inner.poll_capacity(task)),
            );
            let room = match *deadline {
                Some(deadline) => timeout_at(deadline.into(), room).await,
                None => Ok(room.await),
            };
            let Ok(room) = room else { return Ok(Sent::Over) };
            let Some(room) = room else { return Ok(Sent::Untaken) };
            let Some(room) = room else { return Ok(Sent::Over) };
            let room = room?.min(bytes.len());
            inner.send_data(bytes.split_to(room), false)?;
        }
        Ok(Sent::Whole)
    }
}
