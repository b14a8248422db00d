//! A request whose texts are answered one by one.

use std::sync::{Mutex, MutexGuard, PoisonError};

use kushi_core::{Batch, Buffer, DataType, Error, Shape, Tensor};

use crate::value::OwnedFloats;

/// Ends its request when all texts are answered, or one cannot be.
pub(super) struct Job {
    state: Mutex<State>,
    texts: usize,
    width: usize,
    /// What it costs, in tokens that are guessed.
    pub(super) weight: usize,
    pub(super) is_bulk: bool,
}

struct State {
    /// Of this request alone; `None` once it has ended.
    batch: Option<Batch>,
    /// Empty until the first one comes.
    answers: Vec<f32>,
    open: usize,
}

/// Whether a call has ended the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(super) struct HasEnded(pub(super) bool);

impl Job {
    /// `batch` has one request.
    pub(super) fn new(batch: Batch, texts: usize, width: usize, weight: usize, is_bulk: bool) -> Self {
        let state = State { batch: Some(batch), answers: Vec::new(), open: texts };
        Self { state: Mutex::new(state), texts, width, weight, is_bulk }
    }

    /// Whether it has not ended, though perhaps nobody waits for it.
    pub(super) fn is_open(&self) -> bool {
        self.state().batch.is_some()
    }

    /// Ends it where nobody waits for it any more.
    pub(super) fn end_abandoned(&self) -> HasEnded {
        let abandoned = self.state().batch.take_if(|batch| batch.is_abandoned(0));
        let ended = HasEnded(abandoned.is_some());
        if let Some(batch) = abandoned {
            batch.fail(&Error::cancelled());
        }
        ended
    }

    /// One of its texts is about to run.
    pub(super) fn begin(&self) {
        let mut state = self.state();
        if state.answers.is_empty()
            && let Some(batch) = &mut state.batch
        {
            batch.begun();
            state.answers = vec![0.0; self.texts * self.width];
        }
    }

    /// The answer to the text in this place, which `write` writes.
    pub(super) fn answer(&self, text: usize, write: impl FnOnce(&mut [f32])) -> HasEnded {
        let mut state = self.state();
        if state.batch.is_none() {
            return HasEnded(false);
        }
        write(&mut state.answers[text * self.width..(text + 1) * self.width]);
        state.open -= 1;
        if state.open > 0 {
            return HasEnded(false);
        }
        let (batch, answers) = (state.batch.take(), std::mem::take(&mut state.answers));
        drop(state);
        if let Some(mut batch) = batch {
            batch.computed();
            batch.scatter(&[Some(self.tensor(answers))]);
        }
        HasEnded(true)
    }

    /// Of a request without texts.
    pub(super) fn end_empty(&self) {
        let batch = self.state().batch.take();
        if let Some(batch) = batch {
            batch.scatter(&[Some(self.tensor(Vec::new()))]);
        }
    }

    pub(super) fn fail(&self, error: &Error) -> HasEnded {
        let batch = self.state().batch.take();
        let ended = HasEnded(batch.is_some());
        if let Some(batch) = batch {
            batch.fail(error);
        }
        ended
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tensor(&self, answers: Vec<f32>) -> Tensor {
        let shape = Shape::from_slice(&[self.texts as i64, self.width as i64]);
        Tensor { datatype: DataType::Fp32, shape, data: Buffer::from_owner(OwnedFloats(answers)) }
    }
}

/// The texts of a tensor of BYTES.
pub(super) fn texts(tensor: &Tensor) -> Vec<Buffer> {
    let data = tensor.data.as_bytes();
    let mut texts = Vec::new();
    let mut at = 0;
    while let Some(length) = data.get(at..).and_then(<[u8]>::first_chunk::<4>) {
        let begin = at + length.len();
        let end = begin.saturating_add(u32::from_le_bytes(*length) as usize).min(data.len());
        texts.push(tensor.data.slice(begin..end));
        at = end;
    }
    texts
}
