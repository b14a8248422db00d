//! The body of an answer, which tells the connection when hyper has taken all of it.

use std::cell::Cell;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Instant;

use hyper::body::{Body, Frame, SizeHint};
use kushi_dataplane::{Event, Trace};
use kushi_net::Activity;

use crate::answer::Chunks;

/// hyper drops it with its last piece, before that piece is written.
pub(crate) struct Owed {
    chunks: Chunks,
    activity: Rc<Activity>,
    traced: Rc<Traced>,
}

/// The trace of an answer that the connection has whole and may not have written.
#[derive(Default)]
pub(crate) struct Traced(Cell<Option<Trace>>);

impl Traced {
    /// All has left.
    pub(crate) fn has_flushed(&self) {
        if let Some(trace) = self.0.take() {
            trace.mark(Event::HttpSendEnd, Instant::now());
        }
    }
}

impl Owed {
    pub(crate) fn new(chunks: Chunks, activity: &Rc<Activity>, traced: &Rc<Traced>) -> Self {
        activity.has_answered();
        Self { chunks, activity: activity.clone(), traced: traced.clone() }
    }
}

impl Drop for Owed {
    fn drop(&mut self) {
        self.activity.has_given_all();
        if let Some(trace) = self.chunks.take_trace() {
            self.traced.0.set(Some(trace));
        }
    }
}

impl Body for Owed {
    type Data = <Chunks as Body>::Data;
    type Error = <Chunks as Body>::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        Pin::new(&mut self.chunks).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.chunks.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.chunks.size_hint()
    }
}
