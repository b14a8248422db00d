//! What a model asks of the server that runs it.

use std::sync::Arc;
use std::time::Instant;

use kushi_core::{Context, Error, Lease, ModelSpec, Parameter, Reply, Sequence, Tensor, Ticket};

/// A request to another model.
pub struct Call {
    /// The model that asks.
    pub caller: String,
    pub model: String,
    /// An empty text is the latest.
    pub version: String,
    /// Whether it takes any number of responses.
    pub decoupled: bool,
    pub id: String,
    pub inputs: Vec<(String, Tensor)>,
    pub wanted: Vec<String>,
    pub parameters: Vec<(String, Parameter)>,
    pub priority: u32,
    /// The parameter `timeout`: a wish for the queue.
    pub timeout_us: Option<u64>,
    pub sequence: Option<Box<Sequence>>,
    pub deadline: Option<Instant>,
    pub context: Context,
}

/// A call that has its place in a queue.
pub struct Begun {
    pub spec: Arc<ModelSpec>,
    pub ticket: Ticket,
    pub lease: Option<Lease>,
}

/// What becomes of a metric.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum MetricChange {
    Increment(f64),
    Set(f64),
    Observe(f64),
}

/// The metrics of one instance, by numbers that its process knows them by. Nothing here blocks.
pub trait Metrics: Send + Sync {
    /// Makes one, or finds the one of that name.
    fn family(&self, name: &str, description: &str, kind: &str) -> Result<u64, Error>;

    /// Makes one, or finds the one with those labels.
    fn metric(
        &self,
        family: u64,
        labels: Vec<(String, String)>,
        buckets: Option<&[f64]>,
    ) -> Result<u64, Error>;

    /// False where the metric does not take that.
    fn change(&self, metric: u64, change: MetricChange) -> bool;

    /// `None`: it stands at nothing.
    fn value(&self, metric: u64) -> Option<f64>;

    /// A family or a metric: once for each time that it was made.
    fn release(&self, number: u64);

    /// The next process makes its metrics anew, and what this one has counted goes on.
    fn process_ended(&self);
}

/// The server, as its workers see it.
pub trait Host: Send + Sync {
    /// Of one instance of a model. Dropping them releases them.
    fn metrics(&self, model: &str) -> Result<Arc<dyn Metrics>, Error>;

    /// `reply` makes the way back, once for each model version that is asked.
    fn begin(&self, call: Call, reply: &dyn Fn() -> Reply) -> Result<Begun, Error>;

    /// Anything but inference: a verb by its name, with its arguments as JSON. `on_answer` hears the answer, at once or
    /// later on another thread. Never blocks.
    fn perform(
        &self,
        verb: String,
        arguments: String,
        on_answer: Box<dyn FnOnce(Result<String, String>) + Send>,
    );
}
