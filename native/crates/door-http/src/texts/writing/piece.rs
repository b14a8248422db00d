//! What a model has answered to a prompt, or some of it.

use std::collections::HashMap;

use kushi_core::{DataType, Error, ErrorKind, ModelSpec, Parameter, Response, Tensor};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::binding::{ANSWER_TOKENS, FINISH_REASON, LOG_PROBABILITIES, PROMPT_TOKENS, TEXT};

/// The parameter of a response that has the calls of tools.
const TOOL_CALLS: &str = "tool_calls";
/// As Python writes what is not there.
const NOT_YET: &str = "None";

#[derive(Debug, Default)]
pub(super) struct Piece {
    /// Of each text that answers.
    pub parts: Vec<Part>,
    pub prompt_tokens: Option<u64>,
    /// Of all texts, in this piece.
    pub answer_tokens: Option<u64>,
}

#[derive(Debug, Default)]
pub(super) struct Part {
    pub text: String,
    /// Why nothing follows.
    pub finish: Option<String>,
    pub tokens: Vec<LikelyToken>,
    pub calls: Vec<ToolCall>,
}

/// A token, and how likely it was.
#[derive(Debug)]
pub(super) struct LikelyToken {
    pub text: String,
    pub log_probability: f64,
}

#[derive(Debug, Deserialize)]
pub(super) struct ToolCall {
    pub name: String,
    pub arguments: String,
}

#[derive(Deserialize)]
struct Told {
    logprob: f64,
    decoded_token: Option<String>,
}

impl Piece {
    /// Fails where the model answers something else.
    pub(super) fn read(spec: &ModelSpec, response: &Response) -> Result<Self, Error> {
        let fault =
            |text: String| Error::new(ErrorKind::EngineFailed, format!("model '{}' {text}", spec.name));
        let find = |name: &str| {
            let is_it = |(place, _): &&(u16, Tensor)| spec.outputs[usize::from(*place)].name == name;
            response.outputs.iter().find(is_it).map(|(_, tensor)| tensor)
        };
        let texts = find(TEXT).filter(|tensor| tensor.datatype == DataType::Bytes);
        let texts = texts.ok_or_else(|| fault("has left its text out".to_owned()))?;
        let as_text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let mut parts: Vec<Part> =
            strings(texts).map(|text| Part { text: as_text(text), ..Part::default() }).collect();
        for (part, reason) in parts.iter_mut().zip(find(FINISH_REASON).into_iter().flat_map(strings)) {
            part.finish = Some(as_text(reason)).filter(|reason| reason != NOT_YET && !reason.is_empty());
        }
        for (part, list) in parts.iter_mut().zip(find(LOG_PROBABILITIES).into_iter().flat_map(strings)) {
            let told = json::<Vec<HashMap<String, Told>>>(list);
            let told =
                told.ok_or_else(|| fault(format!("has the output '{LOG_PROBABILITIES}' in no known form")))?;
            let token = |token: Told| LikelyToken {
                text: token.decoded_token.unwrap_or_default(),
                log_probability: token.logprob,
            };
            part.tokens =
                told.into_iter().filter_map(|token| token.into_values().next()).map(token).collect();
        }
        let calls = response.parameters.iter().find_map(|(name, value)| match value {
            Parameter::String(lists) if name == TOOL_CALLS => Some(lists),
            _ => None,
        });
        if let Some(lists) = calls {
            let lists = json::<Vec<Vec<ToolCall>>>(lists.as_bytes());
            let lists =
                lists.ok_or_else(|| fault(format!("has the parameter '{TOOL_CALLS}' in no known form")))?;
            for (part, calls) in parts.iter_mut().zip(lists) {
                part.calls = calls;
            }
        }
        let number = |name| find(name).and_then(count);
        Ok(Self { parts, prompt_tokens: number(PROMPT_TOKENS), answer_tokens: number(ANSWER_TOKENS) })
    }
}

fn json<T: DeserializeOwned>(text: &[u8]) -> Option<T> {
    serde_json::from_slice(text).ok()
}

fn strings(tensor: &Tensor) -> impl Iterator<Item = &[u8]> {
    let mut rest = tensor.data.as_bytes();
    std::iter::from_fn(move || {
        let (length, tail) = rest.split_first_chunk()?;
        let (text, tail) = tail.split_at_checked(u32::from_le_bytes(*length) as usize)?;
        rest = tail;
        Some(text)
    })
}

fn count(tensor: &Tensor) -> Option<u64> {
    let bytes = tensor.data.as_bytes();
    match tensor.datatype {
        DataType::Uint32 => bytes.first_chunk().map(|bytes| u64::from(u32::from_le_bytes(*bytes))),
        DataType::Int32 => {
            bytes.first_chunk().and_then(|bytes| u64::try_from(i32::from_le_bytes(*bytes)).ok())
        }
        _ => None,
    }
}
