//! A request whose texts are answered one by one.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use kushi_core::{Batch, Buffer, DataType, Error, ErrorKind, Labels, Parameter, Response, Shape, Tensor};
use smallvec::smallvec;

use super::TextModel;
use super::model::{FirstText, Text, Wish};

use crate::value::OwnedFloats;

/// The parameter of an answer that says how many tokens its texts had.
const INPUT_TOKENS: &str = "input_tokens";

/// Ends its request when all texts are answered, or one cannot be.
pub(super) struct Job {
    state: Mutex<State>,
    texts: usize,
    width: usize,
    labels: Option<Arc<[Labels]>>,
    pub(super) wish: Wish,
    /// The first text of the last pair, made tokens.
    first: Mutex<Option<FirstText>>,
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
    /// Of the texts that are answered.
    tokens: usize,
}

impl Job {
    /// `batch` has one request.
    pub(super) fn new(
        mut batch: Batch,
        texts: usize,
        model: &TextModel,
        wish: Wish,
        weight: usize,
        is_bulk: bool,
    ) -> Self {
        batch.runs_apart();
        let state = State { batch: Some(batch), answers: Vec::new(), open: texts, tokens: 0 };
        Self {
            state: Mutex::new(state),
            texts,
            width: model.width(),
            labels: model.labels(),
            wish,
            first: Mutex::new(None),
            weight,
            is_bulk,
            has_left: AtomicBool::new(false),
        }
    }

    pub(super) fn take_first(&self) -> Option<FirstText> {
        self.first.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// For the next pair.
    pub(super) fn keep_first(&self, first: Option<FirstText>) {
        *self.first.lock().unwrap_or_else(PoisonError::into_inner) = first;
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

    /// A batch with a text of it has run. False where it has ended.
    pub(super) fn ran(&self, rows: usize, took: Duration) -> bool {
        self.state().batch.as_ref().inspect(|batch| batch.ran(rows, took)).is_some()
    }

    /// The answer to the text in this place, which has so many tokens and which `write` writes.
    pub(super) fn answer(&self, text: usize, tokens: usize, write: impl FnOnce(&mut [f32])) {
        let mut state = self.state();
        if state.batch.is_none() {
            return;
        }
        write(&mut state.answers[text * self.width..(text + 1) * self.width]);
        state.open -= 1;
        state.tokens += tokens;
        if state.open > 0 {
            return;
        }
        let (batch, answers) = (state.batch.take(), std::mem::take(&mut state.answers));
        let tokens = state.tokens;
        drop(state);
        if let Some(mut batch) = batch {
            batch.computed();
            self.end_with(batch, answers, tokens);
        }
    }

    /// Of a request without texts.
    pub(super) fn end_empty(&self) {
        let batch = self.state().batch.take();
        if let Some(batch) = batch {
            self.end_with(batch, Vec::new(), 0);
        }
    }

    fn end_with(&self, mut batch: Batch, answers: Vec<f32>, tokens: usize) {
        let mut tensor = self.tensor(answers);
        let spec = batch.spec();
        spec.outputs[0].give_shape(&mut tensor, spec.batch_dims());
        let outputs = smallvec![(0, tensor)];
        let parameters = vec![(INPUT_TOKENS.to_owned(), Parameter::Int(tokens as i64))];
        batch.end_with(0, Response { outputs, parameters, labels: self.labels.clone() });
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tensor(&self, answers: Vec<f32>) -> Tensor {
        let shape = Shape::from_slice(&[self.texts as i64, self.width as i64]);
        Tensor { datatype: DataType::Fp32, shape, data: Buffer::from_owner(OwnedFloats(answers)) }
    }
}

/// The texts of a request, with those that belong to them where a second input has such.
pub(super) fn texts(inputs: &[Option<Tensor>]) -> Result<Vec<Text>, Error> {
    let strings = |place: usize| inputs.get(place).and_then(Option::as_ref).map(strings);
    let first = strings(0).unwrap_or_default();
    let Some(second) = strings(1) else {
        return Ok(first.into_iter().map(|first| Text { first, second: None }).collect());
    };
    if first.len() != second.len() {
        let text = format!("{} texts come with {} others, expected as many", first.len(), second.len());
        return Err(Error::new(ErrorKind::InvalidInput, text));
    }
    let pairs = first.into_iter().zip(second);
    Ok(pairs.map(|(first, second)| Text { first, second: Some(second) }).collect())
}

fn strings(tensor: &Tensor) -> Vec<Buffer> {
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
