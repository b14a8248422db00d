//! The frozen specification of one model version, as the control plane hands it over.
//!
//! It is validated where it is made; the core only reads it.

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;

use crate::{DataType, Error, ErrorKind, Shape, Tensor, element_count};

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelSpec {
    pub name: String,
    pub version: u64,
    pub platform: String,
    pub backend: String,
    /// 0: the model has no batch dimension; otherwise every shape has one in front.
    pub max_batch_size: usize,
    pub inputs: Vec<TensorSpec>,
    pub outputs: Vec<TensorSpec>,
    /// `None`: requests run one at a time, in order of arrival.
    pub batching: Option<Batching>,
    pub queue: QueueSpec,
    pub instances: usize,
    /// The cores of each instance; empty: any will do, and short batches may run on io threads.
    #[serde(default)]
    pub cores: Vec<Vec<usize>>,
    /// What each instance asks of the rate limiter; empty: nothing.
    #[serde(default)]
    pub rates: Vec<InstanceRate>,
    /// Whether short batches may run on io threads.
    pub inline: bool,
    /// Whether a request may have any number of responses.
    pub decoupled: bool,
    /// The body of `GET /v2/models/{name}/config`.
    pub config_json: String,
    /// The same as a protobuf message.
    #[serde(default)]
    pub config_message: Vec<u8>,
    pub load_seconds: f64,
    #[serde(default)]
    pub metrics: MetricsSpec,
}

/// A configuration as clients are told it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConfigTexts {
    pub json: String,
    /// A protobuf message.
    pub message: Vec<u8>,
}

/// What an instance has to have before it executes, where rates are limited.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InstanceRate {
    /// The number of its GPU; `None`: it is on the CPU.
    pub device: Option<u32>,
    /// The higher, the less often it is its turn; 0 is 1.
    pub priority: u32,
    pub resources: Vec<ResourceDemand>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ResourceDemand {
    pub name: String,
    /// The same for all devices, or one on each.
    pub is_global: bool,
    pub count: u64,
}

/// What its metrics have beside what all have.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MetricsSpec {
    /// Milliseconds, ascending, where the model has its own.
    pub first_response_buckets: Option<Vec<f64>>,
    /// Positions of the outputs whose classes are counted.
    pub monitored: Vec<usize>,
    /// Labels beside those that all have.
    pub tags: Vec<(String, String)>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TensorSpec {
    pub name: String,
    pub datatype: DataType,
    /// Without the batch dimension; -1 is any size.
    pub dims: Vec<i64>,
    /// The engine's shape where it differs from the one that clients see.
    #[serde(default)]
    pub reshape: Option<Vec<i64>>,
    #[serde(default)]
    pub optional: bool,
    /// Of an output.
    #[serde(default)]
    pub labels: Labels,
}

/// What the classes of an output are called, by their positions; an empty text is no name.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(from = "Vec<String>")]
pub struct Labels(Arc<[String]>);

impl From<Vec<String>> for Labels {
    fn from(labels: Vec<String>) -> Self {
        Self(labels.into())
    }
}

impl Deref for Labels {
    type Target = [String];

    fn deref(&self) -> &[String] {
        &self.0
    }
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Batching {
    pub preferred_batch_sizes: Vec<usize>,
    pub max_queue_delay_us: u64,
    pub preserve_ordering: bool,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct QueueSpec {
    /// Of all levels together.
    pub max_bytes: usize,
    /// At least one; the first is served first.
    pub levels: Vec<QueuePolicy>,
    /// The number, from 1, of the level of requests that name none.
    pub default_level: usize,
    /// By input, whether requests of different shapes run together. Empty: none.
    #[serde(default)]
    pub ragged: Vec<bool>,
}

/// The rules of one priority level.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct QueuePolicy {
    /// 0: bounded by bytes alone.
    pub max_requests: usize,
    /// 0: requests wait as long as it takes.
    pub default_timeout_us: u64,
    pub allow_timeout_override: bool,
    pub timeout_action: TimeoutAction,
}

/// What becomes of a request that has waited for its timeout.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum TimeoutAction {
    /// It ends with an error.
    Reject,
    /// It lets the others of its level go first.
    Delay,
}

/// In what order requests wait, and which are executed together: what may become another while a version serves.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scheduling {
    pub batching: Option<Batching>,
    pub queue: QueueSpec,
}

impl ModelSpec {
    /// For an asker that takes one response.
    pub fn check_unary(&self) -> Result<(), Error> {
        if !self.decoupled {
            return Ok(());
        }
        let text = format!(
            "model '{}' is decoupled, it gives any number of responses and 'infer' takes one: expected engine.stream, or \
             generate_stream over HTTP",
            self.name
        );
        Err(Error::new(ErrorKind::Unsupported, text))
    }

    /// How many dimensions each shape has in front of its own.
    pub fn batch_dims(&self) -> usize {
        usize::from(self.max_batch_size > 0)
    }

    pub fn input(&self, name: &str) -> Option<usize> {
        self.inputs.iter().position(|input| input.name == name)
    }

    pub fn output(&self, name: &str) -> Option<usize> {
        self.outputs.iter().position(|output| output.name == name)
    }

    /// Whether each instance has to be executed by its own thread, since others are kept on other cores.
    pub(crate) fn binds_instances(&self) -> bool {
        self.cores.windows(2).any(|two| two[0] != two[1])
    }

    pub fn preserves_order(&self) -> bool {
        self.batching.as_ref().is_some_and(|batching| batching.preserve_ordering)
    }
}

impl InstanceRate {
    pub fn is_limited(&self) -> bool {
        !self.resources.is_empty()
    }
}

impl QueueSpec {
    /// Where in [`QueueSpec::levels`] a request of this priority waits: 0, and a level that does not
    /// exist, are the default level.
    pub fn level(&self, priority: u32) -> usize {
        match priority as usize {
            priority @ 1.. if priority <= self.levels.len() => priority - 1,
            _ => self.default_level - 1,
        }
    }
}

impl QueuePolicy {
    /// How long a request may wait: a request's own timeout counts only where the policy allows it
    /// and only when it is shorter than the default.
    pub fn timeout(&self, requested_us: Option<u64>) -> Option<Duration> {
        let default = self.default_timeout_us;
        let timeout = match requested_us {
            Some(own) if self.allow_timeout_override && own > 0 && own < default => own,
            _ => default,
        };
        (timeout > 0).then(|| Duration::from_micros(timeout))
    }
}

impl TensorSpec {
    /// What the engine sees in place of [`dims`](TensorSpec::dims).
    pub fn engine_dims(&self) -> &[i64] {
        self.reshape.as_deref().unwrap_or(&self.dims)
    }

    /// The shape that the engine sees for a request of `shape`, whose first `batch` dimensions are
    /// the batch's.
    pub fn to_engine(&self, shape: &[i64], batch: usize) -> Shape {
        match &self.reshape {
            Some(reshape) => transfer(&self.dims, reshape, shape, batch),
            None => Shape::from_slice(shape),
        }
    }

    /// The shape that clients see for an engine output of `shape`.
    pub fn to_client(&self, shape: &[i64], batch: usize) -> Shape {
        match &self.reshape {
            Some(reshape) => transfer(reshape, &self.dims, shape, batch),
            None => Shape::from_slice(shape),
        }
    }

    /// Gives an output of the engine the shape that clients see. One that is not as the configuration says keeps its
    /// own.
    pub fn give_shape(&self, tensor: &mut Tensor, batch: usize) {
        if self.reshape.is_none() || tensor.shape.len() != self.engine_dims().len() + batch {
            return;
        }
        let shape = self.to_client(&tensor.shape, batch);
        if element_count(&shape) == element_count(&tensor.shape) {
            tensor.shape = shape;
        }
    }
}

/// Rewrites `shape` from the layout `from` to the layout `to`; the n-th variable dimension of one
/// is the n-th variable dimension of the other.
fn transfer(from: &[i64], to: &[i64], shape: &[i64], batch: usize) -> Shape {
    let batch = batch.min(shape.len());
    let mut result = Shape::from_slice(&shape[..batch]);
    let mut variable = from.iter().zip(&shape[batch..]).filter(|(dim, _)| **dim < 0).map(|(_, &size)| size);
    result.extend(to.iter().map(|&dim| if dim < 0 { variable.next().unwrap_or(1) } else { dim }));
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tensor(dims: &[i64], reshape: &[i64]) -> TensorSpec {
        TensorSpec {
            name: "X".into(),
            datatype: DataType::Fp32,
            dims: dims.into(),
            reshape: Some(reshape.into()),
            optional: false,
            labels: Labels::default(),
        }
    }

    #[test]
    fn reshapes_there_and_back_with_variable_dimensions() {
        let spec = tensor(&[-1, 4, -1], &[-1, 2, 2, -1]);
        assert_eq!(spec.to_engine(&[8, 3, 4, 5], 1).as_slice(), [8, 3, 2, 2, 5]);
        assert_eq!(spec.to_client(&[8, 3, 2, 2, 5], 1).as_slice(), [8, 3, 4, 5]);
        assert_eq!(tensor(&[1], &[]).to_engine(&[8, 1], 1).as_slice(), [8]);
    }

    #[test]
    fn a_request_timeout_only_shortens_an_allowed_default() {
        let policy = |default_timeout_us, allow_timeout_override| QueuePolicy {
            max_requests: 0,
            default_timeout_us,
            allow_timeout_override,
            timeout_action: TimeoutAction::Reject,
        };
        let us = |n| Some(Duration::from_micros(n));
        for (default, allowed, requested, expected) in [
            (0, true, Some(5), None),
            (100, true, None, us(100)),
            (100, true, Some(5), us(5)),
            (100, true, Some(500), us(100)),
            (100, false, Some(5), us(100)),
        ] {
            assert_eq!(policy(default, allowed).timeout(requested), expected);
        }
    }

    #[test]
    fn a_priority_that_names_no_level_is_the_default_level() {
        let policy = QueuePolicy {
            max_requests: 0,
            default_timeout_us: 0,
            allow_timeout_override: false,
            timeout_action: TimeoutAction::Reject,
        };
        let queue = QueueSpec { max_bytes: 0, levels: vec![policy; 3], default_level: 2, ragged: Vec::new() };
        for (priority, level) in [(0, 1), (1, 0), (2, 1), (3, 2), (4, 1), (u32::MAX, 1)] {
            assert_eq!(queue.level(priority), level, "priority {priority}");
        }
    }
}
