//! The heart of Kushi: admits requests, forms batches, runs engines, answers.
//!
//! What always holds: an accepted request gets its responses and exactly one end; a batch is never
//! larger than its model allows; nothing here knows Python, HTTP, ONNX Runtime or an async runtime.
//!
//! The way of a request: [`ModelSpec::bind`] checks the inputs, [`Runner::submit`] queues the [`Request`] and may hand
//! out a [`Lease`]; whoever holds the lease runs batches on an [`Engine`]; answers reach the asker's [`Mailbox`].
#![forbid(unsafe_code)]

mod afterwards;
mod alarm;
mod attendance;
mod batch;
mod bind;
mod buffer;
mod cause_text;
mod classes;
mod clock;
mod complaints;
mod context;
mod credit;
mod datatype;
mod declared;
mod drain;
mod engine;
mod epoch;
mod error;
mod free_slots;
mod gate;
mod gather;
mod handover;
mod held_back;
mod inbox;
mod lease;
mod ledger;
mod observer;
mod only_response;
mod ordering;
mod os_text;
mod outbox;
mod plan;
mod policy;
mod queue;
mod rates;
mod readiness;
mod recipient;
mod reply;
mod request;
mod runner;
mod runs;
mod scheduler;
mod sequence;
mod shortened;
mod slot_token;
mod span;
mod spec;
mod state;
mod statistics;
mod sync;
mod tensor;
mod threads;
mod ticket;
mod trial;
mod unanswered;
mod warm_up;
mod watch;

pub use afterwards::{Afterwards, FollowUp};
pub use alarm::Alarm;
pub use attendance::{Attendance, Attendee, Told};
pub use batch::{Batch, Sent};
pub use bind::{Bound, InputData, InputDraft};
pub use buffer::Buffer;
pub use cause_text::cause_text;
pub use classes::Classes;
pub use clock::{Clock, SystemClock};
pub use complaints::Complaints;
pub use context::Context;
pub use credit::{Credit, Window};
pub use datatype::DataType;
pub use declared::{TensorInfo, check_declared};
pub use drain::{Count, Drain};
pub use engine::{Capability, Engine, Slot};
pub use epoch::epoch_ms;
pub use error::{Error, ErrorKind, FailureReason};
pub use free_slots::FreeSlots;
pub use gate::{Gate, Placement};
pub use gather::{Gathered, Scratch};
pub use inbox::{Inbox, InboxFull};
pub use lease::{Drivers, Lease, Step};
pub use observer::{Answered, Observer};
pub use only_response::OnlyResponse;
pub use ordering::MOST_WAITING;
pub use os_text::os_text;
pub use plan::{Plan, Seat};
pub use policy::{BatchPolicy, Decision, Waiting, decide};
pub use queue::{Backlog, Entry, Queue};
pub use rates::{RateLimiter, ResourceCount};
pub use readiness::{OnReady, Readiness, ask_each};
pub use recipient::Recipient;
pub use reply::{Claim, End, Mail, Mailbox, Reply, Response, Timings};
pub use request::{Inputs, Parameter, Request, Wanted};
pub use runner::{Admission, Occupancy, Runner, RunnerOptions};
pub use scheduler::{Action, Due, DynamicBatcher, Next, Scheduler};
pub use sequence::{Sequence, SequenceId};
pub use shortened::shortened;
pub use slot_token::SlotToken;
pub use span::{Computed, Course, Span};
pub use spec::{
    Batching, InstanceRate, Labels, MetricsSpec, ModelSpec, QueuePolicy, QueueSpec, ResourceDemand,
    TensorSpec, TimeoutAction,
};
pub use state::State;
pub use statistics::{BatchRow, Snapshot, Totals};
pub use tensor::{Shape, Tensor, element_count};
pub use threads::lower_priority;
pub use ticket::Ticket;
pub use trial::{TrialInputs, best_time, rehearse};
pub use unanswered::UNANSWERED_PER_SLOT;
pub use warm_up::WarmUpSample;
pub use watch::{Look, Watched, Watcher, WatchingThread};
