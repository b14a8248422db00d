//! One connection to a server: an exchange at a time, driven by whoever waits for its socket.

use std::collections::VecDeque;
use std::future::Future;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::task::{Context, Poll, Wake, Waker};

use bytes::Bytes;
use hyper::body::{Body, Incoming};
use hyper::client::conn::{TrySendError, http1};
use hyper::header::{HeaderMap, HeaderName, HeaderValue};
use hyper::{Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_rustls::client::TlsStream;

use super::headers::passed_on;
use super::pieces::{OutgoingPieces, Pieces};
use super::request::Request;
use super::socket::{Seen, Socket};
use super::whole::written;
use crate::tls::Tls;

/// Of an answer that nobody takes, so much is read at most; of a request that the server does not take,
/// so much is kept.
const WAITING_BYTES: usize = 256 << 10;
/// hyper ends a connection whose answer has a larger head.
const BUFFER_BYTES: usize = 256 << 10;
/// What moves in so many rounds goes on in the next turn of the loop.
const ROUNDS: usize = 64;

/// Why there will be no more of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The server has heard nothing of the request.
    Unsent,
    /// The server has said nothing.
    Unanswered,
    /// Its answer broke off, or is none.
    Broken,
    /// The body of the request is not what was announced.
    Misfit(super::pieces::Misfit),
}

/// Status and headers of an answer.
pub struct Head {
    pub status: u16,
    headers: HeaderMap,
}

impl Head {
    /// Those that go on to whoever asked.
    pub fn headers(&self) -> impl Iterator<Item = (&HeaderName, &HeaderValue)> {
        passed_on(self.status, &self.headers)
    }
}

/// What a connection waits for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Interest {
    pub bytes: bool,
    pub room: bool,
    /// It has more to do at once, and lets others go first.
    pub turn: bool,
}

type Open = http1::Connection<TokioIo<Stream>, OutgoingPieces>;
type AskedExchange = Pin<
    Box<dyn Future<Output = Result<Response<Incoming>, TrySendError<hyper::Request<OutgoingPieces>>>> + Send>,
>;

enum Way {
    Shaking(
        Pin<Box<dyn Future<Output = io::Result<TlsStream<Socket>>> + Send>>,
        Option<Box<hyper::Request<OutgoingPieces>>>,
    ),
    Open(http1::SendRequest<OutgoingPieces>, Pin<Box<Open>>),
    Broken,
}

/// How far the answer has come.
enum Stage {
    /// Nothing was asked since the last whole answer was taken.
    None,
    Awaited(AskedExchange),
    Body(Incoming),
    Whole,
    Failed(Failure),
}

pub struct Connection {
    /// Open for as long as this is, whatever became of the connection.
    descriptor: Arc<OwnedFd>,
    seen: Arc<Seen>,
    woken: Arc<Woken>,
    waker: Waker,
    way: Way,
    stage: Stage,
    head: Option<Head>,
    arrived: VecDeque<Bytes>,
    arrived_bytes: usize,
    pieces: Option<Pieces>,
}

#[derive(Default)]
struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Relaxed);
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.0.store(true, Relaxed);
    }
}

impl Connection {
    /// `descriptor` is a socket that does not block; it may still be connecting.
    pub fn new(descriptor: OwnedFd, tls: Option<&Tls>) -> Self {
        let descriptor = Arc::new(descriptor);
        let (socket, seen) = Socket::new(descriptor.clone());
        let way = match tls {
            None => open(Stream::Plain(socket)),
            Some(tls) => Way::Shaking(Box::pin(tls.connect(socket)), None),
        };
        let woken = Arc::new(Woken::default());
        Self {
            descriptor,
            seen,
            waker: Waker::from(woken.clone()),
            woken,
            way,
            stage: Stage::None,
            head: None,
            arrived: VecDeque::new(),
            arrived_bytes: 0,
            pieces: None,
        }
    }

    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }

    /// Only on a new connection, or on one that is idle. Nothing is sent before it is driven.
    pub fn ask(&mut self, request: Request) {
        self.seen.begin_exchange();
        self.pieces = Some(request.pieces);
        self.head = None;
        match &mut self.way {
            Way::Open(sender, _) => {
                self.stage = Stage::Awaited(Box::pin(sender.try_send_request(request.message)));
            }
            Way::Shaking(_, waiting) => *waiting = Some(Box::new(request.message)),
            Way::Broken => self.stage = Stage::Failed(Failure::Unsent),
        }
    }

    /// More of the request's body. Nothing is sent before the connection is driven.
    pub fn push(&mut self, piece: Bytes, is_complete: bool) {
        if let Some(pieces) = &self.pieces {
            pieces.push(piece, is_complete);
        }
    }

    /// Whether more of the request's body may come.
    pub fn has_room(&self) -> bool {
        self.pieces.as_ref().is_none_or(|pieces| pieces.waiting_bytes() < WAITING_BYTES)
    }

    /// Does all that can be done without waiting. `look_again` where the socket may have news.
    pub fn drive(&mut self, look_again: bool) -> Interest {
        self.seen.begin_turn(look_again);
        for _ in 0..ROUNDS {
            self.woken.0.store(false, Relaxed);
            self.drive_way();
            self.drive_answer();
            if !self.woken.0.load(Relaxed) {
                return self.interest(false);
            }
        }
        self.interest(true)
    }

    fn interest(&self, turn: bool) -> Interest {
        if matches!(self.way, Way::Broken) {
            return Interest::default();
        }
        Interest { bytes: self.seen.awaits_bytes(), room: self.seen.awaits_room(), turn }
    }

    fn drive_way(&mut self) {
        let mut context = Context::from_waker(&self.waker);
        if let Way::Shaking(shaking, waiting) = &mut self.way {
            match shaking.as_mut().poll(&mut context) {
                Poll::Pending => return,
                Poll::Ready(Err(error)) => {
                    log::debug!("a server was not reached: {error}");
                    self.way = Way::Broken;
                    self.stage = Stage::Failed(Failure::Unsent);
                    return;
                }
                Poll::Ready(Ok(stream)) => {
                    let waiting = waiting.take();
                    self.way = open(Stream::Secure(Box::new(stream)));
                    self.seen.begin_exchange();
                    if let (Way::Open(sender, _), Some(message)) = (&mut self.way, waiting) {
                        self.stage = Stage::Awaited(Box::pin(sender.try_send_request(*message)));
                    }
                }
            }
        }
        if let Way::Open(_, connection) = &mut self.way
            && let Poll::Ready(ended) = connection.as_mut().poll(&mut context)
        {
            if let Err(error) = ended {
                log::debug!("a connection to a server ended: {error}");
            }
            // Whoever waits for an answer hears of it by the drop.
            self.way = Way::Broken;
        }
    }

    fn drive_answer(&mut self) {
        let mut context = Context::from_waker(&self.waker);
        if let Stage::Awaited(asked) = &mut self.stage {
            match asked.as_mut().poll(&mut context) {
                Poll::Pending => return,
                Poll::Ready(Err(error)) => {
                    let is_unsent = error.message().is_some() || !self.seen.has_written();
                    log::debug!("a server has not answered: {}", error.error());
                    let failure = if is_unsent { Failure::Unsent } else { self.failure() };
                    return self.fail(failure);
                }
                Poll::Ready(Ok(response)) => {
                    let (head, body) = response.into_parts();
                    // Nobody has asked for another protocol.
                    if head.status == StatusCode::SWITCHING_PROTOCOLS || head.status.as_u16() >= 600 {
                        return self.fail(Failure::Broken);
                    }
                    self.head = Some(Head { status: head.status.as_u16(), headers: head.headers });
                    self.stage = Stage::Body(body);
                }
            }
        }
        while let Stage::Body(body) = &mut self.stage
            && self.arrived_bytes < WAITING_BYTES
        {
            match Pin::new(body).poll_frame(&mut context) {
                Poll::Pending => return,
                Poll::Ready(None) => self.stage = Stage::Whole,
                Poll::Ready(Some(Err(error))) => {
                    log::debug!("an answer of a server broke off: {error}");
                    return self.fail(Failure::Broken);
                }
                Poll::Ready(Some(Ok(frame))) => {
                    // Trailers say nothing that the protocol knows.
                    if let Ok(data) = frame.into_data()
                        && !data.is_empty()
                    {
                        self.arrived_bytes += data.len();
                        self.arrived.push_back(data);
                    }
                }
            }
        }
    }

    fn failure(&self) -> Failure {
        match self.pieces.as_ref().and_then(Pieces::misfit) {
            Some(misfit) => Failure::Misfit(misfit),
            None if self.seen.has_read() => Failure::Broken,
            None => Failure::Unanswered,
        }
    }

    fn fail(&mut self, failure: Failure) {
        self.stage = Stage::Failed(failure);
        self.way = Way::Broken;
    }

    /// The head of the answer, once.
    pub fn take_head(&mut self) -> Option<Head> {
        self.head.take()
    }

    /// What has come of the answer's body since the last time. Whoever has taken it drives the connection.
    pub fn take_body(&mut self) -> impl Iterator<Item = Bytes> + '_ {
        self.arrived_bytes = 0;
        self.arrived.drain(..)
    }

    /// The bytes of an answer that has come whole and goes out whole, see [`super::whole`]. Once, and only
    /// where nothing was taken of it.
    pub fn take_whole(&mut self, before: &[u8]) -> Option<Vec<u8>> {
        let head = self.head.as_ref().filter(|_| self.is_whole())?;
        self.arrived.make_contiguous();
        let bytes = written(head.status, &head.headers, self.arrived.as_slices().0, before)?;
        self.head = None;
        self.take_body().for_each(drop);
        Some(bytes)
    }

    pub fn has_head(&self) -> bool {
        self.head.is_some()
    }

    /// There is an answer, or the beginning of one, or there will be none.
    pub fn has_news(&self) -> bool {
        self.has_head() || self.failure_of_answer().is_some()
    }

    pub fn has_body(&self) -> bool {
        !self.arrived.is_empty()
    }

    /// Nothing of the answer is to come.
    pub fn is_whole(&self) -> bool {
        matches!(self.stage, Stage::Whole)
    }

    pub fn failure_of_answer(&self) -> Option<Failure> {
        if let Stage::Failed(failure) = self.stage { Some(failure) } else { None }
    }

    /// Whether another request may be sent: the last one was sent whole, and its answer has come whole.
    pub fn is_idle(&self) -> bool {
        let is_sent = self.pieces.as_ref().is_none_or(Pieces::is_taken);
        let is_answered = matches!(self.stage, Stage::None | Stage::Whole) && self.arrived.is_empty();
        is_sent
            && is_answered
            && !self.seen.awaits_room()
            && matches!(&self.way, Way::Open(sender, _) if sender.is_ready())
    }

    pub fn is_broken(&self) -> bool {
        matches!(self.way, Way::Broken)
    }

    /// TLS, where it is spoken, is agreed on.
    pub fn is_open(&self) -> bool {
        matches!(self.way, Way::Open(..))
    }
}

fn open(stream: Stream) -> Way {
    let mut builder = http1::Builder::new();
    builder.max_buf_size(BUFFER_BYTES);
    let handshake = pin!(builder.handshake(TokioIo::new(stream)));
    // There is nothing to wait for in it.
    match handshake.poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(Ok((sender, connection))) => Way::Open(sender, Box::pin(connection)),
        Poll::Ready(Err(_)) | Poll::Pending => Way::Broken,
    }
}

enum Stream {
    Plain(Socket),
    Secure(Box<TlsStream<Socket>>),
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(socket) => Pin::new(socket).poll_read(context, buffer),
            Self::Secure(stream) => Pin::new(stream).poll_read(context, buffer),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(socket) => Pin::new(socket).poll_write(context, bytes),
            Self::Secure(stream) => Pin::new(stream).poll_write(context, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(socket) => Pin::new(socket).poll_flush(context),
            Self::Secure(stream) => Pin::new(stream).poll_flush(context),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(socket) => Pin::new(socket).poll_shutdown(context),
            Self::Secure(stream) => Pin::new(stream).poll_shutdown(context),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Self::Plain(socket) => socket.is_write_vectored(),
            Self::Secure(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(socket) => Pin::new(socket).poll_write_vectored(context, pieces),
            Self::Secure(stream) => Pin::new(stream).poll_write_vectored(context, pieces),
        }
    }
}
