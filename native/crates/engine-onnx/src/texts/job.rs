//! A request whose texts are answered one by one.

use std::sync::{Mutex, MutexGuard, PoisonError};

use kushi_core::{Batch, Buffer, DataType, Error, Shape, Tensor};

/// Ends its request when all texts are answered, or one cannot be.
pub(super) struct Job {
    state: Mutex<State>,
    texts: usize,
    pub(super) is_bulk: bool,
}

struct State {
    /// Of this request alone; `None` once it has ended.
    batch: Option<Batch>,
    answers: Vec<f32>,
    open: usize,
}

impl Job {
    /// `batch` has one request.
    pub(super) fn new(batch: Batch, texts: usize, width: usize, is_bulk: bool) -> Self {
        let state = State { batch: Some(batch), answers: vec![0.0; texts * width], open: texts };
        Self { state: Mutex::new(state), texts, is_bulk }
    }

    /// Whether somebody still waits for it. Where nobody does, it ends here.
    pub(super) fn is_wanted(&self) -> bool {
        let mut state = self.state();
        if state.batch.as_ref().is_some_and(|batch| batch.is_abandoned(0)) {
            let batch = state.batch.take();
            drop(state);
            if let Some(batch) = batch {
                batch.fail(&Error::cancelled());
            }
            return false;
        }
        state.batch.is_some()
    }

    /// The answer to the text in this place, which `write` writes.
    pub(super) fn answer(&self, text: usize, write: impl FnOnce(&mut [f32])) {
        let mut state = self.state();
        if state.batch.is_none() {
            return;
        }
        let width = state.answers.len() / self.texts;
        write(&mut state.answers[text * width..(text + 1) * width]);
        state.open -= 1;
        if state.open > 0 {
            return;
        }
        let (batch, answers) = (state.batch.take(), std::mem::take(&mut state.answers));
        drop(state);
        let Some(mut batch) = batch else { return };
        batch.computed();
        batch.scatter(&[Some(tensor(&answers, self.texts, width))]);
    }

    /// Of a request without texts.
    pub(super) fn end_empty(&self, width: usize) {
        let batch = self.state().batch.take();
        if let Some(batch) = batch {
            batch.scatter(&[Some(tensor(&[], 0, width))]);
        }
    }

    pub(super) fn fail(&self, error: &Error) {
        let batch = self.state().batch.take();
        if let Some(batch) = batch {
            batch.fail(error);
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn tensor(answers: &[f32], rows: usize, width: usize) -> Tensor {
    let bytes: Vec<u8> = answers.iter().flat_map(|value| value.to_le_bytes()).collect();
    let shape = Shape::from_slice(&[rows as i64, width as i64]);
    Tensor { datatype: DataType::Fp32, shape, data: Buffer::host(bytes) }
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
