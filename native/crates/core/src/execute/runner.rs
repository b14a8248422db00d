//! One model version at work: admission, scheduler, slots, statistics, drain.
//!
//! Any thread submits; whoever holds a [`Lease`] runs batches. [`Runner::retire`] is called on the
//! control plane's threads, so that engines are dropped there and never on an io thread.

mod children;
mod ending;
mod permits;

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use crate::base::held_back::LookAgain;
use crate::base::sync::thread::JoinHandle;
use crate::base::sync::{Mutex, lock};
use crate::batch::unanswered::Unanswered;
use crate::execute::attendance::Attendances;
use crate::execute::handover::{Handover, Work};
use crate::execute::rates::Permits;
use crate::execute::runs::Runs;
use crate::execute::threads;
use crate::request::ledger::Ledger;
use crate::request::ordering::Ordering;
use crate::schedule::queue::Entry;
use crate::schedule::scheduler::Scheduler;
pub(crate) use permits::Marks;

use crate::{
    Attendee, Backlog, Batch, Clock, ConfigTexts, Drivers, Due, DynamicBatcher, Engine, Error, ErrorKind,
    FreeSlots, Gate, Lease, ModelSpec, Observer, OnReady, Placement, QueueSpec, RateLimiter, Readiness,
    Request, Scheduling, Slot, Snapshot, Span, State, SystemClock, Texts, Ticket, ask_each, epoch_ms,
};

pub struct RunnerOptions {
    pub clock: Arc<dyn Clock>,
    pub drivers: Option<Arc<dyn Drivers>>,
    pub observer: Option<Arc<dyn Observer>>,
    /// The first thing that every instance thread does: makes way for io threads.
    pub thread_start: fn(),
    /// `None`: nothing limits it, whatever its specification says.
    pub limiter: Option<Arc<RateLimiter>>,
}

impl Default for RunnerOptions {
    fn default() -> Self {
        Self {
            clock: Arc::new(SystemClock),
            drivers: None,
            observer: None,
            thread_start: threads::lower_priority,
            limiter: None,
        }
    }
}

pub struct Runner {
    pub(crate) ledger: Arc<Ledger>,
    pub(crate) handover: Handover<RunnerState, Slot>,
    pub(crate) drivers: Option<Arc<dyn Drivers>>,
    /// Of its engines; empty where one of them always can execute.
    readiness: Vec<Arc<dyn Readiness>>,
    texts: Option<Arc<dyn Texts>>,
    started_at: u64,
    /// Its engines do: see [`Capability::keeps_slots`](crate::Capability::keeps_slots).
    pub(crate) keeps_slots: bool,
    /// Its engines and its specification let it run inline, as long as no request waits for others.
    may_run_inline: bool,
    /// Where its instances ask for resources.
    permits: Option<Permits>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    pub(crate) thread_start: fn(),
    /// The engine of all its instances, where [`Self::resize`] may change how many there are.
    shared: Option<Weak<dyn Engine>>,
    /// `None`: as its specification has it.
    config: Mutex<Option<ConfigTexts>>,
}

/// The queue under the hand-over's lock.
pub(crate) struct RunnerState {
    pub(crate) scheduler: Box<dyn Scheduler>,
    pub(crate) queue: QueueSpec,
    pub(crate) gate: Gate,
    pub(crate) next_number: u64,
    pub(crate) next_sequence: u64,
    pub(crate) runs: Runs,
    /// Batches that are bound to a slot, as those whose runs are to begin again: instance threads execute them.
    pub(crate) moved: VecDeque<(usize, Box<Batch>)>,
    /// So many slots take work.
    instances: usize,
    /// Where answers keep the order of requests.
    pub(crate) ordering: Option<Arc<Ordering>>,
    /// Of engines that keep their slots.
    pub(crate) unanswered: Option<Arc<Unanswered>>,
    /// The same.
    pub(crate) attendances: Option<Attendances>,
    /// Where there are permits.
    pub(crate) marks: Option<Marks>,
    /// What waited was refused, or nothing did: children come too late, too.
    pub(crate) closed: bool,
}

impl Work for RunnerState {
    fn due(&self, now: Instant, free: &FreeSlots) -> Due {
        match &self.marks {
            None => self.unmarked_due(now, free),
            Some(marks) => marks.due(free, |free| self.unmarked_due(now, free)),
        }
    }
}

impl RunnerState {
    /// As if no slot waited for a permit.
    fn unmarked_due(&self, now: Instant, free: &FreeSlots) -> Due {
        // Never held back: answers to others may have to wait for theirs.
        if !self.moved.is_empty()
            && let Some(slot) = free.iter().find(|&slot| self.moved_for(slot).is_some())
        {
            return Due::Only(slot);
        }
        if self.is_held_back() {
            return Due::Nothing;
        }
        match &self.attendances {
            None => self.scheduler.due(now, free),
            Some(attendances) => attendances.due(free, |free| self.scheduler.due(now, free)),
        }
    }

    /// Whether nothing new begins on any slot, because too many batches are unanswered, or too much waits for the
    /// answer to an earlier request.
    pub(crate) fn is_held_back(&self) -> bool {
        self.unanswered.as_ref().is_some_and(|unanswered| unanswered.hold_back())
            || self.ordering.as_ref().is_some_and(|ordering| ordering.hold_back())
    }

    pub(crate) fn take_moved(&mut self, slot: usize) -> Option<Box<Batch>> {
        let place = self.moved_for(slot)?;
        self.moved.remove(place).map(|(_, batch)| batch)
    }

    /// Those of slots that take no work any more are for all.
    fn moved_for(&self, slot: usize) -> Option<usize> {
        self.moved.iter().position(|(of, _)| *of == slot || *of >= self.instances)
    }
}

/// The requests of a model version that have not ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Occupancy {
    pub waiting: usize,
    pub running: usize,
}

/// What [`Runner::submit`] asks of its caller.
pub enum Admission {
    Queued,
    /// Nobody runs this slot: drive the lease, or drop it and leave it to a thread of the model.
    Lead(Lease),
}

impl Runner {
    /// Starts a version on `engines`, one for each instance: the same one where it is
    /// [`Capability::concurrent`](crate::Capability::concurrent).
    pub fn start(
        spec: ModelSpec,
        engines: Vec<Arc<dyn Engine>>,
        options: RunnerOptions,
    ) -> Result<Arc<Self>, Error> {
        let scheduler =
            Box::new(DynamicBatcher::new(spec.batch_policy(), &spec.queue, spec.preserves_order()));
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
        let keeps_slots = engines[0].capability().keeps_slots;
        if engines.iter().any(|engine| engine.capability().keeps_slots != keeps_slots) {
            let text =
                format!("model '{}' has engines that keep their slots and others that do not", spec.name);
            return Err(Error::new(ErrorKind::ConfigInvalid, text));
        }
        let no_delay = spec.batch_policy().max_delay.is_zero();
        let may_run_inline =
            spec.inline && spec.cores.is_empty() && engines.iter().all(|e| e.capability().inline);
        let instances = engines.len();
        let binds = spec.binds_instances() && !keeps_slots;
        let readiness =
            engines.iter().map(|engine| engine.readiness()).collect::<Option<_>>().unwrap_or_default();
        let texts = engines[0].texts();
        let permits = Permits::of(options.limiter.as_ref(), &spec.rates)?;
        let runs = Runs::new(&engines);
        let is_shared = engines.iter().all(|engine| Arc::ptr_eq(engine, &engines[0]));
        let resizes = is_shared
            && engines[0].capability().concurrent
            && !keeps_slots
            && spec.cores.is_empty()
            && permits.is_none();
        let shared = resizes.then(|| Arc::downgrade(&engines[0]));
        let attending = if keeps_slots { engines.clone() } else { Vec::new() };
        let slots = engines.into_iter().enumerate().map(|(index, engine)| Slot::new(index, engine)).collect();
        let runner = Arc::new_cyclic(|runner| {
            if let Some(permits) = &permits {
                permits.belong_to(runner);
            }
            let weak = runner.clone();
            let look_again: LookAgain =
                Arc::new(move || drop(weak.upgrade().inspect(|runner: &Arc<Self>| runner.look_again())));
            let queue = spec.queue.clone();
            let ledger = Ledger::new(spec, options.clock, options.observer, look_again.clone());
            let state = RunnerState {
                scheduler,
                queue,
                gate: if keeps_slots { Gate::always_inline() } else { Gate::new(may_run_inline && no_delay) },
                next_number: 0,
                next_sequence: 0,
                runs,
                moved: VecDeque::new(),
                instances,
                ordering: ledger.ordering.clone(),
                unanswered: keeps_slots.then(|| Arc::new(Unanswered::new(instances, look_again))),
                attendances: keeps_slots.then(|| Attendances::new(instances)),
                marks: permits.as_ref().map(|_| Marks::default()),
                closed: false,
            };
            Self {
                ledger: Arc::new(ledger),
                handover: if binds { Handover::bound(state, slots) } else { Handover::new(state, slots) },
                drivers: options.drivers,
                readiness,
                texts,
                started_at: epoch_ms(Instant::now()) / 1000,
                keeps_slots,
                may_run_inline,
                permits,
                threads: Mutex::new(Vec::new()),
                thread_start: options.thread_start,
                shared,
                config: Mutex::new(None),
            }
        });
        let spawned = if keeps_slots {
            runner.handover.set_inline();
            threads::spawn_clock(&runner).map(|clock| vec![clock])
        } else {
            (0..instances).map(|index| threads::spawn(&runner, index)).collect()
        };
        // The threads that did start are let go, and the engines with them.
        *lock(&runner.threads) = spawned.inspect_err(|_| runner.handover.close())?;
        for (slot, engine) in attending.into_iter().enumerate() {
            engine.attend(Attendee::new(Arc::downgrade(&runner), slot));
        }
        Ok(runner)
    }

    pub fn spec(&self) -> &Arc<ModelSpec> {
        &self.ledger.spec
    }

    pub fn config(&self) -> ConfigTexts {
        let ModelSpec { config_json, config_message, .. } = &**self.spec();
        let stated = lock(&self.config).clone();
        stated.unwrap_or_else(|| ConfigTexts { json: config_json.clone(), message: config_message.clone() })
    }

    /// It stays as it is, and its configuration is another one.
    pub fn restate(&self, config: ConfigTexts) {
        *lock(&self.config) = Some(config);
    }

    /// Requests wait and are joined in another way from now on, those that wait already as well: none of them is refused,
    /// and they keep their timeouts. Whether answers keep the order of requests stays as it is.
    pub fn reschedule(self: &Arc<Self>, scheduling: Scheduling) {
        let Scheduling { batching, queue } = scheduling;
        let spec = ModelSpec { batching, queue, ..(**self.spec()).clone() };
        let policy = spec.batch_policy();
        let allowed = self.may_run_inline && policy.max_delay.is_zero();
        let mut scheduler = DynamicBatcher::new(policy, &spec.queue, self.ledger.ordering.is_some());
        self.handover.change(self.now(), |state| {
            scheduler.take_over(state.scheduler.clear(), &spec.queue);
            state.scheduler = Box::new(scheduler);
            state.queue = spec.queue;
            if !self.keeps_slots {
                state.gate.permit(allowed);
            }
            state.gate.placement() == Placement::Inline
        });
        // What was due may wait for others now.
        self.end_useless_waits();
        self.look_again();
    }

    /// How many instances [`Self::resize`] may make; 0 where it is not possible, since they do not share one engine, or
    /// something tells them apart.
    pub fn most_instances(&self) -> usize {
        self.shared.as_ref().and_then(Weak::upgrade).map_or(0, |engine| engine.most_instances())
    }

    /// So many instances execute from now on. One that goes finishes what it executes. Where it fails, there are as many as
    /// before.
    pub fn resize(self: &Arc<Self>, instances: usize) -> Result<(), Error> {
        let may_be = |engine: &Arc<dyn Engine>| {
            (1..=engine.most_instances()).contains(&instances) && self.state() == State::Ready
        };
        let engine = self.shared.as_ref().and_then(Weak::upgrade).filter(may_be).ok_or_else(|| {
            let text =
                format!("model '{}' cannot have {instances} instances while it serves", self.spec().name);
            Error::new(ErrorKind::ConfigInvalid, text)
        })?;
        engine.make_room(instances)?;
        let set = |count: usize| {
            let make = |index| Slot::new(index, engine.clone());
            self.handover.resize(self.now(), count, make, |state| {
                state.runs.grow(count, &engine);
                std::mem::replace(&mut state.instances, count)
            })
        };
        let (before, new) = set(instances).ok_or_else(Error::shutting_down)?;
        let mut spawned = Vec::with_capacity(new.len());
        let started = new.iter().try_for_each(|&index| {
            spawned.push(threads::spawn(self, index)?);
            Ok(())
        });
        for &missing in &new[spawned.len()..] {
            self.handover.dismiss(missing);
        }
        self.keep_threads(spawned);
        if let Err(error) = started {
            set(before);
            return Err(error);
        }
        self.look_again();
        Ok(())
    }

    fn keep_threads(&self, new: Vec<JoinHandle<()>>) {
        let mut threads = lock(&self.threads);
        #[cfg(not(loom))]
        threads.retain(|thread| !thread.is_finished());
        threads.extend(new);
    }

    /// How many instances execute at the same time.
    pub fn instances(&self) -> usize {
        self.handover.with(|state| state.instances)
    }

    pub fn state(&self) -> State {
        self.ledger.state()
    }

    /// Whether it serves, and one of its engines at least can execute.
    pub fn is_ready(&self) -> bool {
        self.state() == State::Ready
            && (self.readiness.is_empty() || self.readiness.iter().any(|one| one.is_ready()))
    }

    /// The same, and what the model says of itself.
    pub fn ask_ready(&self, on_answer: OnReady) {
        if self.readiness.is_empty() || !self.is_ready() {
            on_answer(self.is_ready());
        } else {
            ask_each(self.readiness.iter(), |one, on_answer| one.ask(on_answer), true, on_answer);
        }
    }

    /// When it was started, in seconds since 1970.
    pub fn started_at(&self) -> u64 {
        self.started_at
    }

    /// What it tells of texts, where it takes such.
    pub fn texts(&self) -> Option<&Arc<dyn Texts>> {
        self.texts.as_ref()
    }

    pub fn statistics(&self) -> Snapshot {
        self.ledger.statistics()
    }

    pub fn observer(&self) -> Option<&dyn Observer> {
        self.ledger.observer.as_deref()
    }

    /// For how long the request waits that has waited the longest.
    pub fn queue_age(&self) -> Duration {
        let oldest = self.handover.with(|state| state.scheduler.oldest());
        oldest.map_or(Duration::ZERO, |oldest| self.now().saturating_duration_since(oldest))
    }

    /// Requests that wait for a slot.
    pub fn backlog(&self) -> Backlog {
        self.handover.with(|state| state.scheduler.backlog())
    }

    /// Requests inside, told apart at one instant.
    pub fn occupancy(&self) -> Occupancy {
        self.handover.with(|state| {
            let waiting = state.scheduler.backlog().requests;
            Occupancy { waiting, running: self.inside().saturating_sub(waiting) }
        })
    }

    pub fn placement(&self) -> Placement {
        self.handover.with(|state| state.gate.placement())
    }

    /// Whether nothing waits, nothing runs and every thread of the model is asleep.
    pub fn at_rest(&self) -> bool {
        self.handover.at_rest(self.now())
    }

    pub fn now(&self) -> Instant {
        self.ledger.clock.now()
    }

    /// Says that a request of at least so many bytes is being received. Fails when there will be no
    /// place for it, whatever it says: then it is counted as refused, and need not come.
    pub fn announce(&self, arrived: Instant, bytes: usize) -> Result<(), Error> {
        let ledger = &self.ledger;
        if !self.handover.with(|state| ledger.state() == State::Ready && state.scheduler.is_full(bytes)) {
            return Ok(());
        }
        let error = Error::overloaded();
        let after = ledger.clock.now().saturating_duration_since(arrived);
        ledger.record_failure(error.kind.failure_reason(), after);
        Err(error)
    }

    /// Takes a request in. A refused one comes back whole: no mail will arrive for it.
    pub fn submit(
        self: &Arc<Self>,
        request: impl Into<Box<Request>>,
    ) -> Result<(Ticket, Admission), (Error, Box<Request>)> {
        let mut request = request.into();
        let ledger = &self.ledger;
        let outer = request.context.span().is_some().then(|| self.open_span(&mut request)).flatten();
        let claim = request.reply.claim.clone();
        let arrived = request.arrived;
        let deadline = request.deadline;
        let bytes = request.byte_size();
        let admitted = self.handover.admit(arrived, |state| {
            let mut entry = Entry::of(request, bytes, &state.queue);
            let (number, expires) = (state.next_number, entry.expires);
            entry.number = number;
            // Under the lock, as `stop_admitting` is: whoever drains has counted this request, or it
            // finds the door shut.
            let admits = match ledger.state() {
                State::Ready => true,
                State::Draining => entry.request.context.is_of_child() && !state.closed,
                _ => false,
            };
            if !admits {
                return Err((Error::shutting_down(), entry));
            }
            if entry.request.context.is_too_deep() {
                return Err((Error::too_deep(), entry));
            }
            state.scheduler.admit(entry)?;
            state.next_number += 1;
            ledger.admitted();
            Ok((number, expires))
        });
        match admitted {
            Ok(((number, expires), slot)) => {
                let ticket = Ticket { runner: self.clone(), number, claim, expires, deadline };
                let admission = match slot {
                    Some(slot) => Admission::Lead(self.lease(slot)),
                    None => Admission::Queued,
                };
                Ok((ticket, admission))
            }
            Err((error, mut entry)) => {
                let after = ledger.clock.now().saturating_duration_since(arrived);
                ledger.record_failure(error.kind.failure_reason(), after);
                if let Some(outer) = outer {
                    entry.request.context.replace_span(outer);
                }
                Err((error, entry.request))
            }
        }
    }

    /// Answers the span that the request came with.
    #[cold]
    fn open_span(&self, request: &mut Request) -> Option<Arc<dyn Span>> {
        let own = request.context.span()?.open(&self.ledger.spec, request, self.now());
        request.context.replace_span(own)
    }

    /// Sleeps until this model has work for this instance thread; `None` once it is retired.
    pub(crate) fn wait(self: &Arc<Self>, thread: usize) -> Option<Lease> {
        let slot = self.handover.wait(thread, || self.ledger.clock.now())?;
        Some(Lease::of_instance_thread(self.clone(), slot))
    }

    /// Leaves an instance thread's lease to the io threads once the model runs inline: under a steady
    /// load its queue might never be empty, and the thread would keep it. Otherwise it comes back.
    pub(crate) fn pass_on(&self, lease: Lease) -> Option<Lease> {
        match &self.drivers {
            Some(drivers) if self.placement() == Placement::Inline => {
                drivers.offer(lease.for_io_thread());
                None
            }
            _ => Some(lease),
        }
    }

    /// Something has changed that held work back: somebody leads, if there is a slot for it.
    pub(crate) fn look_again(self: &Arc<Self>) {
        let unchanged = |_: &mut RunnerState| Ok::<_, Infallible>(());
        if let Ok(((), Some(slot))) = self.handover.admit(self.now(), unchanged) {
            self.lease(slot).leave_to_others();
        }
    }

    pub(crate) fn lease(self: &Arc<Self>, slot: Slot) -> Lease {
        Lease::new(self.clone(), slot)
    }

    /// Takes no new requests from now on, but children of those that were admitted: see [`Context`](crate::Context).
    pub fn stop_admitting(&self) {
        self.handover.with(|_| self.ledger.stop_admitting());
    }

    /// Requests inside, waiting or executing.
    pub fn inside(&self) -> usize {
        self.ledger.inside()
    }
}

#[cfg(all(test, loom))]
mod loom_tests;
