//! One series: a number, or the buckets of a histogram.

use std::sync::{Mutex, MutexGuard, PoisonError};

use kushi_core::Error;

use super::names::{Labels, write_sample};
use crate::histogram::Histogram;
use crate::metrics::number;

const MOST_BUCKETS: usize = 256;

/// How values become a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricKind {
    Counter,
    Gauge,
    Histogram,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Change {
    Increment(f64),
    Set(f64),
    Observe(f64),
}

pub(super) struct Series {
    pub(super) kind: MetricKind,
    value: Mutex<Value>,
}

enum Value {
    Number(f64),
    Buckets(Histogram),
}

impl MetricKind {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }

    /// Whether its values say what has been, and not what is.
    pub(super) fn is_cumulative(self) -> bool {
        self != Self::Gauge
    }
}

impl std::str::FromStr for MetricKind {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        [Self::Counter, Self::Gauge, Self::Histogram]
            .into_iter()
            .find(|kind| kind.name() == text)
            .ok_or_else(|| Error::invalid(format!("'{text}' is no kind of a metric")))
    }
}

impl Series {
    pub(super) fn new(name: &str, kind: MetricKind, buckets: Option<&[f64]>) -> Result<Self, Error> {
        let value = match (kind, buckets) {
            (MetricKind::Histogram, Some(bounds)) => {
                let rise = bounds.windows(2).all(|pair| pair[0] < pair[1]);
                if !rise || bounds.len() > MOST_BUCKETS || bounds.iter().any(|bound| !bound.is_finite()) {
                    let text = format!(
                        "the buckets of '{name}' must be numbers that rise, at most {MOST_BUCKETS} of them"
                    );
                    return Err(Error::invalid(text));
                }
                Value::Buckets(Histogram::new(bounds))
            }
            (MetricKind::Counter | MetricKind::Gauge, None) => Value::Number(0.0),
            (MetricKind::Histogram, None) => {
                return Err(Error::invalid("Bucket boundaries not found in Metric args."));
            }
            (_, Some(_)) => {
                let text = format!("Unexpected args found in {} Metric constructor.", kind.name());
                return Err(Error::invalid(text));
            }
        };
        Ok(Self { kind, value: Mutex::new(value) })
    }

    /// One series has one set of buckets.
    pub(super) fn check_buckets(&self, name: &str, buckets: Option<&[f64]>) -> Result<(), Error> {
        match (&*self.value(), buckets) {
            (Value::Number(_), None) => Ok(()),
            (Value::Buckets(known), Some(given)) if known.bounds() == given => Ok(()),
            (Value::Buckets(known), Some(given)) => Err(Error::invalid(format!(
                "a metric of '{name}' with these labels has the buckets {:?}, got {given:?}",
                known.bounds()
            ))),
            (Value::Buckets(_), None) => Err(Error::invalid("Bucket boundaries not found in Metric args.")),
            (Value::Number(_), Some(_)) => {
                let text = format!("Unexpected args found in {} Metric constructor.", self.kind.name());
                Err(Error::invalid(text))
            }
        }
    }

    /// False where its kind does not take that.
    pub(super) fn change(&self, change: Change) -> bool {
        match (&mut *self.value(), change) {
            // Also not a number that is none.
            (Value::Number(at), Change::Increment(by)) if self.kind == MetricKind::Gauge || by >= 0.0 => {
                *at += by;
            }
            (Value::Number(at), Change::Set(to)) if self.kind == MetricKind::Gauge => *at = to,
            (Value::Buckets(buckets), Change::Observe(value)) => buckets.observe(value),
            _ => return false,
        }
        true
    }

    /// `None`: a histogram stands at nothing.
    pub(super) fn number(&self) -> Option<f64> {
        match &*self.value() {
            Value::Number(at) => Some(*at),
            Value::Buckets(_) => None,
        }
    }

    pub(super) fn write(&self, out: &mut String, name: &str, labels: &Labels) {
        match &*self.value() {
            Value::Number(at) => write_sample(out, name, labels, None, *at),
            Value::Buckets(buckets) => write_buckets(out, name, labels, buckets),
        }
    }

    fn value(&self) -> MutexGuard<'_, Value> {
        self.value.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn write_buckets(out: &mut String, name: &str, labels: &Labels, buckets: &Histogram) {
    for (bound, count) in buckets.up_to() {
        write_sample(out, &format!("{name}_bucket"), labels, Some(("le", &number(bound))), count as f64);
    }
    write_sample(out, &format!("{name}_sum"), labels, None, buckets.sum());
    write_sample(out, &format!("{name}_count"), labels, None, buckets.count() as f64);
}
