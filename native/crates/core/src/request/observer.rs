//! Hears of every answer of a model, for figures that its sums do not hold.
//!
//! Most models have no observer, and nothing here is called.

use std::any::Any;
use std::time::{Duration, Instant};

use crate::{Error, ModelSpec, Response, Timings};

/// Called on engine and io threads before the asker has the answer: whoever has one finds it counted. It does not wait
/// and does not fail.
pub trait Observer: Any + Send + Sync {
    fn hear(&self, spec: &ModelSpec, answer: &Answered<'_>);

    /// What it has heard so far was warm-up.
    fn forget(&self);
}

/// A response, the end, or both at once.
pub struct Answered<'a> {
    pub response: Option<&'a Response>,
    pub end: Option<Result<&'a Timings, &'a Error>>,
    /// How many responses the request had before.
    pub before: usize,
    /// Since the request arrived.
    pub total: Duration,
    /// Since the response before; of the first, since the execution began.
    pub took: Duration,
    pub now: Instant,
}
