//! The trace of a request: what becomes of it, told to whoever records it.
//!
//! Most requests are not traced: their [`Context`](crate::Context) has no span, and nothing here is called. A span never
//! waits and never fails.

use std::sync::Arc;
use std::time::Instant;

use crate::{Error, ModelSpec, Request, Response};

/// A request of a trace, or whoever made the trace and stands above the first of them.
pub trait Span: Send + Sync {
    /// The span of a request below this one, which is about to be admitted. It is dropped without an end where the
    /// request is refused.
    fn open(&self, spec: &ModelSpec, request: &Request, now: Instant) -> Arc<dyn Span>;

    /// The request has got a response.
    fn respond(&self, spec: &ModelSpec, response: &Response);

    /// The request has ended.
    fn end(&self, course: &Course<'_>);

    /// What a model may tell others of the trace that it is part of, as JSON.
    fn carried(&self) -> Option<String> {
        None
    }
}

/// What became of a request.
pub struct Course<'a> {
    /// `None`: it was never executed.
    pub computed: Option<Computed>,
    pub ended: Instant,
    pub result: Result<(), &'a Error>,
}

/// When the parts of an execution began.
#[derive(Clone, Copy, Debug)]
pub struct Computed {
    pub started: Instant,
    pub input_done: Instant,
    pub output_started: Instant,
}
