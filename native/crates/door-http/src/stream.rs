//! A connection's bytes, watched: whether they come, and whether the client takes what is written. The answer that
//! hyper writes by itself, to a head that it cannot read, gets its words here.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, BufMut, Bytes};
use kushi_net::Activity;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::HttpContext;
use crate::head;
use crate::owed::Traced;

/// The pieces of a write that are no longer together are joined: the kernel takes one piece faster than two.
const JOINED_BYTES: usize = 1024;

/// Counted as blocked from a write that finds no room until everything is written, which is when the
/// connection flushes.
pub(crate) struct WatchedSocket<'a, I> {
    io: I,
    /// Read before what comes.
    first: Bytes,
    context: &'a HttpContext,
    activity: &'a Activity,
    traced: &'a Traced,
    /// What stands for hyper's words, and has not left.
    words: Vec<u8>,
}

impl<'a, I> WatchedSocket<'a, I> {
    pub(crate) fn new(io: I, context: &'a HttpContext, activity: &'a Activity, traced: &'a Traced) -> Self {
        Self { io, first: Bytes::new(), context, activity, traced, words: Vec::new() }
    }

    /// Takes back what has been read and not used.
    pub(crate) fn unread(&mut self, bytes: &[u8]) {
        self.first = Bytes::copy_from_slice(bytes);
    }

    fn note_blocked(&self, blocked: bool) {
        if self.activity.set_blocked(blocked) {
            self.context.io.count_blocked(blocked);
        }
    }

    fn note_written(&self, written: &Poll<io::Result<usize>>) {
        match written {
            Poll::Pending => self.note_blocked(true),
            Poll::Ready(_) => self.activity.has_written(),
        }
    }

    /// Whether `bytes` were hyper's own words: others leave with the next flush.
    fn says_more(&mut self, bytes: &[u8]) -> bool {
        let words =
            self.activity.owes_nothing().then(|| head::explained(bytes, &self.context.http.limits)).flatten();
        let found = words.is_some();
        self.words.extend(words.unwrap_or_default());
        found
    }
}

impl<I: AsyncWrite + Unpin> WatchedSocket<'_, I> {
    fn poll_words(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.words.is_empty() {
            let written = Pin::new(&mut self.io).poll_write(context, &self.words);
            self.note_written(&written);
            match ready!(written)? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                count => drop(self.words.drain(..count)),
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl<I> Drop for WatchedSocket<'_, I> {
    fn drop(&mut self) {
        self.note_blocked(false);
    }
}

impl<I: AsyncRead + Unpin> AsyncRead for WatchedSocket<'_, I> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = if self.first.is_empty() {
            Pin::new(&mut self.io).poll_read(context, buffer)
        } else {
            let length = self.first.len().min(buffer.remaining());
            buffer.put_slice(&self.first[..length]);
            self.first.advance(length);
            Poll::Ready(Ok(()))
        };
        if read.is_ready() {
            self.activity.has_read(&buffer.filled()[before..]);
        }
        read
    }
}

impl<I: AsyncWrite + Unpin> AsyncWrite for WatchedSocket<'_, I> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if self.says_more(bytes) {
            return Poll::Ready(Ok(bytes.len()));
        }
        let written = Pin::new(&mut self.io).poll_write(context, bytes);
        self.note_written(&written);
        written
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_words(context))?;
        let flushed = Pin::new(&mut self.io).poll_flush(context);
        // What was written may wait below, as it does with TLS.
        self.note_blocked(flushed.is_pending());
        if flushed.is_ready() {
            self.activity.has_flushed();
            self.traced.has_flushed();
        }
        flushed
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.activity.leave();
        Pin::new(&mut self.io).poll_shutdown(context)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if let [only] = pieces
            && self.says_more(only)
        {
            return Poll::Ready(Ok(only.len()));
        }
        let length: usize = pieces.iter().map(|piece| piece.len()).sum();
        let written = if length <= JOINED_BYTES {
            let mut joined = [0; JOINED_BYTES];
            let mut rest = &mut joined[..];
            for piece in pieces {
                rest.put_slice(piece);
            }
            Pin::new(&mut self.io).poll_write(context, &joined[..length])
        } else {
            Pin::new(&mut self.io).poll_write_vectored(context, pieces)
        };
        self.note_written(&written);
        written
    }
}
