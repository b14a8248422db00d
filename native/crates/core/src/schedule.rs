//! Which requests run next, and together.

mod plan;
mod policy;
pub(crate) mod queue;
pub(crate) mod scheduler;

pub use plan::{Plan, Seat};
pub use policy::{BatchPolicy, Decision, Waiting, decide};
pub use queue::{Backlog, Entry, Queue};
pub use scheduler::{Action, Due, DynamicBatcher, Next, Scheduler};
