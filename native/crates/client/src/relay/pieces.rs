//! The body of a request on its way out, which comes from outside piece by piece.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};

/// A body that is not what was announced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Misfit {
    Short,
    Long,
}

impl std::fmt::Display for Misfit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Short => "the request body ended early",
            Self::Long => "the request body is longer than its content-length",
        })
    }
}

impl std::error::Error for Misfit {}

/// One end of it; the other is [`OutgoingPieces`].
#[derive(Clone)]
pub(super) struct Pieces(Arc<Mutex<PiecesState>>);

struct PiecesState {
    waiting: VecDeque<Bytes>,
    waiting_bytes: usize,
    /// There will be no more.
    is_complete: bool,
    /// Of what was announced.
    left: Option<u64>,
    misfit: Option<Misfit>,
    /// The connection has taken all.
    is_taken: bool,
    waker: Option<Waker>,
}

impl PiecesState {
    /// What was announced is all, whether somebody says so or not.
    fn note_taken(&mut self) {
        self.is_taken = self.waiting.is_empty() && self.left.map_or(self.is_complete, |left| left == 0);
    }
}

impl Pieces {
    pub(super) fn new(length: Option<u64>, first: Bytes, is_complete: bool) -> Self {
        let pieces = Self(Arc::new(Mutex::new(PiecesState {
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            is_complete: false,
            left: length,
            misfit: None,
            is_taken: false,
            waker: None,
        })));
        pieces.push(first, is_complete);
        pieces
    }

    pub(super) fn push(&self, piece: Bytes, is_complete: bool) {
        let waker = {
            let mut state = self.state();
            if !piece.is_empty() && !state.is_complete {
                state.waiting_bytes += piece.len();
                state.waiting.push_back(piece);
            }
            state.is_complete |= is_complete;
            state.note_taken();
            state.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Bytes that the connection has not taken.
    pub(super) fn waiting_bytes(&self) -> usize {
        self.state().waiting_bytes
    }

    pub(super) fn is_taken(&self) -> bool {
        self.state().is_taken
    }

    pub(super) fn misfit(&self) -> Option<Misfit> {
        self.state().misfit
    }

    pub(super) fn outgoing(&self) -> OutgoingPieces {
        OutgoingPieces(self.clone())
    }

    fn state(&self) -> MutexGuard<'_, PiecesState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What hyper reads.
pub(super) struct OutgoingPieces(Pieces);

impl Body for OutgoingPieces {
    type Data = Bytes;
    type Error = Misfit;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Misfit>>> {
        let mut state = self.0.state();
        let Some(piece) = state.waiting.pop_front() else {
            if !state.is_complete {
                state.waker = Some(context.waker().clone());
                return Poll::Pending;
            }
            if state.left.unwrap_or(0) > 0 {
                state.misfit = Some(Misfit::Short);
                return Poll::Ready(Some(Err(Misfit::Short)));
            }
            state.note_taken();
            return Poll::Ready(None);
        };
        state.waiting_bytes -= piece.len();
        if let Some(left) = state.left {
            let Some(after) = left.checked_sub(piece.len() as u64) else {
                state.misfit = Some(Misfit::Long);
                return Poll::Ready(Some(Err(Misfit::Long)));
            };
            state.left = Some(after);
        }
        state.note_taken();
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.0.state().is_taken
    }

    fn size_hint(&self) -> SizeHint {
        self.0.state().left.map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}
