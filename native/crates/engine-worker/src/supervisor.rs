//! The thread of a worker: starts its process, minds its time, takes what it prints, and what it sends where no io thread
//! does, and starts the next one when it has ended.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use kushi_core::{Afterwards, Error, ErrorKind, Look, UNANSWERED_PER_SLOT, os_text};
use rustix::event::{PollFd, PollFlags, poll};

use crate::answers;
use crate::calls;
use crate::incoming::Incoming;
use crate::outgoing::{OutgoingFrames, Released};
use crate::process::{Process, timespec};
use crate::readiness;
use crate::reading::{Heard, HeardEnd, Reading};
use crate::silence::Silence;
use crate::state::{Phase, WorkerState};
use crate::worker::Shared;

/// Between two processes of which the first did not become ready: twice as long after each.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// How long the thread sleeps at most before it looks at the time.
const LONGEST_SLEEP: Duration = Duration::from_secs(1);
/// How long a process that has closed its socket may take to end.
const END_PATIENCE: Duration = Duration::from_secs(1);

pub(crate) struct Supervisor {
    shared: Arc<Shared>,
    has_been_ready: bool,
    pause: Duration,
}

/// Why a process is not used any more.
enum Why {
    /// It ended, or closed its socket.
    Ended,
    /// It is brought to its end, for this reason.
    Killed(String),
    /// The same, because the model goes.
    Stopped,
}

impl Supervisor {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Self { shared, has_been_ready: false, pause: FIRST_PAUSE }
    }

    pub(crate) fn run(mut self) {
        loop {
            match self.life() {
                Ok(Life::Useful) => self.pause = FIRST_PAUSE,
                Ok(Life::Useless) => self.rest(),
                Err(error) => {
                    let for_good = !self.has_been_ready;
                    self.shared.has_failed(&error);
                    if for_good {
                        return;
                    }
                    log::error!("{}: {error}", self.shared.options.launch.name);
                    self.rest();
                    self.shared.starts();
                }
            }
            if self.shared.is_closing() {
                // No other process takes what waits.
                self.shared.has_failed(&self.shared.stopped_error());
                return;
            }
        }
    }

    /// Not longer than the worker is wanted.
    fn rest(&mut self) {
        let until = Instant::now() + self.pause;
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
        while !self.shared.is_closing() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            let mut bell = [PollFd::new(&self.shared.bell, PollFlags::IN)];
            let _ = poll(&mut bell, Some(&timespec(left)));
            let _ = rustix::io::read(&self.shared.bell, &mut [0; 8]);
        }
    }

    /// One process from its start to its end. An error: it did not become ready.
    fn life(&mut self) -> Result<Life, Error> {
        let shared = self.shared.clone();
        let launch = &shared.options.launch;
        let mut process = Process::start(launch).map_err(|error| {
            let program = launch.command.first().cloned();
            let text = format!("cannot start '{}': {}", program.unwrap_or_default(), os_text(&error));
            Error::new(ErrorKind::EngineFailed, text)
        })?;
        log::debug!("{}: process {}", launch.name, process.id());
        let released = Released::default();
        let incoming = Incoming::new(process.socket.clone(), released.clone());
        let reading = Arc::new(Reading::new(shared.clone(), process.socket.clone(), incoming));
        shared.has_begun(OutgoingFrames::new(process.socket.clone(), released), reading.clone());
        let mut watch = Watch {
            shared: &shared,
            process: &mut process,
            reading: &reading,
            is_renewed: false,
            has_complained: false,
            silence: Silence::new(Instant::now()),
        };
        let why = watch.run();
        let is_renewed = watch.is_renewed;
        shared.is_ending();
        reading.close();
        let Heard { is_ready: was_ready, has_answered, failure, .. } = reading.heard();
        let patience = match &why {
            Why::Ended => END_PATIENCE,
            Why::Killed(_) | Why::Stopped => {
                process.kill();
                END_PATIENCE
            }
        };
        let ended = process.end(patience, was_ready).description();
        let what = match &why {
            Why::Ended | Why::Stopped => ended,
            Why::Killed(reason) => format!("{reason}; {ended}"),
        };
        let name = &launch.name;
        let (owed, goes_on) = self.shared.has_ended();
        self.shared.calls.cancel_all();
        self.shared.metrics.process_ended();
        if !was_ready {
            let text = failure.unwrap_or_else(|| format!("{name} did not become ready: {what}"));
            return Err(Error::new(ErrorKind::EngineFailed, text));
        }
        self.has_been_ready = true;
        // Where a request has ended it, the next one need not: nobody is to wait longer for what others have sent.
        let life = if has_answered || !owed.is_empty() { Life::Useful } else { Life::Useless };
        if is_renewed {
            log::info!("{name} is started again after its share of requests: {what}");
        } else if goes_on {
            log::error!("{name} has ended and is started again: {what}");
        }
        let error = match why {
            Why::Stopped => self.shared.stopped_error(),
            _ => Error::new(ErrorKind::EngineFailed, format!("{name} ended while it executed: {what}")),
        };
        let _afterwards = Afterwards::open();
        for running in owed {
            running.batch.fail(&error);
            // The slot takes the next batch to the next process.
            drop(running.token);
        }
        Ok(life)
    }
}

/// Of a process that was ready.
enum Life {
    Useful,
    /// It has answered nothing: the next one may do no better.
    Useless,
}

/// One process, as long as it is used.
struct Watch<'a> {
    shared: &'a Arc<Shared>,
    process: &'a mut Process,
    reading: &'a Reading,
    /// The next one takes its place.
    is_renewed: bool,
    /// It was said that it keeps too much.
    has_complained: bool,
    silence: Silence,
}

impl Watch<'_> {
    fn run(&mut self) -> Why {
        let begun = Instant::now();
        let mut closing: Option<Instant> = None;
        loop {
            let now = Instant::now();
            let heard = self.reading.heard();
            match heard.end {
                Some(HeardEnd::Closed) => return Why::Ended,
                Some(HeardEnd::Garbage(what)) => {
                    return Why::Killed(format!("it wrote what makes no sense: {what}"));
                }
                None => {}
            }
            if heard.failure.is_some() {
                self.process.kill();
            }
            if !heard.is_ready && now >= begun + self.shared.start_patience() {
                let seconds = self.shared.options.start_seconds;
                return Why::Killed(format!("it was not ready within {seconds} s"));
            }
            if self.shared.is_stopped() {
                return Why::Stopped;
            }
            self.is_renewed |= self.reading.beside(|| self.shared.renews());
            let (is_blocked, is_closing, overdue) = self.look(now);
            if let Some(overdue) = overdue {
                return Why::Killed(overdue);
            }
            self.complain();
            if (is_closing || self.is_renewed)
                && now >= *closing.get_or_insert(now + self.shared.finalize_patience())
            {
                return Why::Killed("it did not end in time".into());
            }
            if self.wait(is_blocked, heard.is_ready) {
                return Why::Ended;
            }
        }
    }

    /// Whether frames wait for the socket, whether the worker is to end, and what has taken too long.
    fn look(&mut self, now: Instant) -> (bool, bool, Option<String>) {
        let mut state = self.shared.state();
        let is_closing = state.phase == Phase::Closing;
        let mut is_blocked = false;
        let mut broken = None;
        if let Some(outgoing) = &mut state.outgoing {
            // An end of the socket is found by reading.
            let fatal = |error: &std::io::Error| error.kind() != std::io::ErrorKind::BrokenPipe;
            outgoing.tidy();
            broken = outgoing.flush().err().filter(fatal);
            is_blocked = outgoing.is_blocked();
        }
        let execute_patience = self.shared.execute_patience();
        let WorkerState { question, batches, .. } = &mut *state;
        let executed = batches.iter().filter(|(_, running)| running.token.is_some());
        question.executes(executed.map(|(&id, _)| id), now);
        // One that is a thread would go on beside the next one.
        let stands_still =
            !is_closing && !self.process.is_thread() && state.question.stands_still(now, execute_patience);
        let overdue = execute_patience.filter(|patience| {
            state.batches.values().any(|running| running.token.is_some() && now >= running.begun + *patience)
        });
        let overdue = overdue
            .map(|patience| format!("it has executed a batch for more than {} s", patience.as_secs_f64()));
        let broken = broken.map(|error| format!("nothing can be sent to it: {}", os_text(&error)));
        let owes = state.batches.values().any(|running| running.batch.is_open());
        let silence = self.silence.look(now, owes, state.answers);
        let silent = self
            .shared
            .silence_patience()
            .filter(|patience| !self.process.is_thread() && silence >= *patience);
        let silent =
            silent.map(|patience| format!("it has said nothing for more than {} s", patience.as_secs_f64()));
        let stands_still = stands_still.then(|| "its is_ready does not come back".to_string());
        (is_blocked, is_closing, overdue.or(broken).or(silent).or(stands_still))
    }

    /// Says once why the model gets nothing more.
    fn complain(&mut self) {
        let (kept, unwanted) = {
            let state = self.shared.state();
            if self.has_complained || state.batches.len() < UNANSWERED_PER_SLOT {
                return;
            }
            let kept = || state.batches.values().filter(|running| running.token.is_none());
            (kept().count(), kept().filter(|running| running.is_abandoned()).count())
        };
        if kept >= UNANSWERED_PER_SLOT {
            self.has_complained = true;
            log::warn!(
                "{}: {kept} batches are not answered, {unwanted} of which nobody waits for: a model with \
                 {UNANSWERED_PER_SLOT} for each of its instances gets no more until it ends one; it should end those that \
                 are cancelled, too",
                self.shared.options.launch.name
            );
        }
    }

    /// Waits for news, and deals with it. True: the process has ended.
    fn wait(&mut self, is_blocked: bool, is_ready: bool) -> bool {
        let look =
            self.shared.execute_patience().map_or(LONGEST_SLEEP, |patience| LONGEST_SLEEP.min(patience / 4));
        let look = if is_ready { look } else { look.min(self.shared.start_patience() / 4) };
        let now = Instant::now();
        let timeout = timespec(self.shared.calls.next_look(now + look).saturating_duration_since(now));
        let socket = self.process.socket.clone();
        let mut interest = PollFlags::empty();
        interest.set(PollFlags::IN, !self.reading.is_watched());
        interest.set(PollFlags::OUT, is_blocked);
        let mut descriptors = [
            PollFd::from_borrowed_fd(socket.as_fd(), interest),
            PollFd::new(&self.shared.bell, PollFlags::IN),
            PollFd::new(&self.process.ended, PollFlags::IN),
            match self.process.output.pipe() {
                Some(pipe) => PollFd::new(pipe, PollFlags::IN),
                None => PollFd::new(&self.process.ended, PollFlags::empty()),
            },
        ];
        // Interrupted or not: what is ready is seen by the flags.
        let _ = poll(&mut descriptors, Some(&timeout));
        let [has_frames, has_rung, has_ended, has_output] =
            descriptors.map(|descriptor| !descriptor.revents().is_empty());
        if has_rung {
            let _ = rustix::io::read(&self.shared.bell, &mut [0; 8]);
            self.reading.beside(|| {
                answers::send_again(self.shared);
                if self.shared.has_abandoned.swap(false, Ordering::AcqRel) {
                    calls::cancel_abandoned(self.shared);
                    answers::give_up_abandoned(self.shared);
                }
            });
        }
        if has_output {
            self.process.output.read();
            if !self.reading.heard().is_ready {
                self.process.output.is_not_ready();
            }
        }
        let now = Instant::now();
        self.process.output.report(now);
        self.reading.report(now);
        readiness::end_overdue(self.shared, now);
        self.reading.beside(|| calls::end_overdue(self.shared, now));
        // After a while without news as well: an io thread may be kept from reading.
        let is_quiet = !(has_rung || has_output);
        let read = if has_frames || has_ended || is_quiet { self.reading.read() } else { Look::Done };
        has_ended && read == Look::Done
    }
}
