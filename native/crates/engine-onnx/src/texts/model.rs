//! A network, and what makes tokens for it.

use std::ffi::{CStr, CString};
use std::sync::Arc;

use kushi_core::{Buffer, DataType, Error, ErrorKind, Shape, TensorInfo};
use kushi_text::{Tokenizer, Tokens};
use serde::Deserialize;
use smallvec::SmallVec;

use super::pooling::{Activation, Pooling, activate, pool};
use super::row::{Inputs, Row};
use crate::OnnxSession;
use crate::engine::c_string;
use crate::options::RunOptions;
use crate::value::InputValue;

/// For a guess.
const BYTES_OF_A_TOKEN: usize = 4;

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
    tokenizer: Arc<Tokenizer>,
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
        let tokenizer = Tokenizer::new(tokenizer, options.longest).map_err(|text| {
            Error::new(ErrorKind::ConfigInvalid, format!("its tokenizer.json cannot be used: {text}"))
        })?;
        Self::of(session, Arc::new(tokenizer), options)
    }

    /// The same on another session of the same file, with batches of so many tokens.
    pub fn on(&self, session: Arc<OnnxSession>, batch_tokens: usize) -> Result<Self, Error> {
        Self::of(session, self.tokenizer.clone(), TextOptions { batch_tokens, ..self.options.clone() })
    }

    fn of(session: Arc<OnnxSession>, tokenizer: Arc<Tokenizer>, options: TextOptions) -> Result<Self, Error> {
        let fault = |text: String| Error::new(ErrorKind::ConfigInvalid, text);
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

    pub(super) fn run_options(&self) -> Result<RunOptions, String> {
        RunOptions::of(self.session.run_entries())
    }

    pub(super) fn batch_tokens(&self) -> usize {
        self.options.batch_tokens
    }

    /// What texts cost at most, in tokens that are guessed by their bytes.
    pub(super) fn tokens_at_most(&self, texts: &[Buffer]) -> usize {
        texts.iter().map(|text| (text.len() / BYTES_OF_A_TOKEN).min(self.longest()) + 1).sum()
    }

    /// What is kept of texts and their answers.
    pub(super) fn bytes(&self, texts: &[Buffer]) -> usize {
        texts.iter().map(|text| text.len() + self.width * size_of::<f32>()).sum()
    }

    pub(super) fn tokens(&self, text: &Buffer) -> Result<Tokens, Error> {
        let fault = |text: String| Error::new(ErrorKind::InvalidInput, text);
        let text = std::str::from_utf8(text.as_bytes())
            .map_err(|error| fault(format!("a text is no UTF-8: {error}")))?;
        let tokens = self.tokenizer.encode(text);
        let tokens = tokens.map_err(|error| fault(format!("a text cannot be made tokens: {error}")))?;
        if tokens.ids.is_empty() {
            return Err(fault("a text has no tokens".to_owned()));
        }
        Ok(tokens)
    }

    /// Answers these rows.
    pub(super) fn run(&self, options: &RunOptions, rows: &[Row]) -> Result<(), Error> {
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
    if input.shape.as_deref() != Some(&[-1, -1]) {
        return Err(format!(
            "the network takes '{}' of the shape {:?}, expected any",
            input.name, input.shape
        ));
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
