//! What is known of a runner's requests: how many are inside, how they ended, and whether new ones
//! may come. Batches keep it, so it outlives its runner.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::base::drain::{Count, Drain};
use crate::base::held_back::LookAgain;
use crate::base::sync::atomic::{AtomicU8, Ordering as Atomic};
use crate::base::sync::{Mutex, lock};
use crate::request::ordering::Ordering;
use crate::request::outbox::Outbox;
use crate::request::statistics::Tally;
use crate::{
    Clock, Course, End, Error, FailureReason, Mail, ModelSpec, Observer, Request, Snapshot, State, Timings,
};

pub(crate) struct Ledger {
    pub(crate) spec: Arc<ModelSpec>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) ordering: Option<Arc<Ordering>>,
    pub(crate) observer: Option<Arc<dyn Observer>>,
    statistics: Mutex<Snapshot>,
    state: AtomicU8,
    /// What a drain waits for: requests that were admitted and have not ended, and pins. One count of both, because one
    /// may follow from the other: it is never zero in between.
    unfinished: Count,
    /// Contexts of requests that may have children here.
    pins: Count,
    drain: Drain,
}

impl Ledger {
    pub(crate) fn new(
        spec: ModelSpec,
        clock: Arc<dyn Clock>,
        observer: Option<Arc<dyn Observer>>,
        look_again: LookAgain,
    ) -> Self {
        Self {
            ordering: spec.preserves_order().then(|| Arc::new(Ordering::new(spec.decoupled, look_again))),
            observer,
            spec: Arc::new(spec),
            clock,
            statistics: Mutex::new(Snapshot::default()),
            state: AtomicU8::new(State::Ready as u8),
            unfinished: Count::default(),
            pins: Count::default(),
            drain: Drain::default(),
        }
    }

    pub(crate) fn statistics(&self) -> Snapshot {
        lock(&self.statistics).clone()
    }

    /// Nothing has been counted, as far as anybody learns.
    pub(crate) fn forget_statistics(&self) {
        *lock(&self.statistics) = Snapshot::default();
        if let Some(observer) = &self.observer {
            observer.forget();
        }
    }

    pub(crate) fn record_failure(&self, reason: FailureReason, after: Duration) {
        lock(&self.statistics).record_failure(reason, after);
    }

    pub(crate) fn admitted(&self) {
        self.unfinished.begin();
    }

    /// Requests that were admitted and have not ended.
    pub(crate) fn inside(&self) -> usize {
        let pins = self.pins.get();
        self.unfinished().saturating_sub(pins)
    }

    pub(crate) fn pinned(&self) {
        self.unfinished.begin();
        self.pins.begin();
    }

    pub(crate) fn unpinned(&self) {
        self.pins.end(1);
        self.ended(1);
    }

    pub(crate) fn unfinished(&self) -> usize {
        self.unfinished.get()
    }

    /// Answers how much has not ended by `until`.
    pub(crate) fn wait_until_quiet(&self, until: Instant) -> usize {
        self.drain.wait_until_none(|| self.unfinished(), until)
    }

    pub(crate) fn record(&self, tally: &Tally, timings: &Timings, execution: Option<usize>, now: Instant) {
        lock(&self.statistics).record(tally, timings, execution, now);
    }

    pub(crate) fn record_execution(&self, rows: usize, took: Duration) {
        lock(&self.statistics).record_execution(rows, &Timings { compute_infer: took, ..Timings::default() });
    }

    pub(crate) fn ended(&self, requests: usize) {
        if self.unfinished.end(requests) == 0 {
            self.drain.something_ended();
        }
    }

    /// Nobody waits for this request any more, which a batch has: what waited behind it may leave. Counts until it has.
    pub(crate) fn given_up(&self, sequence: u64, number: u64) {
        let Some(ordering) = &self.ordering else { return };
        self.pinned();
        ordering.give_up(sequence, number);
        self.unpinned();
    }

    pub(crate) fn state(&self) -> State {
        State::ALL[usize::from(self.state.load(Atomic::Acquire))]
    }

    pub(crate) fn stop_admitting(&self) {
        self.advance(State::Draining);
        self.drain.begin();
    }

    pub(crate) fn advance(&self, next: State) {
        let step = |now: u8| State::ALL[usize::from(now)].allows(next).then_some(next as u8);
        // A step that does not exist, a second drain say, changes nothing.
        let _ = self.state.fetch_update(Atomic::AcqRel, Atomic::Acquire, step);
    }

    /// Ends a request that no batch will carry.
    pub(crate) fn end_in_queue(&self, request: Box<Request>, error: Error) {
        let claim = &request.reply.claim;
        // Somebody else may have decided first; then theirs is the reason.
        let error = if claim.answer() { error } else { claim.abandoned().unwrap_or(error) };
        let now = self.clock.now();
        let waited = now.saturating_duration_since(request.arrived);
        if let Some(span) = request.context.span() {
            span.end(&Course { computed: None, ended: now, result: Err(&error) });
        }
        self.record_failure(error.kind.failure_reason(), waited);
        let key = request.reply.key;
        let mailbox = request.reply.mailbox.clone();
        let timings = Timings { queue: waited, ..Timings::default() };
        let end = End { result: Err(error), timings, request };
        Outbox::of(mailbox, Mail { key, response: None, end: Some(end), credit: None }).deliver();
        self.ended(1);
    }
}
