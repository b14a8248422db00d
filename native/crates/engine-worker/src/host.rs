//! What a model asks of the server that runs it.

use std::sync::Arc;
use std::time::Instant;

use kushi_core::{Context, Error, Lease, ModelSpec, Parameter, Reply, Tensor, Ticket};

/// A request to another model.
pub struct Call {
    /// The model that asks.
    pub caller: String,
    pub model: String,
    /// An empty text is the latest.
    pub version: String,
    pub id: String,
    pub inputs: Vec<(String, Tensor)>,
    pub wanted: Vec<String>,
    pub parameters: Vec<(String, Parameter)>,
    pub priority: u32,
    pub deadline: Option<Instant>,
    pub context: Context,
}

/// A call that has its place in a queue.
pub struct Begun {
    pub spec: Arc<ModelSpec>,
    pub ticket: Ticket,
    pub lease: Option<Lease>,
}

/// The server, as its workers see it.
pub trait Host: Send + Sync {
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
