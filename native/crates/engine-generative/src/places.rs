//! Where a model has its inputs and outputs: those of Triton's vLLM backend.

use kushi_core::{DataType, Error, ErrorKind, ModelSpec, TensorSpec};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Input {
    Prompt,
    Stream,
    Sampling,
    ExcludePrompt,
    FinishReason,
    Cumulative,
    LogProbabilities,
    PromptTokens,
    AnswerTokens,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Output {
    Text,
    FinishReason,
    Cumulative,
    LogProbabilities,
    PromptTokens,
    AnswerTokens,
}

impl Input {
    const ALL: [(&str, DataType, Self); 9] = [
        ("text_input", DataType::Bytes, Self::Prompt),
        ("stream", DataType::Bool, Self::Stream),
        ("sampling_parameters", DataType::Bytes, Self::Sampling),
        ("exclude_input_in_output", DataType::Bool, Self::ExcludePrompt),
        ("return_finish_reason", DataType::Bool, Self::FinishReason),
        ("return_cumulative_logprob", DataType::Bool, Self::Cumulative),
        ("return_logprobs", DataType::Bool, Self::LogProbabilities),
        ("return_num_input_tokens", DataType::Bool, Self::PromptTokens),
        ("return_num_output_tokens", DataType::Bool, Self::AnswerTokens),
    ];
}

impl Output {
    const ALL: [(&str, DataType, Self); 6] = [
        ("text_output", DataType::Bytes, Self::Text),
        ("finish_reason", DataType::Bytes, Self::FinishReason),
        ("cumulative_logprob", DataType::Fp32, Self::Cumulative),
        ("logprobs", DataType::Bytes, Self::LogProbabilities),
        ("num_input_tokens", DataType::Uint32, Self::PromptTokens),
        ("num_output_tokens", DataType::Uint32, Self::AnswerTokens),
    ];
}

/// By position in the specification.
pub(crate) struct Places {
    pub(crate) inputs: Vec<Input>,
    pub(crate) outputs: Vec<Output>,
}

impl Places {
    pub(crate) fn of(spec: &ModelSpec) -> Result<Self, Error> {
        let inputs =
            spec.inputs.iter().map(|tensor| find("input", tensor, &Input::ALL)).collect::<Result<_, _>>()?;
        let outputs = spec
            .outputs
            .iter()
            .map(|tensor| find("output", tensor, &Output::ALL))
            .collect::<Result<_, _>>()?;
        let places = Self { inputs, outputs };
        let text = places.inputs.iter().position(|&input| input == Input::Prompt);
        if text.is_none_or(|at| spec.inputs[at].optional) || !spec.decoupled || spec.max_batch_size > 0 {
            let text = format!(
                "model '{}' must have the input 'text_input', be decoupled and have no batches, as every generative model",
                spec.name
            );
            return Err(Error::new(ErrorKind::ConfigInvalid, text));
        }
        Ok(places)
    }
}

fn find<T: Copy>(what: &str, tensor: &TensorSpec, known: &[(&str, DataType, T)]) -> Result<T, Error> {
    let TensorSpec { name, datatype, .. } = tensor;
    let invalid = |text| Error::new(ErrorKind::ConfigInvalid, text);
    let found = known.iter().find(|(known, ..)| known == name);
    let Some(&(_, expected, place)) = found else {
        let names: Vec<_> = known.iter().map(|(known, ..)| format!("'{known}'")).collect();
        let names = names.join(", ");
        return Err(invalid(format!(
            "{what} '{name}' is none that a generative model has: they are {names}"
        )));
    };
    if *datatype != expected {
        let (expected, got) = (expected.name(), datatype.name());
        return Err(invalid(format!("{what} '{name}' of a generative model is {expected}, got {got}")));
    }
    Ok(place)
}
