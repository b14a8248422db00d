//! The heart of Kushi: admits requests, forms batches, runs engines, answers.
//!
//! What always holds: an accepted request gets its responses and exactly one end; a batch is never
//! larger than its model allows; nothing here knows Python, HTTP, ONNX Runtime or an async runtime.
//!
//! The way of a request: [`ModelSpec::bind`] checks the inputs, [`Runner::submit`] queues the [`Request`] and may hand
//! out a [`Lease`]; whoever holds the lease runs batches on an [`Engine`]; answers reach the asker's [`Mailbox`].
#![forbid(unsafe_code)]

mod base;
mod batch;
mod execute;
mod model;
mod request;
mod schedule;

pub use base::{
    AskedVersion, Clock, Complaints, Count, Drain, Error, ErrorKind, FailureReason, FreeSlots, Inbox,
    InboxFull, State, SystemClock, cause_text, epoch_ms, os_text, shortened,
};
pub use batch::{Batch, Gathered, Scratch, Sent, UNANSWERED_PER_SLOT};
pub use execute::{
    Admission, Afterwards, Alarm, Attendance, Attendee, Capability, Drivers, Engine, FollowUp, Gate, Lease,
    Look, Occupancy, OnReady, Placement, RateLimiter, Readiness, Recipient, ResourceCount, Runner,
    RunnerOptions, Slot, SlotToken, Step, TextAnswer, TextCounts, TextFacts, TextPiece, Texts, Ticket, Times,
    Told, TrialInputs, WarmUpSample, Watched, Watcher, WatchingThread, Writing, ask_each, best_time,
    lower_priority, rehearse, stay_on,
};
pub use model::{
    Batching, Bound, Buffer, ConfigTexts, DataType, InputData, InputDraft, Inputs, InstanceRate, Labels,
    MetricsSpec, ModelSpec, QueuePolicy, QueueSpec, ResourceDemand, Scheduling, Shape, Tensor, TensorInfo,
    TensorSpec, TimeoutAction, Wanted, check_declared, element_count,
};
pub use request::{
    Answered, BatchRow, Claim, Classes, Computed, Context, Course, Credit, End, MOST_WAITING, Mail, Mailbox,
    Observer, OnlyResponse, Parameter, Reply, Request, Response, Sequence, SequenceId, Snapshot, Span,
    Timings, Totals, Window,
};
pub use schedule::{
    Action, Backlog, BatchPolicy, Decision, Due, DynamicBatcher, Entry, Next, Plan, Queue, Scheduler, Seat,
    Waiting, decide,
};
