//! A connection's bytes, watched: what comes, and whether the client takes what is written.

use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Instant;

use bytes::{Buf, Bytes};
use h2::Reason;
use kushi_net::IoContext;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::frame_heads::{FrameHeads, Idle};
use crate::line::{Line, Misbehaviour};

const GOAWAY: u8 = 7;
/// A write of so many holds more than replies to what a client has sent beside its calls: three pings too many end it.
const DATA_BYTES: usize = 1 << 10;

/// Counted as blocked from a write that finds no room until everything is written.
pub(crate) struct WatchedSocket<I> {
    inner: I,
    io: Rc<IoContext>,
    line: Rc<Line>,
    heads: FrameHeads,
    /// What is left of them to be sent.
    last_words: Option<Bytes>,
}

impl<I> WatchedSocket<I> {
    pub(crate) fn new(inner: I, io: Rc<IoContext>, line: Rc<Line>) -> Self {
        Self { inner, io, line, heads: FrameHeads::new(), last_words: None }
    }

    fn note_blocked(&self, blocked: bool) {
        if self.line.activity.set_blocked(blocked) {
            self.io.count_blocked(blocked);
        }
    }

    /// Why a client is dismissed: gRPC's own clients ask less often when they read it. It stands in a second GOAWAY,
    /// behind the one that HTTP/2 has sent without a word.
    fn last_words(&self) -> Bytes {
        let text: &[u8] = match self.line.misbehaviour() {
            Some(Misbehaviour::TooManyPings) => b"too_many_pings",
            Some(Misbehaviour::TooManyFrames) => b"too_many_frames",
            None => return Bytes::new(),
        };
        let length = [0, 0, (2 * size_of::<u32>() + text.len()) as u8];
        let stream = self.heads.last_stream().to_be_bytes();
        let reason = u32::from(Reason::ENHANCE_YOUR_CALM).to_be_bytes();
        [&length[..], &[GOAWAY, 0, 0, 0, 0, 0], &stream, &reason, text].concat().into()
    }

    fn note_written(&self, written: &Poll<io::Result<usize>>) {
        match written {
            Poll::Pending => self.note_blocked(true),
            Poll::Ready(written) => {
                self.line.activity.has_written();
                if written.as_ref().is_ok_and(|&bytes| bytes >= DATA_BYTES) {
                    self.line.has_sent_data();
                }
            }
        }
    }
}

impl<I> Drop for WatchedSocket<I> {
    fn drop(&mut self) {
        self.note_blocked(false);
    }
}

impl<I: AsyncRead + Unpin> AsyncRead for WatchedSocket<I> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.line.misbehaves() {
            // The connection is about to end: whoever polled it looks next.
            return Poll::Pending;
        }
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.inner).poll_read(context, buffer);
        let bytes = &buffer.filled()[before..];
        if read.is_ready() && !bytes.is_empty() {
            let Self { heads, line, .. } = &mut *self;
            line.hear();
            heads.read(bytes, |idle| match idle {
                Idle::Ping => line.has_pinged(Instant::now()),
                Idle::Settings => line.has_set(Instant::now()),
                Idle::Window => line.has_made_room(),
                Idle::Other => line.has_sent_idle_frame(),
            });
            if heads.began_wrong() {
                let text = "the first frame of the client is not SETTINGS";
                return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, text)));
            }
            if line.misbehaviour() == Some(Misbehaviour::TooManyFrames) {
                // HTTP/2 would do all that they ask for before anybody looks.
                buffer.set_filled(before);
                return Poll::Pending;
            }
        }
        read
    }
}

impl<I: AsyncWrite + Unpin> AsyncWrite for WatchedSocket<I> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.inner).poll_write(context, bytes);
        self.note_written(&written);
        written
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.inner).poll_flush(context);
        // What was written may wait below, as it does with TLS.
        self.note_blocked(flushed.is_pending());
        flushed
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut words = self.last_words.take().unwrap_or_else(|| self.last_words());
        // Everything that came before has been flushed: it ends with a whole frame.
        while !words.is_empty() {
            match Pin::new(&mut self.inner).poll_write(context, &words) {
                Poll::Ready(Ok(written @ 1..)) => words.advance(written),
                Poll::Ready(_) => words.clear(),
                Poll::Pending => {
                    self.last_words = Some(words);
                    return Poll::Pending;
                }
            }
        }
        self.last_words = Some(words);
        Pin::new(&mut self.inner).poll_shutdown(context)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.inner).poll_write_vectored(context, pieces);
        self.note_written(&written);
        written
    }
}
