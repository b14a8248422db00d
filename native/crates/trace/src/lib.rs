//! Traces of requests: which are sampled, what is recorded of them, and the file that they are written to.
//!
//! [`Traces`] has the settings and decides whether a request is traced; without a trace that costs one look at a flag.
//! A [`Trace`] is what a door holds of a traced request; it ends with the last part of it, and goes to an [`Outlet`],
//! which never holds a request: the [`TraceFile`] of Triton's JSON, or another one.
#![forbid(unsafe_code)]

mod document;
mod file;
mod ids;
mod outlet;
mod parent;
mod queue;
mod recording;
mod sampling;
mod setting;
mod spans;
mod tensor_text;
mod traces;

pub use file::TraceFile;
pub use ids::{new_span_id, new_trace_id};
pub use outlet::{Finished, NoOutlet, Outlet};
pub use parent::Parent;
pub use queue::Queue;
pub use recording::{Event, RequestRecord, TensorRecord, Trace};
pub use setting::{Change, Destination, TraceChange, TraceLevel, TraceSetting};
pub use traces::{TraceOptions, Traces};
