//! A connection's bytes, watched: whether they come, and whether the client takes what is written. The answer that
//! hyper writes by itself, to a head that it cannot read, gets its words here.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use hyper::rt::{Read, ReadBufCursor, Write};

use crate::activity::Activity;
use crate::http::head;
use crate::io::Desk;

/// Counted as blocked from a write that finds no room until everything is written, which is when the
/// connection flushes.
pub(crate) struct Watched<'a, I> {
    io: I,
    desk: &'a Desk,
    activity: &'a Activity,
}

impl<'a, I> Watched<'a, I> {
    pub(crate) fn new(io: I, desk: &'a Desk, activity: &'a Activity) -> Self {
        Self { io, desk, activity }
    }

    fn note_blocked(&self, blocked: bool) {
        if self.activity.set_blocked(blocked) {
            self.desk.count_blocked(blocked);
        }
    }

    fn note_written(&self, written: &Poll<io::Result<usize>>) {
        match written {
            Poll::Pending => self.note_blocked(true),
            Poll::Ready(_) => self.activity.has_written(),
        }
    }

    fn explained(&self, pieces: &[io::IoSlice<'_>]) -> Option<Vec<u8>> {
        let [only, none @ ..] = pieces else { return None };
        let alone = self.activity.owes_nothing() && none.iter().all(|piece| piece.is_empty());
        if alone { head::explained(only, &self.desk.house.limits) } else { None }
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
        let read = Pin::new(&mut self.io).poll_read(context, buffer);
        if read.is_ready() {
            self.activity.has_read();
        }
        read
    }
}

impl<I: Write + Unpin> Write for Watched<'_, I> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = match self.explained(&[io::IoSlice::new(bytes)]) {
            None => Pin::new(&mut self.io).poll_write(context, bytes),
            // All that was written before has left: there is room for this.
            Some(more) => Pin::new(&mut self.io).poll_write(context, &more).map_ok(|_| bytes.len()),
        };
        self.note_written(&written);
        written
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.io).poll_flush(context);
        // What was written may wait below, as it does with TLS.
        self.note_blocked(flushed.is_pending());
        if flushed.is_ready() {
            self.activity.has_flushed();
        }
        flushed
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
        let written = match self.explained(pieces) {
            None => Pin::new(&mut self.io).poll_write_vectored(context, pieces),
            Some(more) => Pin::new(&mut self.io).poll_write(context, &more).map_ok(|_| pieces[0].len()),
        };
        self.note_written(&written);
        written
    }
}
