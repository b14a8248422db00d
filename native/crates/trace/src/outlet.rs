//! Where traces go that have ended.

use std::time::Instant;

use crate::recording::{Event, RequestRecord, Stamp};
use crate::{Parent, TraceLevel};

/// A trace that has ended: all that was recorded of it.
pub struct Finished {
    /// Of the settings that it was made by, each time they change another one.
    pub setting: u64,
    pub log_frequency: u32,
    pub level: TraceLevel,
    /// The last of as many as there should be.
    pub is_last: bool,
    /// No more than so many are to come from these settings.
    pub is_counted: bool,
    /// Of the request that the client made.
    pub id: u64,
    pub model: String,
    pub trace_id: u128,
    pub span_id: u64,
    pub parent: Option<Parent>,
    pub began: Stamp,
    pub ended: Instant,
    /// What the door saw, in order.
    pub events: Vec<(Event, Instant)>,
    /// The request, and those below it, as they ended.
    pub requests: Vec<RequestRecord>,
    /// Why the request failed, if it did.
    pub error: Option<String>,
}

/// Takes traces, and never waits: what finds no room is dropped and counted.
pub trait Outlet: Send + Sync {
    fn put(&self, trace: Finished);

    /// Settings have been replaced, and their last trace has ended.
    fn retire(&self, setting: u64);

    /// Writes what is left, until then at most, and takes nothing more.
    fn close(&self, until: Instant);
}

/// Nowhere.
pub struct NoOutlet;

impl Outlet for NoOutlet {
    fn put(&self, _trace: Finished) {}

    fn retire(&self, _setting: u64) {}

    fn close(&self, _until: Instant) {}
}
