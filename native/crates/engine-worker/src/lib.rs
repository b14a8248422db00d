//! Executes models in processes of the user's own Python: one for each instance, started and watched here.
//!
//! A [`Worker`] is one process after another: when one ends, its batch fails with what is known of the reason, and the
//! next one is started. Tensors travel in shared memory, or on the socket where they are small.

mod answer_message;
mod answers;
mod attendance;
mod batch_message;
mod call_message;
mod calls;
mod engine;
mod frame;
mod host;
mod incoming;
mod lines;
mod logged;
mod metrics;
mod once;
mod outgoing;
mod output;
mod parts;
mod process;
mod readiness;
mod reading;
mod running;
mod share;
mod silence;
mod state;
mod supervisor;
mod worker;

pub use engine::WorkerEngine;
pub use host::{Begun, Call, Host, MetricChange, Metrics};
pub use once::complete;
pub use process::{InProcess, Launch, kill_all};
pub use worker::{Worker, WorkerOptions};
