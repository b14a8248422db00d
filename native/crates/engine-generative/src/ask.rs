//! What a request asks.

use kushi_core::{Error, Request, Tensor};
use kushi_text::ToolStream;

use crate::elements::{flag, text};
use crate::places::{Input, Output, Places};
use crate::prompt_kind::PromptKind;
use crate::sampling::Sampling;

pub(crate) struct Ask {
    /// As it was given, and then as a text.
    pub prompt: String,
    pub kind: PromptKind,
    pub sampling: Sampling,
    /// Finds calls of tools in an answer.
    pub tools: Option<ToolStream>,
    pub streams: bool,
    /// Whether an answer begins with what was asked.
    pub with_prompt: bool,
    /// Which of the outputs are answered, by position.
    pub answered: Vec<bool>,
}

impl Ask {
    pub(crate) fn read(places: &Places, request: &Request) -> Result<Self, Error> {
        let find = |wanted: Input| -> Option<&Tensor> {
            let at = places.inputs.iter().position(|&input| input == wanted)?;
            request.inputs.get(at)?.as_ref()
        };
        let said = |input| find(input).map(flag);
        let prompt = find(Input::Prompt).ok_or_else(|| Error::invalid("input 'text_input' is missing"))?;
        let kind = PromptKind::of(&request.parameters).map_err(Error::invalid)?;
        let sampling = match find(Input::Sampling) {
            Some(tensor) => Sampling::read(text("sampling_parameters", tensor)?, kind),
            None => Sampling::of(&request.parameters, kind),
        };
        let streams = said(Input::Stream).unwrap_or_default();
        let excluded = said(Input::ExcludePrompt);
        if streams && excluded == Some(false) {
            // as Triton's vLLM backend says it
            return Err(Error::invalid("When streaming, `exclude_input_in_output` = False is not allowed."));
        }
        let answered = places.outputs.iter().enumerate().map(|(at, output)| {
            let asked = match output {
                Output::Text => return request.wanted.is_empty() || request.wanted.contains(&(at as u16)),
                Output::FinishReason => Input::FinishReason,
                Output::Cumulative => Input::Cumulative,
                Output::LogProbabilities => Input::LogProbabilities,
                Output::PromptTokens => Input::PromptTokens,
                Output::AnswerTokens => Input::AnswerTokens,
            };
            // one that is named is asked for by that
            said(asked).unwrap_or_default() && request.wanted.is_empty()
                || request.wanted.contains(&(at as u16))
        });
        Ok(Self {
            prompt: text("text_input", prompt)?.to_owned(),
            kind,
            tools: None,
            sampling: sampling.map_err(Error::invalid)?,
            streams,
            with_prompt: !streams && excluded.map_or(kind == PromptKind::Text, |excluded| !excluded),
            answered: answered.collect(),
        })
    }
}
