//! What requests that belong together have in common: a child gets it from its parent.
//!
//! A request that goes through several models, or whose engine asks other models, has children. They are part of what
//! a server has begun: a runner that drains takes them in, and refuses everything else. A context that says so can only
//! be made while the parent is inside, and keeps every drain that it names waiting until it is dropped: nobody can hold
//! one that no drain waits for.

use std::sync::Arc;

use crate::Span;
use crate::request::ledger::Ledger;

/// The default is that of a request without a parent.
#[derive(Clone, Default)]
pub struct Context {
    /// Where the parent is inside.
    parent: Option<Arc<[Pin]>>,
    /// How many parents there are, one above the other.
    depth: usize,
    /// Where it is traced: its own, or that of what it is below, until it is admitted.
    span: Option<Arc<dyn Span>>,
}

/// So many models may ask one another in a row. One that asks itself in the end would do so for ever.
const DEEPEST: usize = 32;

impl Context {
    /// For the children of a request that is inside. The drains that these keep waiting wait for all clones to be
    /// dropped.
    pub(crate) fn pinning(pins: impl IntoIterator<Item = Pin>) -> Self {
        Self { parent: Some(pins.into_iter().collect()), ..Self::default() }
    }

    /// For the children of a request that is inside, and stays there until this has been called.
    pub(crate) fn of_child(ledger: &Arc<Ledger>) -> Self {
        Self::pinning([Pin::new(ledger)])
    }

    /// For a child of a request with this context.
    pub(crate) fn below(self, parent: &Self) -> Self {
        Self { depth: parent.depth + 1, span: parent.span.clone(), ..self }
    }

    /// For a request without a parent that is traced.
    pub fn traced(span: Arc<dyn Span>) -> Self {
        Self { span: Some(span), ..Self::default() }
    }

    /// `None`: the request is not traced.
    pub fn span(&self) -> Option<&Arc<dyn Span>> {
        self.span.as_ref()
    }

    /// Gives the request a span of its own, below the one that it came with. Answers that one.
    pub(crate) fn replace_span(&mut self, own: Arc<dyn Span>) -> Option<Arc<dyn Span>> {
        self.span.replace(own)
    }

    pub(crate) fn is_too_deep(&self) -> bool {
        self.depth > DEEPEST
    }

    pub(crate) fn is_of_child(&self) -> bool {
        self.parent.is_some()
    }
}

/// Keeps a drain waiting.
pub(crate) struct Pin(Arc<Ledger>);

impl Pin {
    /// Whoever calls this knows that no drain has ended: a request is inside, or none has begun.
    pub(crate) fn new(ledger: &Arc<Ledger>) -> Self {
        ledger.pinned();
        Self(ledger.clone())
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        self.0.unpinned();
    }
}
