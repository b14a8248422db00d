//! A prompt as a request to a model, with the inputs and outputs of Triton's vLLM backend.

use kushi_core::{Bound, Buffer, DataType, Error, InputDraft, ModelSpec, Parameter, Shape};
use smallvec::SmallVec;

use super::body::Asked;

const PROMPT: &str = "text_input";
const STREAM: &str = "stream";
const SAMPLING: &str = "sampling_parameters";
const EXCLUDE_PROMPT: &str = "exclude_input_in_output";
pub(super) const TEXT: &str = "text_output";
pub(super) const FINISH_REASON: &str = "finish_reason";
pub(super) const LOG_PROBABILITIES: &str = "logprobs";
pub(super) const PROMPT_TOKENS: &str = "num_input_tokens";
pub(super) const ANSWER_TOKENS: &str = "num_output_tokens";
const OF_ALL: [&str; 4] = [TEXT, FINISH_REASON, PROMPT_TOKENS, ANSWER_TOKENS];
/// The parameter of a request that says what its prompt is.
const KIND: &str = "text_input_kind";
const USUAL_KIND: &str = "text";

/// What a model takes and gives of it.
pub(super) struct Binding {
    streams: bool,
    excludes_prompt: bool,
    wanted: SmallVec<[&'static str; 5]>,
}

impl Binding {
    /// Fails where the model does not take what is asked.
    pub(super) fn of(spec: &ModelSpec, asked: &Asked) -> Result<Self, Error> {
        let takes = |name: &str| spec.input(name).is_some();
        let gives = |name: &str| spec.outputs.iter().any(|output| output.name == name);
        let fault = |text: &str| Err(Error::invalid(format!("model '{}' {text}", spec.name)));
        if !takes(PROMPT) || !gives(TEXT) {
            return fault("writes no texts: it has no input 'text_input' and output 'text_output'");
        }
        if asked.sampling != "{}" && !takes(SAMPLING) {
            return fault("takes no sampling parameters: it has no input 'sampling_parameters'");
        }
        let tells_tokens = asked.log_probabilities.is_some();
        if tells_tokens && !gives(LOG_PROBABILITIES) {
            return fault("does not tell how likely tokens are: it has no output 'logprobs'");
        }
        if asked.echoes && !takes(EXCLUDE_PROMPT) {
            return fault(
                "cannot be told to answer with the prompt: it has no input 'exclude_input_in_output'",
            );
        }
        let more = tells_tokens.then_some(LOG_PROBABILITIES);
        Ok(Self {
            streams: takes(STREAM),
            excludes_prompt: takes(EXCLUDE_PROMPT) && !asked.streams,
            wanted: OF_ALL.into_iter().chain(more).filter(|name| gives(name)).collect(),
        })
    }

    pub(super) fn bind(&self, spec: &ModelSpec, asked: &Asked, prompt: &str) -> Result<Bound, Error> {
        let mut drafts: SmallVec<[InputDraft<'_>; 4]> = SmallVec::new();
        drafts.push(text(spec, PROMPT, prompt));
        if asked.sampling != "{}" {
            drafts.push(text(spec, SAMPLING, &asked.sampling));
        }
        if self.streams {
            drafts.push(flag(spec, STREAM, asked.streams));
        }
        if self.excludes_prompt {
            drafts.push(flag(spec, EXCLUDE_PROMPT, !asked.echoes));
        }
        spec.bind("", drafts, &self.wanted)
    }
}

/// What the request says beside its inputs.
pub(super) fn parameters(asked: &Asked) -> Vec<(String, Parameter)> {
    if asked.kind == USUAL_KIND {
        return Vec::new();
    }
    vec![(KIND.to_owned(), Parameter::String(asked.kind.to_owned()))]
}

fn text<'a>(spec: &ModelSpec, name: &'a str, text: &str) -> InputDraft<'a> {
    let mut bytes = Vec::with_capacity(text.len() + size_of::<u32>());
    bytes.extend_from_slice(&(text.len() as u32).to_le_bytes());
    bytes.extend_from_slice(text.as_bytes());
    draft(spec, name, DataType::Bytes, bytes)
}

fn flag<'a>(spec: &ModelSpec, name: &'a str, flag: bool) -> InputDraft<'a> {
    draft(spec, name, DataType::Bool, vec![u8::from(flag)])
}

/// Of one element.
fn draft<'a>(spec: &ModelSpec, name: &'a str, datatype: DataType, data: Vec<u8>) -> InputDraft<'a> {
    let rank = spec.input(name).map_or(0, |place| spec.inputs[place].dims.len()) + spec.batch_dims();
    let (name, shape) = (name.into(), Shape::from_elem(1, rank.max(1)));
    InputDraft { name, datatype: Some(datatype), shape, data: Buffer::host(data) }
}
