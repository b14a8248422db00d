//! What goes to the engine of tokens, and what comes from it. The other end is a program of the backend's.
//!
//! A request has the tokens of a prompt and, as JSON, how others follow them; without both it cancels the one of its id.
//! Each answer has what one step gave: tokens, how likely each was, and once why no other one follows. Several texts that
//! answer one prompt are as many requests here.

use kushi_core::{
    Batching, Bound, DataType, Error, ErrorKind, Inputs, Labels, MetricsSpec, ModelSpec, QueuePolicy,
    QueueSpec, Response, Tensor, TensorSpec, TimeoutAction, Wanted,
};

use crate::elements::{floats, int32s, numbers, texts};

/// So many requests go to its process at once.
const MOST_AT_ONCE: usize = 64;
const TOKENS: u16 = 0;
const LOG_PROBABILITIES: u16 = 1;
const END: u16 = 2;

/// Why a sequence has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Finish {
    Stop,
    Length,
}

impl Finish {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Stop => "stop",
            Self::Length => "length",
        }
    }
}

/// What a step gave one request.
#[derive(Debug, Default)]
pub(crate) struct Step {
    /// Each with the logarithm of its probability.
    pub tokens: Vec<(u32, f32)>,
    pub end: Option<Finish>,
}

/// The specification under which the engine of tokens of `model` runs: nobody but this engine asks it.
pub fn token_spec(model: &ModelSpec) -> ModelSpec {
    let tensor = |name: &str, datatype, dims: &[i64]| TensorSpec {
        name: name.into(),
        datatype,
        dims: dims.into(),
        reshape: None,
        optional: false,
        labels: Labels::default(),
    };
    ModelSpec {
        name: model.name.clone(),
        version: model.version,
        platform: model.platform.clone(),
        backend: model.backend.clone(),
        max_batch_size: MOST_AT_ONCE,
        inputs: vec![tensor("PROMPT", DataType::Int32, &[-1]), tensor("ORDER", DataType::Bytes, &[1])],
        outputs: vec![
            tensor("TOKENS", DataType::Int32, &[-1]),
            tensor("LOG_PROBABILITIES", DataType::Fp32, &[-1]),
            tensor("END", DataType::Int32, &[-1]),
        ],
        batching: Some(Batching {
            preferred_batch_sizes: Vec::new(),
            max_queue_delay_us: 0,
            preserve_ordering: false,
        }),
        queue: QueueSpec {
            // what is inside is bounded by the queue of the model
            max_bytes: usize::MAX,
            levels: vec![QueuePolicy {
                max_requests: 0,
                default_timeout_us: 0,
                allow_timeout_override: false,
                timeout_action: TimeoutAction::Reject,
            }],
            default_level: 1,
            ragged: vec![true, false],
        },
        instances: 1,
        cores: Vec::new(),
        rates: Vec::new(),
        inline: false,
        decoupled: true,
        config_json: "{}".into(),
        config_message: Vec::new(),
        load_seconds: 0.0,
        metrics: MetricsSpec::default(),
    }
}

pub(crate) fn request(prompt: &[u32], order: &str) -> Bound {
    let row = |mut tensor: Tensor| {
        tensor.shape.insert(0, 1);
        tensor
    };
    let prompt = numbers(DataType::Int32, prompt.iter().map(|&token| (token as i32).to_le_bytes()));
    let order = texts([order].into_iter());
    let inputs: Inputs = [Some(row(prompt)), Some(row(order))].into_iter().collect();
    Bound { inputs, wanted: Wanted::new(), rows: 1 }
}

/// Has the engine give up the request of the same id.
pub(crate) fn cancellation() -> Bound {
    request(&[], "")
}

pub(crate) fn step(response: &Response) -> Result<Step, Error> {
    let wrong =
        || Error::new(ErrorKind::EngineFailed, "the engine of tokens gave an answer that makes no sense");
    let find = |place| response.outputs.iter().find(|(at, _)| *at == place).map(|(_, tensor)| tensor);
    let (Some(tokens), Some(likely), Some(end)) = (find(TOKENS), find(LOG_PROBABILITIES), find(END)) else {
        return Err(wrong());
    };
    let tokens = int32s(tokens).map(u32::try_from).zip(floats(likely));
    let tokens = tokens.map(|(token, likely)| token.map(|token| (token, likely)).map_err(|_| wrong()));
    let end = int32s(end).next().map(|reason| if reason == 0 { Finish::Stop } else { Finish::Length });
    Ok(Step { tokens: tokens.collect::<Result<_, _>>()?, end })
}
