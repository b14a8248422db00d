//! Executes requests of texts on a session, with threads of its own: one for each instance.

use std::collections::VecDeque;
use std::ffi::{CStr, CString};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use kushi_core::{
    Batch, Buffer, Capability, DataType, Engine, Error, ErrorKind, ModelSpec, Shape, Slot, SlotToken,
    TensorInfo, lower_priority, os_text,
};
use kushi_text::{Tokenizer, Tokens};
use serde::Deserialize;
use smallvec::SmallVec;

use super::job::{Job, texts};
use super::pool::{Budget, Waiting, choose};
use super::pooling::{Activation, Pooling, activate, pool};
use super::row::{Inputs, Row};
use crate::OnnxSession;
use crate::engine::c_string;
use crate::options::RunOptions;
use crate::value::InputValue;

/// Of a request with more texts than these, others do not wait for all.
const FEW: usize = 8;
/// So many tokens may wait beyond those that run, in numbers of batches: of more, none are made yet.
const AHEAD: usize = 16;
/// Texts that are made tokens in one go.
const AT_ONCE: usize = 16;
/// What waits here at most, before requests wait in the queue.
const MOST_REQUESTS: usize = 1024;
const MOST_ROWS_OF_A_BATCH: usize = 256;

/// What a model does with texts.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TextOptions {
    pub pooling: Pooling,
    pub activation: Activation,
    /// The network's output that is the answer.
    pub output: String,
    /// Tokens of a text; `None`: what the tokenizer says.
    pub longest: Option<usize>,
    /// Of a batch, those behind the ends of shorter texts among them.
    pub batch_tokens: usize,
}

/// A network, and what makes tokens for it.
pub struct TextModel {
    session: Arc<OnnxSession>,
    tokenizer: Tokenizer,
    options: TextOptions,
    inputs: Vec<(CString, Role)>,
    output: CString,
    /// Numbers of an answer.
    width: usize,
}

#[derive(Clone, Copy)]
enum Role {
    Ids,
    Mask,
    Types,
}

impl TextModel {
    /// `tokenizer`: the content of its file.
    pub fn new(session: Arc<OnnxSession>, tokenizer: &[u8], options: TextOptions) -> Result<Self, Error> {
        let fault = |text: String| Error::new(ErrorKind::ConfigInvalid, text);
        let tokenizer = Tokenizer::new(tokenizer, options.longest)
            .map_err(|text| fault(format!("its tokenizer.json cannot be used: {text}")))?;
        let inputs = session.inputs().iter().map(role).collect::<Result<Vec<_>, _>>().map_err(fault)?;
        let output = session.outputs().iter().find(|output| output.name == options.output);
        let output =
            output.ok_or_else(|| fault(format!("the network has no output '{}'", options.output)))?;
        let width = width(output, options.pooling).map_err(fault)?;
        let output = c_string(&output.name);
        Ok(Self { session, tokenizer, options, inputs, output, width })
    }

    /// Numbers of an answer.
    pub fn width(&self) -> usize {
        self.width
    }

    /// Tokens of a text at most.
    pub fn longest(&self) -> usize {
        self.tokenizer.longest()
    }

    fn tokens(&self, text: &Buffer) -> Result<Tokens, Error> {
        let fault = |text: String| Error::new(ErrorKind::InvalidInput, text);
        let text = std::str::from_utf8(text.as_bytes())
            .map_err(|error| fault(format!("a text is no UTF-8: {error}")))?;
        let tokens = self.tokenizer.encode(text, None);
        tokens.map_err(|error| fault(format!("a text cannot be made tokens: {error}")))
    }

    fn run(&self, options: &RunOptions, rows: &[Row]) -> Result<(), Error> {
        let inputs = Inputs::of(rows, self.tokenizer.pad());
        let shape = Shape::from_slice(&[rows.len() as i64, inputs.length as i64]);
        let mut values = SmallVec::<[InputValue<'_>; 4]>::new();
        let mut names = SmallVec::<[&CStr; 4]>::new();
        for (name, role) in &self.inputs {
            let numbers = match role {
                Role::Ids => &inputs.ids,
                Role::Mask => &inputs.mask,
                Role::Types => &inputs.types,
            };
            values.push(InputValue::of_integers(&shape, numbers)?);
            names.push(name);
        }
        let outputs = self.session.run(options, &names, &values, &[&self.output])?;
        let numbers = outputs[0].floats()?;
        let per_row =
            if self.options.pooling == Pooling::None { self.width } else { self.width * inputs.length };
        if numbers.len() != rows.len() * per_row {
            let text = format!("the network answers {} numbers to {} rows", numbers.len(), rows.len());
            return Err(Error::new(ErrorKind::EngineFailed, text));
        }
        for (row, given) in rows.iter().zip(numbers.chunks_exact(per_row)) {
            row.job.answer(row.text, |answer| {
                pool(self.options.pooling, given, row.tokens.ids.len(), answer);
                activate(self.options.activation, answer);
            });
        }
        Ok(())
    }
}

fn role(input: &TensorInfo) -> Result<(CString, Role), String> {
    let role = match input.name.as_str() {
        "input_ids" => Role::Ids,
        "attention_mask" => Role::Mask,
        "token_type_ids" => Role::Types,
        other => {
            return Err(format!(
                "the network takes '{other}', expected input_ids, attention_mask, token_type_ids"
            ));
        }
    };
    if input.datatype != DataType::Int64 {
        return Err(format!("the network takes '{}' as {}, expected INT64", input.name, input.datatype));
    }
    Ok((c_string(&input.name), role))
}

fn width(output: &TensorInfo, pooling: Pooling) -> Result<usize, String> {
    let fault = |expected: &str| {
        format!(
            "the network's output '{}' is {} {:?}, expected {expected}",
            output.name, output.datatype, output.shape
        )
    };
    let rank = if pooling == Pooling::None { 2 } else { 3 };
    match (output.datatype, output.shape.as_deref()) {
        (DataType::Fp32, Some(shape)) if shape.len() == rank => {
            let last = usize::try_from(shape[rank - 1]).ok().filter(|&width| width > 0);
            last.ok_or_else(|| fault("a last dimension that is known"))
        }
        _ if rank == 2 => Err(fault("FP32 numbers of each text")),
        _ => Err(fault("FP32 numbers of each token of each text")),
    }
}

/// Ends its threads when it is dropped, behind what they have been given.
pub struct TextEngine(Arc<Shared>);

struct Shared {
    model: Arc<TextModel>,
    run_options: RunOptions,
    state: Mutex<State>,
    news: Condvar,
}

#[derive(Default)]
struct State {
    /// Requests whose texts are not all tokens yet, with the number of those that are.
    arrived: VecDeque<(Arc<Job>, Vec<Buffer>, usize)>,
    /// In the order in which they came.
    rows: Vec<Row>,
    tokens: usize,
    requests: usize,
    turn: u64,
    /// Slots that come back when there is room.
    held: Vec<SlotToken>,
    closed: bool,
}

/// What a thread does next.
enum Work {
    Tokenise(Arc<Job>, Vec<(usize, Buffer)>),
    Run(Vec<Row>),
}

impl TextEngine {
    pub fn new(model: Arc<TextModel>, spec: &ModelSpec) -> Result<Self, Error> {
        let fault =
            |text: String| Error::new(ErrorKind::ConfigInvalid, format!("model '{}': {text}", spec.name));
        let run_options = RunOptions::of(model.session.run_entries()).map_err(fault)?;
        let shared = Arc::new(Shared { model, run_options, state: Mutex::default(), news: Condvar::new() });
        let engine = Self(shared);
        for index in 0..spec.instances {
            let shared = engine.0.clone();
            let thread = std::thread::Builder::new().name(format!("{}_{index}", spec.name));
            let started = thread.spawn(move || {
                lower_priority();
                shared.work();
            });
            started.map_err(|error| {
                Error::new(
                    ErrorKind::Internal,
                    format!("cannot start an instance thread: {}", os_text(&error)),
                )
            })?;
        }
        Ok(engine)
    }
}

impl Engine for TextEngine {
    fn capability(&self) -> Capability {
        Capability { concurrent: true, inline: false, keeps_slots: true }
    }

    fn execute(&self, _slot: &mut Slot, batch: Batch) {
        for request in batch.take_apart() {
            self.0.enter(request);
        }
    }

    fn begin(&self, mut slot: SlotToken, batch: Batch) {
        self.execute(&mut slot, batch);
        let mut state = self.0.state();
        if state.requests >= MOST_REQUESTS {
            state.held.push(slot);
        }
    }
}

impl Drop for TextEngine {
    fn drop(&mut self) {
        self.0.state().closed = true;
        self.0.news.notify_all();
    }
}

impl Shared {
    fn enter(&self, request: Batch) {
        let Some(asked) = request.request(0) else { return };
        let texts = asked.inputs[0].as_ref().map(texts).unwrap_or_default();
        let job = Arc::new(Job::new(request, texts.len(), self.model.width, texts.len() > FEW));
        if texts.is_empty() {
            return job.end_empty(self.model.width);
        }
        let mut state = self.state();
        state.requests += 1;
        state.arrived.push_back((job, texts, 0));
        drop(state);
        self.news.notify_one();
    }

    /// On a thread of its own, until the model goes.
    fn work(&self) {
        while let Some(work) = self.next() {
            match work {
                Work::Tokenise(job, texts) => self.tokenise(&job, &texts),
                Work::Run(rows) => self.run(rows),
            }
        }
    }

    fn next(&self) -> Option<Work> {
        let mut state = self.state();
        loop {
            if let Some(work) = state.next(&self.model.options) {
                if state.has_work() {
                    self.news.notify_one();
                }
                let room = state.requests < MOST_REQUESTS;
                let back = if room { std::mem::take(&mut state.held) } else { Vec::new() };
                drop(state);
                drop(back);
                return Some(work);
            }
            if state.closed {
                return None;
            }
            state = self.news.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn tokenise(&self, job: &Arc<Job>, texts: &[(usize, Buffer)]) {
        let made: Result<Vec<Row>, Error> = texts
            .iter()
            .map(|(text, content)| {
                Ok(Row { job: job.clone(), text: *text, tokens: self.model.tokens(content)? })
            })
            .collect();
        match made {
            Ok(rows) => {
                let mut state = self.state();
                state.tokens += rows.iter().map(|row| row.tokens.ids.len()).sum::<usize>();
                state.rows.extend(rows);
                drop(state);
                self.news.notify_one();
            }
            Err(error) => job.fail(&error),
        }
    }

    fn run(&self, mut rows: Vec<Row>) {
        rows.retain(|row| row.job.is_wanted());
        if rows.is_empty() {
            return;
        }
        if let Err(error) = self.model.run(&self.run_options, &rows) {
            for row in &rows {
                row.job.fail(&error);
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn has_work(&self) -> bool {
        !self.rows.is_empty() || !self.arrived.is_empty()
    }

    fn next(&mut self, options: &TextOptions) -> Option<Work> {
        if self.tokens < AHEAD * options.batch_tokens
            && let Some(work) = self.next_texts()
        {
            return Some(work);
        }
        let waiting: Vec<Waiting> = self
            .rows
            .iter()
            .map(|row| Waiting { tokens: row.tokens.ids.len(), is_bulk: row.job.is_bulk })
            .collect();
        let budget = Budget { tokens: options.batch_tokens, rows: MOST_ROWS_OF_A_BATCH };
        self.turn += 1;
        let mut chosen = choose(&waiting, budget, self.turn);
        if chosen.is_empty() {
            return None;
        }
        chosen.sort_unstable();
        let mut rows: Vec<Row> = chosen.iter().rev().map(|&at| self.rows.remove(at)).collect();
        rows.reverse();
        self.tokens -= rows.iter().map(|row| row.tokens.ids.len()).sum::<usize>();
        Some(Work::Run(rows))
    }

    /// Those of requests with a few texts first.
    fn next_texts(&mut self) -> Option<Work> {
        let place = self.arrived.iter().position(|(job, ..)| !job.is_bulk).unwrap_or_default();
        let (job, texts, made) = self.arrived.get_mut(place)?;
        let end = texts.len().min(*made + AT_ONCE);
        let part = (*made..end).map(|text| (text, texts[text].clone())).collect();
        let job = job.clone();
        *made = end;
        if end == texts.len() {
            self.arrived.remove(place);
            self.requests -= 1;
        }
        Some(Work::Tokenise(job, part))
    }
}
