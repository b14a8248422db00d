//! Messages of a call, as its client sends them: each a head of five bytes, and a body.

use std::convert::Infallible;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use h2::RecvStream;
use kushi_net::{Answering, COUNTED_BYTES};
use tokio::time::{Instant, sleep};

use crate::coding;
use crate::context::GrpcContext;
use crate::framing::HEAD_BYTES;
use crate::patience::patiently;
use crate::status::{DEADLINE_EXCEEDED, INTERNAL, RESOURCE_EXHAUSTED, Status};

/// What a length may have set aside before the bytes are there.
const TRUSTED_BYTES: usize = 1 << 20;

/// What trailers hold at most, as they are read.
const MOST_TRAILERS: usize = 80 << 10;
const OWE_EVERY: Duration = Duration::from_millis(250);

/// What messages of a call are read with.
#[derive(Clone, Copy)]
pub(crate) struct Inlet<'a> {
    pub(crate) context: &'a GrpcContext,
    pub(crate) takes_compressed: bool,
    /// That a message may have, unfolded.
    pub(crate) most_bytes: usize,
}

/// A message, and what is owed for it.
pub(crate) type Read = (Bytes, Answering);
type Unfolding<'a> = Pin<Box<dyn Future<Output = Result<Read, Status>> + 'a>>;

/// What a client sends in one call.
pub(crate) struct Messages<'a> {
    inlet: Inlet<'a>,
    body: RecvStream,
    pieces: Pieces,
    /// Of the message that has begun.
    answering: Option<Answering>,
    /// So many bytes of it count.
    covered: usize,
    /// There may be any time between two messages.
    is_stream: bool,
    /// The server ended already when the call began.
    is_late: bool,
    /// The call has requests that are at work: what comes behind them can wait until there is room for it.
    pub(crate) has_open: bool,
    began: Option<Instant>,
    /// Of the last piece of the message that has begun.
    heard: Instant,
    /// A whole message whose reading goes on where whoever waits for it does something else first.
    unfolding: Option<Unfolding<'a>>,
}

/// What has come and has not been read: one piece as it is, or several in one.
enum Pieces {
    One(Bytes),
    Joined(BytesMut),
}

/// The head of a message.
struct Announced {
    compressed: bool,
    /// With the head.
    length: usize,
}

impl<'a> Messages<'a> {
    /// Of a call with one message.
    pub(crate) fn only(inlet: Inlet<'a>, body: RecvStream) -> Self {
        let (pieces, now) = (Pieces::One(Bytes::new()), Instant::now());
        Self {
            is_late: inlet.context.io.connections.is_draining(),
            inlet,
            body,
            pieces,
            answering: None,
            covered: 0,
            has_open: false,
            is_stream: false,
            began: Some(now),
            heard: now,
            unfolding: None,
        }
    }

    /// Of a call with any number of them.
    pub(crate) fn of_stream(inlet: Inlet<'a>, body: RecvStream) -> Self {
        Self { is_stream: true, began: None, ..Self::only(inlet, body) }
    }

    pub(crate) async fn the_only_one(&mut self) -> Result<Read, Status> {
        let Some(message) = self.next().await? else {
            return Err(Status::new(INTERNAL, "the request has no message"));
        };
        match self.next().await? {
            None => Ok(message),
            Some(_) => Err(Status::new(INTERNAL, "a call of this method has one message")),
        }
    }

    /// Without a copy where it comes in one piece. `None`: the client sends no more. Whoever gives up waiting and comes
    /// again gets the same message.
    pub(crate) async fn next(&mut self) -> Result<Option<Read>, Status> {
        if self.unfolding.is_none() {
            let Some((is_compressed, message, answering)) = self.whole().await? else { return Ok(None) };
            if !is_compressed {
                return Ok(Some((message, answering)));
            }
            self.unfolding = Some(Box::pin(self.inlet.unfold(message, answering)));
        }
        let Some(unfolding) = &mut self.unfolding else { return Ok(None) };
        let unfolded = unfolding.await;
        self.unfolding = None;
        unfolded.map(Some)
    }

    /// Until whoever asks gives it up: what has come and is not read, because answers wait for their client, counts.
    pub(crate) async fn owe_unread(&mut self) -> Infallible {
        let mut owed = self.inlet.context.io.net.budget.open();
        loop {
            sleep(OWE_EVERY).await;
            // Nobody asks for them.
            poll_fn(|task| Poll::Ready(self.body.poll_trailers(task).is_ready())).await;
            let unread = self.body.flow_control().used_capacity();
            // They may lie behind it.
            owed.owe_in_all(if unread > 0 { unread + MOST_TRAILERS } else { 0 });
        }
    }

    /// A message as it came, and whether it is compressed.
    async fn whole(&mut self) -> Result<Option<(bool, Bytes, Answering)>, Status> {
        let context = self.inlet.context;
        loop {
            if self.pieces.len() > 0 {
                let net = &context.io.net;
                let is_late = self.is_late;
                let begin = || if is_late { net.begin_late_answer() } else { net.begin_long_answer() };
                self.answering.get_or_insert_with(begin);
                if self.began.is_none() {
                    self.heard = Instant::now();
                    self.began = Some(self.heard);
                }
            }
            let announced = self.pieces.head().map(|head| self.inlet.check(head)).transpose()?;
            let needed = announced.as_ref().map_or(HEAD_BYTES, |announced| announced.length);
            if let Some(announced) = announced
                && self.pieces.len() >= needed
            {
                // The rest of the call may be awaited for long.
                if !self.is_stream && !self.body.is_end_stream() {
                    self.cover()?;
                }
                if let Some(answering) = self.answering.take() {
                    self.began = (!self.is_stream).then(Instant::now);
                    self.covered = 0;
                    let mut message = self.pieces.split_to(needed);
                    message.advance(HEAD_BYTES);
                    return Ok(Some((announced.compressed, message, answering)));
                }
            }
            self.cover()?;
            let Some(piece) = self.piece().await? else {
                return match self.pieces.len() {
                    0 => Ok(None),
                    _ => Err(Status::new(INTERNAL, "the request ends in the midst of a message")),
                };
            };
            let length = piece.len();
            self.heard = Instant::now();
            self.pieces.push(piece, needed);
            // A failure is one of the connection, which ends.
            let _ = self.body.flow_control().release_capacity(length);
        }
    }

    /// Counts what has come of a message.
    fn cover(&mut self) -> Result<(), Status> {
        let length = self.pieces.len();
        if let Some(answering) = &mut self.answering
            && length != self.covered
        {
            let covered = answering.cover_one_of_many(&self.inlet.context.small_requests, length, length);
            if length >= COUNTED_BYTES || !self.has_open {
                covered?;
            }
            self.covered = length;
            self.pieces.leave_frames();
        }
        Ok(())
    }

    /// What comes next, within the time that a message has.
    async fn piece(&mut self) -> Result<Option<Bytes>, Status> {
        let limits = &self.inlet.context.io.net.limits;
        let came = match self.began {
            None => self.body.data().await,
            Some(began) => {
                let io = &self.inlet.context.io;
                let came = patiently(io, self.heard, self.body.data()).await;
                let patience = io.patience();
                let came = came.ok_or_else(|| too_slow(patience))?;
                let elapsed = began.elapsed();
                if elapsed > patience && self.pieces.len() < least(limits.min_body_rate, elapsed) {
                    return Err(too_slow(patience));
                }
                came
            }
        };
        came.transpose().map_err(|error| Status::new(INTERNAL, format!("the request was cut short: {error}")))
    }
}

fn least(rate: usize, elapsed: Duration) -> usize {
    rate.saturating_mul(usize::try_from(elapsed.as_secs()).unwrap_or(usize::MAX))
}

fn too_slow(patience: Duration) -> Status {
    let seconds = patience.as_secs();
    let text =
        format!("the request did not come: too little of it for {seconds} s (--http-body-timeout-secs)");
    Status::new(DEADLINE_EXCEEDED, text)
}

impl Inlet<'_> {
    fn check(&self, [compressed, length @ ..]: [u8; HEAD_BYTES]) -> Result<Announced, Status> {
        let (length, most) = (u32::from_be_bytes(length) as usize, self.most_bytes);
        if compressed > 1 || (compressed == 1 && !self.takes_compressed) {
            return Err(Status::new(INTERNAL, "a message is compressed, and no header says how"));
        }
        if length > most {
            let text = format!("Received message larger than max ({length} vs. {most})");
            return Err(Status::new(RESOURCE_EXHAUSTED, text));
        }
        self.context.io.net.budget.check(length).map_err(Status::too_large)?;
        Ok(Announced { compressed: compressed == 1, length: HEAD_BYTES + length })
    }

    async fn unfold(self, message: Bytes, mut answering: Answering) -> Result<Read, Status> {
        let net = &self.context.io.net;
        let message = coding::decompressed(net, message, self.most_bytes, &mut answering).await?;
        Ok((message, answering))
    }
}

impl Pieces {
    fn bytes(&self) -> &[u8] {
        match self {
            Self::One(bytes) => bytes,
            Self::Joined(bytes) => bytes,
        }
    }

    fn len(&self) -> usize {
        self.bytes().len()
    }

    fn head(&self) -> Option<[u8; HEAD_BYTES]> {
        self.bytes().first_chunk().copied()
    }

    /// `needed`: the bytes of the message that has begun, as far as is known.
    fn push(&mut self, piece: Bytes, needed: usize) {
        match self {
            Self::One(first) if first.is_empty() => *self = Self::One(piece),
            Self::One(first) => {
                let room = needed.min(TRUSTED_BYTES).max(first.len() + piece.len());
                let mut joined = BytesMut::with_capacity(room);
                joined.extend_from_slice(first);
                joined.extend_from_slice(&piece);
                *self = Self::Joined(joined);
            }
            Self::Joined(joined) if joined.is_empty() => *self = Self::One(piece),
            Self::Joined(joined) => {
                joined.reserve(needed.min(TRUSTED_BYTES).max(joined.len() + piece.len()) - joined.len());
                joined.extend_from_slice(&piece);
            }
        }
    }

    /// A short piece of a message is not to keep the large buffer that it was read into while the rest is awaited.
    fn leave_frames(&mut self) {
        if let Self::One(piece) = self
            && piece.len() < COUNTED_BYTES
        {
            *self = Self::Joined(BytesMut::from(&piece[..]));
        }
    }

    fn split_to(&mut self, length: usize) -> Bytes {
        match self {
            Self::One(bytes) => bytes.split_to(length),
            Self::Joined(bytes) => bytes.split_to(length).freeze(),
        }
    }
}
