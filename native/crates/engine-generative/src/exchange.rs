//! What goes to the engine of tokens, and what comes from it. The other end is a program of the backend's.
//!
//! A request has the tokens of a prompt and, as JSON, how others follow them. Each answer has what one step gave: tokens
//! with the sequences to which they belong, how likely each was, and which sequences have ended.

use kushi_core::{
    Batching, Bound, DataType, Error, ErrorKind, Inputs, Labels, MetricsSpec, ModelSpec, QueuePolicy,
    QueueSpec, Response, Tensor, TensorSpec, TimeoutAction, Wanted,
};

use crate::elements::{floats, int32s, numbers, texts};

/// So many requests go to its process at once.
const MOST_AT_ONCE: usize = 64;
const TOKENS: u16 = 0;
const LOG_PROBABILITIES: u16 = 1;
const ENDS: u16 = 2;

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
    /// The sequence, the token, and the logarithm of its probability.
    pub tokens: Vec<(usize, u32, f32)>,
    pub ends: Vec<(usize, Finish)>,
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
            tensor("TOKENS", DataType::Int32, &[-1, 2]),
            tensor("LOG_PROBABILITIES", DataType::Fp32, &[-1]),
            tensor("ENDS", DataType::Int32, &[-1, 2]),
        ],
        batching: Some(Batching {
            preferred_batch_sizes: Vec::new(),
            max_queue_delay_us: 0,
            preserve_ordering: false,
        }),
        queue: QueueSpec {
            max_bytes: model.queue.max_bytes,
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
    let prompt = numbers(DataType::Int32, None, prompt.iter().map(|&token| (token as i32).to_le_bytes()));
    let order = texts([order].into_iter());
    let inputs: Inputs = [Some(row(prompt)), Some(row(order))].into_iter().collect();
    Bound { inputs, wanted: Wanted::new(), rows: 1 }
}

/// Reads an answer; `sequences`: how many the request has.
pub(crate) fn step(response: &Response, sequences: usize) -> Result<Step, Error> {
    let wrong =
        || Error::new(ErrorKind::EngineFailed, "the engine of tokens gave an answer that makes no sense");
    let find = |place| response.outputs.iter().find(|(at, _)| *at == place).map(|(_, tensor)| tensor);
    let (Some(tokens), Some(log_probabilities), Some(ends)) =
        (find(TOKENS), find(LOG_PROBABILITIES), find(ENDS))
    else {
        return Err(wrong());
    };
    let sequence = |number: i32| usize::try_from(number).ok().filter(|&number| number < sequences);
    let mut step = Step::default();
    let pairs: Vec<i32> = int32s(tokens).collect();
    for (pair, log_probability) in pairs.as_chunks::<2>().0.iter().zip(floats(log_probabilities)) {
        let (Some(sequence), Ok(token)) = (sequence(pair[0]), u32::try_from(pair[1])) else {
            return Err(wrong());
        };
        step.tokens.push((sequence, token, log_probability));
    }
    let pairs: Vec<i32> = int32s(ends).collect();
    for pair in pairs.as_chunks::<2>().0 {
        let finish = if pair[1] == 0 { Finish::Stop } else { Finish::Length };
        step.ends.push((sequence(pair[0]).ok_or_else(wrong)?, finish));
    }
    Ok(step)
}
