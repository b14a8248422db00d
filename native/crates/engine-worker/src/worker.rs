//! One worker: what it is asked, and what it owes.
//!
//! Batches are sent by whoever begins them, under a lock that is held for no longer than that; an io thread or the
//! supervisor's takes the answers. While there is no process, a batch waits for the next one.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use kushi_core::{Attendee, Batch, Error, ErrorKind, Readiness, SlotToken, WatchingThread, os_text};

use crate::calls::Calls;
use crate::frame::kind;
use crate::host::{Host, Metrics};
use crate::outgoing::OutgoingFrames;
use crate::process::Launch;
use crate::readiness::{self, WorkerReadiness};
use crate::reading::Reading;
use crate::running::{Parent, Running};
use crate::share::Share;
use crate::state::{Phase, WorkerState};
use crate::supervisor::Supervisor;

/// How often it is asked whether anybody still waits for a process.
pub(crate) const STILL_WANTED_EVERY: Duration = Duration::from_millis(200);

/// One instance of a model.
#[derive(Clone, Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WorkerOptions {
    pub launch: Launch,
    /// What it is told first, as JSON.
    pub initialize: String,
    pub model: String,
    /// How many outputs the model has.
    pub outputs: usize,
    /// How long it may take until it is ready.
    pub start_seconds: f64,
    /// How long a batch may take; 0: as long as it does.
    pub execute_seconds: f64,
    /// How long it may say nothing while it owes answers; 0: as long as it does.
    pub silence_seconds: f64,
    /// How long it may take to end.
    pub finalize_seconds: f64,
    /// How long the model may take none of the answers of another one that waits for that.
    pub call_seconds: f64,
    /// After about so many requests another process takes its place; 0: never.
    pub max_requests: u64,
}

/// Dropping it ends its process.
pub struct Worker {
    pub(crate) shared: Arc<Shared>,
    supervisor: Option<JoinHandle<()>>,
}

pub(crate) struct Shared {
    pub(crate) options: WorkerOptions,
    state: Mutex<WorkerState>,
    changed: Condvar,
    /// Hears what becomes of the process, in the order in which it becomes so.
    pub(crate) attendee: Mutex<Option<Attendee>>,
    pub(crate) calls: Calls,
    pub(crate) host: Arc<dyn Host>,
    pub(crate) metrics: Arc<dyn Metrics>,
    /// What it executes is not waited for, nor does another process follow.
    stopped: AtomicBool,
    /// Has the supervisor look at the state.
    pub(crate) bell: std::os::fd::OwnedFd,
    /// Nobody waits any more for a request that has made calls, or that the model has kept.
    pub(crate) has_abandoned: AtomicBool,
}

impl Worker {
    /// Its model can ask the server from now on. See [`Worker::wait_until_ready`].
    pub fn start(options: WorkerOptions, host: Arc<dyn Host>) -> Result<Self, Error> {
        let internal = |what: &str, error: &std::io::Error| {
            Error::new(ErrorKind::Internal, format!("cannot make {what}: {}", os_text(error)))
        };
        let flags = rustix::event::EventfdFlags::CLOEXEC | rustix::event::EventfdFlags::NONBLOCK;
        let bell = rustix::event::eventfd(0, flags).map_err(|error| internal("an event", &error.into()))?;
        let name = options.launch.name.clone();
        let metrics = host.metrics(&options.model)?;
        let shared = Arc::new(Shared {
            options,
            state: Mutex::default(),
            changed: Condvar::new(),
            attendee: Mutex::default(),
            calls: Calls::default(),
            host,
            metrics,
            stopped: AtomicBool::new(false),
            bell,
            has_abandoned: AtomicBool::new(false),
        });
        let supervisor = Supervisor::new(shared.clone());
        let supervisor = thread::Builder::new().name(name).spawn(move || supervisor.run());
        let supervisor = supervisor.map_err(|error| internal("a thread", &error))?;
        Ok(Self { shared, supervisor: Some(supervisor) })
    }

    /// Or until it cannot be. False: nobody waits for it any more.
    pub fn wait_until_ready(&self, is_given_up: &dyn Fn() -> bool) -> Result<bool, Error> {
        loop {
            let state = self.shared.state();
            let waited = self
                .shared
                .changed
                .wait_timeout_while(state, STILL_WANTED_EVERY, |state| state.phase == Phase::Starting);
            match &waited.unwrap_or_else(PoisonError::into_inner).0.phase {
                Phase::Starting => {}
                Phase::Failed(error) => return Err(error.clone()),
                _ => return Ok(true),
            }
            if is_given_up() {
                return Ok(false);
            }
        }
    }

    pub(crate) fn readiness(&self) -> Arc<dyn Readiness> {
        Arc::new(WorkerReadiness(self.shared.clone()))
    }

    /// Nobody needs it. It ends at once where it is not ready, otherwise in peace.
    pub fn give_up(&self) {
        let is_ready = self.shared.state().phase == Phase::Ready;
        if is_ready { self.close() } else { self.stop() }
    }

    /// It takes no more, and its process is told to end.
    pub(crate) fn close(&self) {
        let waiting = {
            let mut state = self.shared.state();
            if std::mem::replace(&mut state.phase, Phase::Closing) == Phase::Closing {
                return;
            }
            if let Some(outgoing) = &mut state.outgoing {
                // Whether it hears of it or not, it ends in time.
                let _ = outgoing.send_text(kind::FINALIZE, 0, 0, b"");
            }
            std::mem::take(&mut state.waiting)
        };
        self.shared.ring();
        drop(waiting);
    }

    /// Ends its process, and what it executes with an error. Takes no lock.
    pub fn stop(&self) {
        self.shared.stopped.store(true, Ordering::Release);
        self.shared.ring();
    }

    /// Whether its process has requests that have not ended.
    pub(crate) fn owes_answers(&self) -> bool {
        self.shared.state().batches.values().any(|running| running.batch.is_open())
    }

    /// Never blocks.
    pub(crate) fn begin(&self, token: SlotToken, batch: Batch) {
        let mut state = self.shared.state();
        match state.phase {
            // The next process takes it.
            Phase::Ready if state.share.is_used_up() => {
                state.waiting.push((token, batch));
                drop(state);
                self.shared.ring();
            }
            Phase::Ready => {
                let sent = state.send(token, batch);
                let reading = state.reading.as_ref().filter(|reading| reading.is_wanted_here()).cloned();
                let is_used_up = state.share.is_used_up();
                drop(state);
                if is_used_up {
                    self.shared.tell_attendance();
                }
                if let Some(reading) = reading {
                    reading.watch();
                }
                match sent {
                    Ok(false) => {}
                    Ok(true) => self.shared.ring(),
                    Err(unsent) => unsent.fail(),
                }
            }
            Phase::Starting => state.waiting.push((token, batch)),
            Phase::Failed(_) | Phase::Closing => {
                let error = match &state.phase {
                    Phase::Failed(error) => error.clone(),
                    _ => self.shared.stopped_error(),
                };
                drop(state);
                batch.fail(&error);
            }
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.close();
        // The last to hold the model may be its own thread, or an io thread, which others need.
        let can_wait = |supervisor: &JoinHandle<()>| {
            supervisor.thread().id() != thread::current().id() && WatchingThread::number() == 0
        };
        if let Some(supervisor) = self.supervisor.take().filter(can_wait) {
            let _ = supervisor.join();
        }
    }
}

impl Shared {
    pub(crate) fn state(&self) -> MutexGuard<'_, WorkerState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Acquire)
    }

    /// Whether no process is to follow the one that is there.
    pub(crate) fn is_closing(&self) -> bool {
        let mut state = self.state();
        if self.is_stopped() {
            state.phase = Phase::Closing;
        }
        state.phase == Phase::Closing
    }

    /// In the words of other engines.
    pub(crate) fn stopped_error(&self) -> Error {
        let text = format!("the run was ended, because model '{}' is being stopped", self.options.model);
        Error::new(ErrorKind::ShuttingDown, text)
    }

    pub(crate) fn ring(&self) {
        let _ = rustix::io::write(&self.bell, &1_u64.to_ne_bytes());
    }

    /// A process is there, and hears what it is to do first.
    pub(crate) fn has_begun(&self, mut outgoing: OutgoingFrames, reading: Arc<Reading>) {
        // Where this cannot be sent, its end says why.
        let _ = outgoing.send_text(kind::INITIALIZE, 0, 0, self.options.initialize.as_bytes());
        let mut state = self.state();
        if state.phase == Phase::Closing {
            let _ = outgoing.send_text(kind::FINALIZE, 0, 0, b"");
        }
        state.outgoing = Some(outgoing);
        state.reading = Some(reading);
        state.share = Share::new(self.options.max_requests);
    }

    /// Whether it is time for the next process, of which the supervisor has to hear.
    pub(crate) fn is_to_renew(&self) -> bool {
        self.options.max_requests > 0 && self.state().is_to_renew()
    }

    /// The same; this process is told to end.
    pub(crate) fn renews(&self) -> bool {
        let mut state = self.state();
        let renews = state.is_to_renew();
        if renews {
            state.phase = Phase::Starting;
            state.renews = true;
            if let Some(outgoing) = &mut state.outgoing {
                // Whether it hears of it or not, it ends in time.
                let _ = outgoing.send_text(kind::FINALIZE, 0, 0, b"");
            }
            drop(state);
            self.tell_attendance();
        }
        renews
    }

    /// The model is in it.
    pub(crate) fn is_ready(&self, has_opinion: bool) {
        let mut state = self.state();
        state.question.has_opinion = has_opinion;
        if state.phase == Phase::Closing {
            return;
        }
        (state.phase, state.renews, state.has_failed) = (Phase::Ready, false, false);
        let waiting = std::mem::take(&mut state.waiting);
        let unsent: Vec<_> =
            waiting.into_iter().filter_map(|(token, batch)| state.send(token, batch).err()).collect();
        drop(state);
        for unsent in unsent {
            unsent.fail();
        }
        self.changed.notify_all();
        self.tell_attendance();
        self.ring();
    }

    /// The process will take no more.
    pub(crate) fn is_ending(&self) {
        let mut state = self.state();
        if state.phase == Phase::Ready {
            state.phase = Phase::Starting;
            drop(state);
            self.tell_attendance();
        }
    }

    /// The process has gone. Answers what it owed; true, where it is to be replaced.
    pub(crate) fn has_ended(&self) -> (Vec<Running>, bool) {
        // One that was stopped is closing from now on.
        self.is_closing();
        let mut state = self.state();
        (state.outgoing, state.reading) = (None, None);
        if state.phase == Phase::Ready {
            state.phase = Phase::Starting;
        }
        let owed = state.batches.drain().map(|(_, running)| running).collect();
        let is_replaced = state.phase == Phase::Starting;
        drop(state);
        self.tell_attendance();
        readiness::forget(self);
        (owed, is_replaced)
    }

    /// The next process is tried.
    pub(crate) fn starts(&self) {
        let mut state = self.state();
        if matches!(state.phase, Phase::Failed(_)) {
            state.phase = Phase::Starting;
        }
    }

    /// It did not come to be ready.
    pub(crate) fn has_failed(&self, error: &Error) {
        let waiting = {
            let mut state = self.state();
            if state.phase == Phase::Starting {
                state.phase = Phase::Failed(error.clone());
            }
            (state.renews, state.has_failed) = (false, true);
            std::mem::take(&mut state.waiting)
        };
        self.changed.notify_all();
        self.tell_attendance();
        for (token, batch) in waiting {
            batch.fail(error);
            drop(token);
        }
    }

    /// What a call has from the request on whose behalf it is made: of a batch with several, from the first.
    pub(crate) fn parent(self: &Arc<Self>, batch: Option<u64>) -> Parent {
        let mut state = self.state();
        let Some(running) = batch.and_then(|batch| state.batches.get_mut(&batch)) else {
            return Parent::default();
        };
        if !std::mem::replace(&mut running.is_watched, true) {
            self.watch(running);
        }
        let open = || (0..running.batch.len()).filter_map(|index| running.batch.request(index));
        let alone = open().count() == 1;
        Parent {
            context: (0..running.batch.len())
                .find_map(|index| running.batch.child_context(index))
                .unwrap_or_default(),
            deadline: open().next().filter(|_| alone).and_then(|request| request.deadline),
            priority: open().next().map_or(0, |request| request.priority),
            is_abandoned: running.is_abandoned(),
        }
    }

    /// Tells the supervisor once nobody waits for one of these requests.
    pub(crate) fn watch(self: &Arc<Self>, running: &Running) {
        for &place in running.places.iter().filter(|&&place| running.batch.request(place).is_some()) {
            let shared = Arc::downgrade(self);
            running.batch.when_abandoned(place, move || {
                if let Some(shared) = shared.upgrade() {
                    shared.has_abandoned.store(true, Ordering::Release);
                    shared.ring();
                }
            });
        }
    }

    pub(crate) fn start_patience(&self) -> Duration {
        Duration::from_secs_f64(self.options.start_seconds)
    }

    pub(crate) fn finalize_patience(&self) -> Duration {
        Duration::from_secs_f64(self.options.finalize_seconds)
    }

    pub(crate) fn call_patience(&self) -> Duration {
        Duration::from_secs_f64(self.options.call_seconds)
    }

    pub(crate) fn silence_patience(&self) -> Option<Duration> {
        (self.options.silence_seconds > 0.0).then(|| Duration::from_secs_f64(self.options.silence_seconds))
    }

    pub(crate) fn execute_patience(&self) -> Option<Duration> {
        (self.options.execute_seconds > 0.0).then(|| Duration::from_secs_f64(self.options.execute_seconds))
    }
}
