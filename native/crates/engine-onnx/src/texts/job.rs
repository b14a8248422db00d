//! A request whose texts are answered one by one.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use kushi_core::{Batch, Buffer, DataType, Error, ErrorKind, Shape, Tensor};

use crate::value::OwnedFloats;

/// Ends its request when all texts are answered, or one cannot be.
pub(super) struct Job {
    state: Mutex<State>,
    texts: usize,
    width: usize,
    /// What it adds to what is owed.
    pub(super) weight: usize,
    pub(super) is_bulk: bool,
    has_left: AtomicBool,
}

struct State {
    /// Of this request alone; `None` once it has ended.
    batch: Option<Batch>,
    /// Empty until the first one comes.
    answers: Vec<f32>,
    open: usize,
}

impl Job {
    /// `batch` has one request.
    pub(super) fn new(batch: Batch, texts: usize, width: usize, weight: usize, is_bulk: bool) -> Self {
        let state = State { batch: Some(batch), answers: Vec::new(), open: texts };
        Self { state: Mutex::new(state), texts, width, weight, is_bulk, has_left: AtomicBool::new(false) }
    }

    /// Whether it has not ended, though perhaps nobody waits for it.
    pub(super) fn is_open(&self) -> bool {
        self.state().batch.is_some()
    }

    /// Whether it has ended, and nobody has asked so since.
    pub(super) fn leaves(&self) -> bool {
        !self.is_open() && !self.has_left.swap(true, Ordering::AcqRel)
    }

    /// Ends it where nobody waits for it any more.
    pub(super) fn end_abandoned(&self) {
        self.end(|batch| batch.is_abandoned(0), &Error::cancelled());
    }

    pub(super) fn fail(&self, error: &Error) {
        self.end(|_| true, error);
    }

    fn end(&self, when: impl FnOnce(&mut Batch) -> bool, error: &Error) {
        let mut state = self.state();
        let Some(batch) = state.batch.take_if(when) else { return };
        let answers = std::mem::take(&mut state.answers);
        drop(state);
        drop(answers);
        batch.fail(error);
    }

    /// One of its texts is about to run.
    pub(super) fn begin(&self) {
        let mut state = self.state();
        if !state.answers.is_empty() {
            return;
        }
        let Some(batch) = &mut state.batch else { return };
        batch.begun();
        let size = self.texts * self.width;
        if state.answers.try_reserve_exact(size).is_ok() {
            state.answers.resize(size, 0.0);
            return;
        }
        drop(state);
        let text = format!("there is no memory for {size} numbers of an answer");
        self.fail(&Error::new(ErrorKind::EngineFailed, text));
    }

    /// The answer to the text in this place, which `write` writes.
    pub(super) fn answer(&self, text: usize, write: impl FnOnce(&mut [f32])) {
        let mut state = self.state();
        if state.batch.is_none() {
            return;
        }
        write(&mut state.answers[text * self.width..(text + 1) * self.width]);
        state.open -= 1;
        if state.open > 0 {
            return;
        }
        let (batch, answers) = (state.batch.take(), std::mem::take(&mut state.answers));
        drop(state);
        if let Some(mut batch) = batch {
            batch.computed();
            batch.scatter(&[Some(self.tensor(answers))]);
        }
    }

    /// Of a request without texts.
    pub(super) fn end_empty(&self) {
        let batch = self.state().batch.take();
        if let Some(batch) = batch {
            batch.scatter(&[Some(self.tensor(Vec::new()))]);
        }
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
