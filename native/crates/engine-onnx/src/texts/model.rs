//! A network, and what makes tokens for it.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ffi::{CStr, CString};
use std::sync::Arc;
use std::time::Instant;

use kushi_core::{
    Buffer, DataType, Error, ErrorKind, Labels, Parameter, Shape, TensorInfo, TextAnswer, TextFacts,
};
use kushi_text::{Part, Tokenizer, Tokens};
use serde::Deserialize;
use serde::de::IntoDeserializer;
use smallvec::SmallVec;

use super::face::Face;
use super::pooling::{Activation, Pooling, activate, pool};
use super::row::{Inputs, Row};
use crate::OnnxSession;
use crate::engine::c_string;
use crate::options::RunOptions;
use crate::value::InputValue;

/// Of a request: the name of what is put before its texts, and what is done to the numbers of its answers.
const PROMPT: &str = "prompt_name";
const ACTIVATION: &str = "activation";
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
    /// Letters become small ones before all else.
    pub lower_case: bool,
    /// What is put before a text, by a name.
    pub prompts: BTreeMap<String, String>,
    /// What is put before a text where a request names nothing.
    pub prompt: String,
    /// To which numbers vectors may be cut; `None`: they may not, and empty: to any.
    pub dimensions: Option<Vec<usize>>,
    /// Whether it answers scores of classes, or vectors.
    pub scores: bool,
    /// What the classes of scores are called.
    pub labels: Vec<String>,
}

/// A text of a request, and the one that belongs to it.
#[derive(Clone, Debug)]
pub(super) struct Text {
    pub(super) first: Buffer,
    pub(super) second: Option<Buffer>,
}

impl Text {
    /// Of a pair: its first text is made tokens already.
    pub(super) fn repeats_first_of(&self, before: &Self) -> bool {
        self.second.is_some() && self.first.as_bytes() == before.first.as_bytes()
    }

    pub(super) fn bytes(&self) -> usize {
        self.first.len() + self.second.as_ref().map_or(0, Buffer::len)
    }
}

/// The first text of a pair, which often is that of the next pair too, and what it has become.
pub(super) type FirstText = (Buffer, Part);

/// What a request wants beside its texts.
#[derive(Clone, Debug)]
pub(super) struct Wish {
    /// Put before each text.
    pub(super) prompt: String,
    pub(super) activation: Activation,
}

/// A network, and what makes tokens for it.
pub struct TextModel {
    session: Arc<OnnxSession>,
    face: Arc<Face>,
    options: TextOptions,
    /// Of its answer.
    labels: Option<Arc<[Labels]>>,
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
        let facts = TextFacts {
            longest: tokenizer.longest(),
            dimensions: options.dimensions.clone(),
            normalized: options.activation == Activation::Normalize,
            answer: if options.scores { TextAnswer::Scores } else { TextAnswer::Vectors },
            prompts: options.prompts.keys().cloned().collect(),
        };
        Self::of(session, Arc::new(Face::new(tokenizer, facts)), options)
    }

    /// The same on another session of the same file, with batches of so many tokens.
    pub fn on(&self, session: Arc<OnnxSession>, batch_tokens: usize) -> Result<Self, Error> {
        Self::of(session, self.face.clone(), TextOptions { batch_tokens, ..self.options.clone() })
    }

    fn of(session: Arc<OnnxSession>, face: Arc<Face>, options: TextOptions) -> Result<Self, Error> {
        let fault = |text: String| Error::new(ErrorKind::ConfigInvalid, text);
        let inputs = session.inputs().iter().map(role).collect::<Result<Vec<_>, _>>().map_err(fault)?;
        let output = session.outputs().iter().find(|output| output.name == options.output);
        let output =
            output.ok_or_else(|| fault(format!("the network has no output '{}'", options.output)))?;
        let width = width(output, options.pooling).map_err(fault)?;
        let output = c_string(&output.name);
        if !options.labels.is_empty() && options.labels.len() != width {
            let (labels, name) = (options.labels.len(), &options.output);
            return Err(fault(format!("{labels} labels are stated, and '{name}' has {width} numbers")));
        }
        let labels = (!options.labels.is_empty()).then(|| Arc::from([Labels::from(options.labels.clone())]));
        Ok(Self { session, face, options, labels, inputs, output, width })
    }

    /// Numbers of an answer.
    pub fn width(&self) -> usize {
        self.width
    }

    /// Tokens of a text at most.
    pub fn longest(&self) -> usize {
        self.face.tokenizer.longest()
    }

    pub(super) fn run_options(&self) -> Result<RunOptions, String> {
        RunOptions::of(self.session.run_entries())
    }

    pub(super) fn batch_tokens(&self) -> usize {
        self.options.batch_tokens
    }

    pub(super) fn face(&self) -> &Arc<Face> {
        &self.face
    }

    pub(super) fn labels(&self) -> Option<Arc<[Labels]>> {
        self.labels.clone()
    }

    /// What texts cost at most, in tokens that are guessed by their bytes.
    pub(super) fn tokens_at_most(&self, texts: &[Text]) -> usize {
        texts.iter().map(|text| (text.bytes() / BYTES_OF_A_TOKEN).min(self.longest()) + 1).sum()
    }

    /// What is kept of texts and their answers.
    pub(super) fn bytes(&self, texts: &[Text]) -> usize {
        texts.iter().map(|text| text.bytes() + self.width * size_of::<f32>()).sum()
    }

    /// What the parameters of a request say.
    pub(super) fn wish(&self, parameters: &[(String, Parameter)]) -> Result<Wish, Error> {
        let mut wish = Wish { prompt: self.options.prompt.clone(), activation: self.options.activation };
        for (name, value) in parameters.iter().filter(|(name, _)| name == PROMPT || name == ACTIVATION) {
            let Parameter::String(value) = value else {
                return Err(Error::new(ErrorKind::InvalidInput, format!("parameter '{name}' is no string")));
            };
            match name.as_str() {
                PROMPT => {
                    let prompt = self.options.prompts.get(value);
                    let known = || {
                        let known: Vec<&str> = self.options.prompts.keys().map(String::as_str).collect();
                        let text = format!(
                            "the model has no prompt '{value}', expected one of: {}",
                            known.join(", ")
                        );
                        Error::new(ErrorKind::InvalidInput, text)
                    };
                    wish.prompt.clone_from(prompt.ok_or_else(known)?);
                }
                ACTIVATION => {
                    let read = Activation::deserialize(value.as_str().into_deserializer());
                    wish.activation = read.map_err(|error: serde::de::value::Error| {
                        Error::new(ErrorKind::InvalidInput, format!("parameter '{ACTIVATION}': {error}"))
                    })?;
                }
                _ => {}
            }
        }
        Ok(wish)
    }

    /// `last`: of the pair before.
    pub(super) fn tokens(
        &self,
        text: &Text,
        wish: &Wish,
        last: &mut Option<FirstText>,
    ) -> Result<Tokens, Error> {
        let fault = |text: String| Error::new(ErrorKind::InvalidInput, text);
        let odd = |error: String| fault(format!("a text cannot be made tokens: {error}"));
        let tokenizer = &self.face.tokenizer;
        let made = |text: &Buffer, prompt: &str| tokenizer.part(&self.read(text, prompt)?).map_err(odd);
        let (first, second) = match &text.second {
            None => (made(&text.first, &wish.prompt)?, None),
            Some(second) => {
                let known = last.take().filter(|(known, _)| known.as_bytes() == text.first.as_bytes());
                let (_, first) = match known {
                    Some(known) => last.insert(known),
                    None => last.insert((text.first.clone(), made(&text.first, &wish.prompt)?)),
                };
                (first.clone(), Some(made(second, "")?))
            }
        };
        let tokens = tokenizer.join(first, second).map_err(odd)?;
        if tokens.ids.is_empty() {
            return Err(fault("a text has no tokens".to_owned()));
        }
        Ok(tokens)
    }

    /// The text that is made tokens.
    fn read<'a>(&self, text: &'a Buffer, prompt: &str) -> Result<Cow<'a, str>, Error> {
        let text = std::str::from_utf8(text.as_bytes())
            .map_err(|error| Error::new(ErrorKind::InvalidInput, format!("a text is no UTF-8: {error}")))?;
        if prompt.is_empty() && !self.options.lower_case {
            return Ok(text.into());
        }
        let whole = self.face.tokenizer.seen(prompt, text);
        Ok(if self.options.lower_case { whole.to_lowercase() } else { whole }.into())
    }

    /// Answers these rows.
    pub(super) fn run(&self, options: &RunOptions, rows: &[Row]) -> Result<(), Error> {
        let inputs = Inputs::of(rows, self.face.tokenizer.pad());
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
        let begun = Instant::now();
        let outputs = self.session.run(options, &names, &values, &[&self.output])?;
        let took = begun.elapsed();
        let numbers = outputs[0].floats()?;
        let per_row =
            if self.options.pooling == Pooling::None { self.width } else { self.width * inputs.length };
        if numbers.len() != rows.len() * per_row {
            let text = format!("the network answers {} numbers to {} rows", numbers.len(), rows.len());
            return Err(Error::new(ErrorKind::EngineFailed, text));
        }
        self.face.count(rows.iter().map(|row| row.tokens.ids.len()).sum(), inputs.ids.len());
        // Once, by whichever of them has not ended.
        rows.iter().any(|row| row.job.ran(rows.len(), took));
        for (row, given) in rows.iter().zip(numbers.chunks_exact(per_row)) {
            row.job.answer(row.text, row.tokens.ids.len(), |answer| {
                pool(self.options.pooling, given, row.tokens.ids.len(), answer);
                activate(row.job.wish.activation, answer);
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
