//! A connection's bytes, watched: whether the client takes what is written.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use hyper::rt::{Read, ReadBufCursor, Write};

use crate::io::Desk;

/// Counted as blocked from a write that finds no room until everything is written, which is when the
/// connection flushes.
pub(crate) struct Watched<'a, I> {
    io: I,
    desk: &'a Desk,
    blocked: bool,
}

impl<'a, I> Watched<'a, I> {
    pub(crate) fn new(io: I, desk: &'a Desk) -> Self {
        Self { io, desk, blocked: false }
    }

    fn note_blocked(&mut self, blocked: bool) {
        if self.blocked != blocked {
            self.blocked = blocked;
            self.desk.count_blocked(blocked);
        }
    }
}

impl<I> Drop for Watched<'_, I> {
    fn drop(&mut self) {
        self.note_blocked(false);
    }
}

impl<I: Read + Unpin> Read for Watched<'_, I> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_read(context, buffer)
    }
}

impl<I: Write + Unpin> Write for Watched<'_, I> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.io).poll_write(context, bytes);
        if written.is_pending() {
            self.note_blocked(true);
        }
        written
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.note_blocked(false);
        Pin::new(&mut self.io).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
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
        let written = Pin::new(&mut self.io).poll_write_vectored(context, pieces);
        if written.is_pending() {
            self.note_blocked(true);
        }
        written
    }
}
