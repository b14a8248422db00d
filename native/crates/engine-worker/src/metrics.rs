//! Metrics of a model: what its process asks, and the changes that it sends without waiting.

use std::collections::BTreeMap;

use bytes::Bytes;
use kushi_core::Error;

use crate::frame::Head;
use crate::host::{MetricChange, Metrics};
use crate::parts::Garbage;

/// What is answered.
#[derive(serde::Deserialize)]
#[serde(tag = "verb", rename_all = "snake_case")]
pub(crate) enum Question {
    MetricFamily { name: String, description: String, kind: String },
    Metric { family: u64, labels: BTreeMap<String, String>, buckets: Option<Vec<f64>> },
    MetricValue { metric: u64 },
}

/// The answer, as JSON.
pub(crate) fn answer(metrics: &dyn Metrics, question: Question) -> Result<String, Error> {
    match question {
        Question::MetricFamily { name, description, kind } => {
            metrics.family(&name, &description, &kind).map(|number| number.to_string())
        }
        Question::Metric { family, labels, buckets } => {
            let labels = labels.into_iter().collect();
            metrics.metric(family, labels, buckets.as_deref()).map(|number| number.to_string())
        }
        Question::MetricValue { metric } => {
            let value = metrics.value(metric);
            let value = value.ok_or_else(|| Error::invalid("there is no such metric, or it has no value"))?;
            Ok(json(value))
        }
    }
}

/// One that counts for nothing is let pass: a thread of the model may change what another one has released.
pub(crate) fn change(metrics: &dyn Metrics, head: Head, payload: &Bytes) -> Result<(), Garbage> {
    let value = payload.as_ref().try_into().map(f64::from_le_bytes);
    let value = value.map_err(|_| Garbage("the change of a metric is no number"))?;
    let change = match head.count {
        0 => {
            metrics.release(head.id);
            return Ok(());
        }
        1 => MetricChange::Increment(value),
        2 => MetricChange::Set(value),
        3 => MetricChange::Observe(value),
        _ => return Err(Garbage("the change of a metric is of an unknown kind")),
    };
    metrics.change(head.id, change);
    Ok(())
}

/// As Python reads it, also where it is none that JSON has.
fn json(value: f64) -> String {
    if value.is_finite() || value.is_nan() {
        return format!("{value:?}");
    }
    if value > 0.0 { "Infinity" } else { "-Infinity" }.into()
}
