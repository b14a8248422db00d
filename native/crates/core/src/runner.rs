//! One model version at work: admission, scheduler, slots, statistics, drain.
//!
//! Any thread submits; whoever holds a [`Lease`] runs batches. [`Runner::retire`] is called on the
//! control plane's threads, so that engines are dropped there and never on an io thread.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering as Atomic};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::batch::Outbox;
use crate::handover::{Begin, Handover, Work};
use crate::ordering::Ordering;
use crate::scheduler::{Action, Entry, Next, Scheduler};
use crate::statistics::Tally;
use crate::sync::{Condvar, Mutex, lock};
use crate::threads;
use crate::{
    Backlog, Batch, Claim, Clock, DynamicBatcher, End, Engine, Error, ErrorKind, Gate, Mail, ModelSpec,
    Placement, Request, Slot, Snapshot, State, SystemClock, Timings,
};

/// Takes a second lease when one io thread leaves a whole batch behind. A driver that does not want
/// it drops it, and an instance thread takes over.
pub trait Drivers: Send + Sync {
    fn offer(&self, lease: Lease);
}

pub struct RunnerOptions {
    pub clock: Arc<dyn Clock>,
    pub drivers: Option<Arc<dyn Drivers>>,
}

impl Default for RunnerOptions {
    fn default() -> Self {
        Self { clock: Arc::new(SystemClock), drivers: None }
    }
}

pub struct Runner {
    shared: Arc<Shared>,
    handover: Handover<Desk, Slot>,
    drivers: Option<Arc<dyn Drivers>>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

/// What batches keep of their runner after it is gone.
pub(crate) struct Shared {
    pub(crate) spec: Arc<ModelSpec>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) ordering: Option<Ordering>,
    statistics: Mutex<Snapshot>,
    state: AtomicU8,
    /// Admitted and not ended.
    inside: AtomicUsize,
    quiet: Mutex<()>,
    went_quiet: Condvar,
}

/// The queue under the hand-over's lock.
struct Desk {
    scheduler: Box<dyn Scheduler>,
    gate: Gate,
    next_number: u64,
    next_sequence: u64,
}

impl Work for Desk {
    fn due(&self, now: Instant) -> Result<(), Option<Instant>> {
        self.scheduler.due(now)
    }

    fn has_full_batch(&self) -> bool {
        self.scheduler.has_full_batch()
    }
}

/// What [`Runner::submit`] asks of its caller.
pub enum Admission {
    Queued,
    /// Nobody runs this slot: drive the lease, or drop it and leave it to an instance thread.
    Lead(Lease),
}

/// A request's place, held by whoever waits for the answer.
pub struct Ticket {
    runner: Arc<Runner>,
    number: u64,
    claim: Arc<Claim>,
    /// When to call [`Ticket::expire`].
    pub expires: Option<Instant>,
    /// When to call it again, for a request that was executing by then.
    pub deadline: Option<Instant>,
}

/// The right to run one slot.
pub struct Lease {
    runner: Arc<Runner>,
    slot: Option<Slot>,
}

pub enum Step {
    /// A batch ran and more is due. An io thread looks after its connections before the next.
    Again(Lease),
    Done,
}

impl Runner {
    /// Starts a version on `engines`, one for each instance: the same one where it is
    /// [`Capability::concurrent`](crate::Capability::concurrent).
    pub fn start(
        spec: ModelSpec,
        engines: Vec<Arc<dyn Engine>>,
        options: RunnerOptions,
    ) -> Result<Arc<Self>, Error> {
        let scheduler = Box::new(DynamicBatcher::new(spec.batch_policy(), spec.queue.clone()));
        Self::start_with(spec, scheduler, engines, options)
    }

    /// The same with another scheduler.
    pub fn start_with(
        spec: ModelSpec,
        scheduler: Box<dyn Scheduler>,
        engines: Vec<Arc<dyn Engine>>,
        options: RunnerOptions,
    ) -> Result<Arc<Self>, Error> {
        let shared_by_many = |a: &Arc<dyn Engine>| engines.iter().filter(|b| Arc::ptr_eq(a, b)).count() > 1;
        if engines.is_empty() || engines.iter().any(|e| !e.capability().concurrent && shared_by_many(e)) {
            let text = format!("model '{}' needs an engine for each of its instances", spec.name);
            return Err(Error::new(ErrorKind::ConfigInvalid, text));
        }
        let no_delay = spec.batch_policy().max_delay.is_zero();
        let may_run_inline = spec.inline && no_delay && engines.iter().all(|e| e.capability().inline);
        let instances = engines.len();
        let slots = engines.into_iter().enumerate().map(|(index, engine)| Slot::new(index, engine)).collect();
        let desk = Desk { scheduler, gate: Gate::new(may_run_inline), next_number: 0, next_sequence: 0 };
        let runner = Arc::new(Self {
            shared: Arc::new(Shared {
                ordering: spec.preserves_order().then(Ordering::default),
                spec: Arc::new(spec),
                clock: options.clock,
                statistics: Mutex::new(Snapshot::default()),
                state: AtomicU8::new(State::Ready as u8),
                inside: AtomicUsize::new(0),
                quiet: Mutex::new(()),
                went_quiet: Condvar::new(),
            }),
            handover: Handover::new(desk, slots),
            drivers: options.drivers,
            threads: Mutex::new(Vec::new()),
        });
        // The threads that did start are let go, and the engines with them.
        let threads = threads::spawn(&runner, instances).inspect_err(|_| runner.handover.close())?;
        *lock(&runner.threads) = threads;
        Ok(runner)
    }

    pub fn spec(&self) -> &Arc<ModelSpec> {
        &self.shared.spec
    }

    pub fn state(&self) -> State {
        self.shared.state()
    }

    pub fn statistics(&self) -> Snapshot {
        lock(&self.shared.statistics).clone()
    }

    /// Requests that wait for a slot.
    pub fn backlog(&self) -> Backlog {
        self.handover.with(|desk| desk.scheduler.backlog())
    }

    pub fn placement(&self) -> Placement {
        self.handover.with(|desk| desk.gate.placement())
    }

    pub fn now(&self) -> Instant {
        self.shared.clock.now()
    }

    /// Takes a request in. A refused one comes back whole: no mail will arrive for it.
    #[allow(clippy::result_large_err, reason = "a refused request goes back by value, once")]
    pub fn submit(self: &Arc<Self>, request: Request) -> Result<(Ticket, Admission), (Error, Request)> {
        let shared = &self.shared;
        let claim = request.reply.claim.clone();
        let arrived = request.arrived;
        let deadline = request.deadline;
        let patience = shared.spec.queue.timeout(request.timeout_us).map(|timeout| arrived + timeout);
        let expires = match (deadline, patience) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        let admitted = self.handover.admit(arrived, |desk| {
            let number = desk.next_number;
            let entry = Entry::new(number, request, expires);
            // Under the lock, as `stop_admitting` is: whoever drains has counted this request, or it
            // finds the door shut.
            if shared.state() != State::Ready {
                return Err((Error::shutting_down(), entry));
            }
            desk.scheduler.admit(entry)?;
            desk.next_number += 1;
            shared.inside.fetch_add(1, Atomic::SeqCst);
            Ok(number)
        });
        match admitted {
            Ok((number, slot)) => {
                let ticket = Ticket { runner: self.clone(), number, claim, expires, deadline };
                let admission = match slot {
                    Some(slot) => Admission::Lead(self.lease(slot)),
                    None => Admission::Queued,
                };
                Ok((ticket, admission))
            }
            Err((error, entry)) => {
                let after = shared.clock.now().saturating_duration_since(arrived);
                lock(&shared.statistics).record_failure(error.kind.failure_reason(), after);
                Err((error, *entry.request))
            }
        }
    }

    /// Sleeps until this model has work for an instance thread; `None` once it is retired.
    pub(crate) fn wait(self: &Arc<Self>) -> Option<Lease> {
        let slot = self.handover.wait(|| self.shared.clock.now())?;
        Some(self.lease(slot))
    }

    /// Leaves an instance thread's lease to the io threads once the model runs inline: under a steady
    /// load its queue might never be empty, and the thread would keep it. Otherwise it comes back.
    pub(crate) fn pass_on(&self, lease: Lease) -> Option<Lease> {
        match &self.drivers {
            Some(drivers) if self.placement() == Placement::Inline => {
                drivers.offer(lease);
                None
            }
            _ => Some(lease),
        }
    }

    fn lease(self: &Arc<Self>, slot: Slot) -> Lease {
        Lease { runner: self.clone(), slot: Some(slot) }
    }

    /// Takes no new requests from now on.
    pub fn stop_admitting(&self) {
        self.handover.with(|_| self.shared.advance(State::Draining));
    }

    /// Requests inside, waiting or executing.
    pub fn inside(&self) -> usize {
        self.shared.inside.load(Atomic::SeqCst)
    }

    /// Stops admitting and waits until every request inside has ended, `patience` at most. Answers
    /// how many have not.
    pub fn drain(&self, patience: Duration) -> usize {
        self.stop_admitting();
        let until = Instant::now() + patience;
        let mut quiet = lock(&self.shared.quiet);
        loop {
            let inside = self.inside();
            let left = until.saturating_duration_since(Instant::now());
            if inside == 0 || left.is_zero() {
                return inside;
            }
            let woken = self.shared.went_quiet.wait_timeout(quiet, left);
            (quiet, _) = woken.unwrap_or_else(std::sync::PoisonError::into_inner);
        }
    }

    /// Drains, ends what is still queued with an error, stops the threads and drops the engines, all
    /// on the calling thread. Answers false when an engine did not come back in time.
    pub fn retire(&self, patience: Duration) -> bool {
        if self.drain(patience) > 0 {
            self.refuse_queued();
        }
        self.handover.close();
        let until = Instant::now() + patience.max(Duration::from_millis(100));
        let Some(slots) = self.handover.collect(until, Instant::now) else {
            self.shared.advance(State::Failed);
            return false;
        };
        for thread in lock(&self.threads).drain(..) {
            if thread.join().is_err() {
                log::error!("an instance thread of model '{}' panicked", self.shared.spec.name);
            }
        }
        drop(slots);
        self.shared.advance(State::Unloaded);
        true
    }

    fn refuse_queued(&self) {
        for entry in self.handover.with(|desk| desk.scheduler.clear()) {
            self.shared.end_in_queue(entry, Error::shutting_down());
        }
    }
}

impl Shared {
    pub(crate) fn record(&self, tally: &Tally, timings: &Timings, execution: Option<usize>, now: Instant) {
        lock(&self.statistics).record(tally, timings, execution, now);
    }

    /// `inside` and `state` are written here and in a drain in opposite order, each side reading the
    /// other's: only sequential consistency keeps both from missing the other.
    pub(crate) fn ended(&self, requests: usize) {
        let before = self.inside.fetch_sub(requests, Atomic::SeqCst);
        if before == requests && self.state() != State::Ready {
            drop(lock(&self.quiet));
            self.went_quiet.notify_all();
        }
    }

    fn state(&self) -> State {
        State::ALL[usize::from(self.state.load(Atomic::SeqCst))]
    }

    fn advance(&self, next: State) {
        let step = |now: u8| State::ALL[usize::from(now)].allows(next).then_some(next as u8);
        // A step that does not exist, a second drain say, changes nothing.
        let _ = self.state.fetch_update(Atomic::SeqCst, Atomic::SeqCst, step);
    }

    /// Ends a request that no batch will carry.
    fn end_in_queue(&self, entry: Entry, error: Error) {
        let request = entry.request;
        let claim = &request.reply.claim;
        // Somebody else may have decided first; then theirs is the reason.
        let error = if claim.answer() { error } else { claim.abandoned().unwrap_or(error) };
        let waited = self.clock.now().saturating_duration_since(request.arrived);
        lock(&self.statistics).record_failure(error.kind.failure_reason(), waited);
        let key = request.reply.key;
        let mailbox = request.reply.mailbox.clone();
        let timings = Timings { queue: waited, ..Timings::default() };
        let end = End { result: Err(error), timings, request };
        let mut outbox = Outbox::default();
        outbox.add(&mailbox, Mail { key, response: None, end: Some(end) });
        outbox.deliver();
        self.ended(1);
    }
}

impl Ticket {
    /// The caller is gone. Frees the queue place at once; an executing request is told. False when
    /// the answer is already on its way.
    pub fn cancel(&self) -> bool {
        if !self.claim.cancel() {
            return false;
        }
        self.leave_queue(Error::cancelled());
        true
    }

    /// To be called once [`Ticket::expires`] has come. A queued request ends now. An executing one is
    /// given up only when its own deadline has passed; then this answers true, and no one needs to
    /// wait for its end.
    pub fn expire(&self) -> bool {
        if self.leave_queue(Error::expired()) {
            return false;
        }
        let past = |deadline| self.runner.now() >= deadline;
        self.deadline.is_some_and(past) && self.claim.expire()
    }

    fn leave_queue(&self, error: Error) -> bool {
        let entry = self.runner.handover.with(|desk| desk.scheduler.cancel(self.number));
        let left = entry.is_some();
        if let Some(entry) = entry {
            self.runner.shared.end_in_queue(entry, error);
        }
        left
    }
}

impl Lease {
    /// Runs at most one batch.
    pub fn run(mut self) -> Step {
        let Some(slot) = self.slot.take() else {
            return Step::Done;
        };
        let runner = self.runner.clone();
        let shared = &runner.shared;
        let started = shared.clock.now();
        let mut dropped = Vec::new();
        let begin = runner.handover.begin(started, slot, |desk, slot| {
            let next: Next = desk.scheduler.next(started, slot.index);
            dropped = next.dropped;
            let Action::Run(entries) = next.action else {
                return None;
            };
            let sequence = desk.next_sequence;
            desk.next_sequence += 1;
            Some((entries, sequence, desk.gate.wants_processor_time()))
        });
        for (entry, error) in dropped {
            shared.end_in_queue(entry, error);
        }
        let Begin::Run((entries, sequence, meter), mut slot, second) = begin else {
            return Step::Done;
        };
        let batch = Batch::new(shared.clone(), entries, sequence, started);
        if let Some(second) = second {
            let second = runner.lease(second);
            if let Some(drivers) = &runner.drivers {
                drivers.offer(second);
            }
        }
        // Not to be held beyond the slot's return: the last one to hold an engine drops it.
        let engine = slot.engine.clone();
        let processor_before = meter.then(|| shared.clock.processor_time());
        let executed = catch_unwind(AssertUnwindSafe(|| engine.execute(&mut slot, batch)));
        let processor = processor_before.map(|before| shared.clock.processor_time().saturating_sub(before));
        drop(engine);
        if executed.is_err() {
            // What the engine kept may be half written.
            slot = Slot::new(slot.index, slot.engine);
        }
        let ended = shared.clock.now();
        let took = ended.saturating_duration_since(started);
        let done = |desk: &mut Desk, slot: &Slot| {
            desk.scheduler.done(slot.index);
            desk.gate.record(took, processor) == Placement::Inline
        };
        match runner.handover.finish(ended, slot, done) {
            Some(slot) => {
                self.slot = Some(slot);
                Step::Again(self)
            }
            None => Step::Done,
        }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if let Some(slot) = self.slot.take() {
            self.runner.handover.give_back(slot, self.runner.shared.clock.now());
        }
    }
}
