//! The thread of a worker: starts its process, takes what it sends and prints, and starts the next one when it has ended.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use kushi_core::{Afterwards, Error, ErrorKind, os_text};
use rustix::event::{PollFd, PollFlags, poll};

use crate::answers;
use crate::calls;
use crate::frame::{Head, kind};
use crate::incoming::{Incoming, News};
use crate::message::{Garbage, TEXT_BYTES, text_of};
use crate::metrics;
use crate::outgoing::{Outgoing, Released};
use crate::process::{Process, timespec};
use crate::worker::{Phase, Shared};

/// Between two processes of which the first did not become ready: twice as long after each.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// How long the thread sleeps at most before it looks at the time.
const LOOK: Duration = Duration::from_secs(1);
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
        let process = Process::start(launch).map_err(|error| {
            let program = launch.command.first().cloned();
            let text = format!("cannot start '{}': {}", program.unwrap_or_default(), os_text(&error));
            Error::new(ErrorKind::EngineFailed, text)
        })?;
        log::debug!("{}: process {}", launch.name, process.id());
        let released = Released::default();
        let incoming = Incoming::new(process.socket.clone(), released.clone());
        shared.has_begun(Outgoing::new(process.socket.clone(), released));
        let mut conversation = Conversation {
            shared: &self.shared,
            process,
            incoming,
            is_ready: false,
            is_renewed: false,
            failure: None,
            has_answered: false,
        };
        let why = conversation.run();
        let was_ready = conversation.is_ready;
        let life = if conversation.has_answered { Life::Useful } else { Life::Useless };
        let (failure, is_renewed) = (conversation.failure.take(), conversation.is_renewed);
        let Conversation { mut process, .. } = conversation;
        let patience = match &why {
            Why::Ended => END_PATIENCE,
            Why::Killed(_) | Why::Stopped => {
                process.kill();
                END_PATIENCE
            }
        };
        let ended = process.end(patience).description();
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

struct Conversation<'a> {
    shared: &'a Arc<Shared>,
    process: Process,
    incoming: Incoming,
    /// The model is.
    is_ready: bool,
    /// The next one takes its place.
    is_renewed: bool,
    /// What the model says of why it cannot be.
    failure: Option<String>,
    has_answered: bool,
}

impl Conversation<'_> {
    fn run(&mut self) -> Why {
        let begun = Instant::now();
        let mut closing: Option<Instant> = None;
        loop {
            let now = Instant::now();
            if !self.is_ready && now >= begun + self.shared.start_patience() {
                let seconds = self.shared.options.start_seconds;
                return Why::Killed(format!("it was not ready within {seconds} s"));
            }
            if self.shared.is_stopped() {
                return Why::Stopped;
            }
            self.is_renewed |= self.shared.renews();
            let (is_blocked, is_closing, overdue) = self.look(now);
            if let Some(overdue) = overdue {
                return Why::Killed(overdue);
            }
            if (is_closing || self.is_renewed)
                && now >= *closing.get_or_insert(now + self.shared.finalize_patience())
            {
                return Why::Killed("it did not end in time".into());
            }
            match self.wait(is_blocked) {
                Ok(true) => {}
                Ok(false) => return Why::Ended,
                Err(Garbage(what)) => return Why::Killed(format!("it wrote what makes no sense: {what}")),
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
            broken = outgoing.flush().err().filter(fatal);
            is_blocked = outgoing.is_blocked();
        }
        let overdue = self.shared.execute_patience().filter(|patience| {
            state.batches.values().any(|running| running.token.is_some() && now >= running.begun + *patience)
        });
        let overdue = overdue
            .map(|patience| format!("it has executed a batch for more than {} s", patience.as_secs_f64()));
        let broken = broken.map(|error| format!("nothing can be sent to it: {}", os_text(&error)));
        (is_blocked, is_closing, overdue.or(broken))
    }

    /// Waits for news, and deals with it. False: the process has ended.
    fn wait(&mut self, is_blocked: bool) -> Result<bool, Garbage> {
        let look = self.shared.execute_patience().map_or(LOOK, |patience| LOOK.min(patience / 4));
        let look = if self.is_ready { look } else { look.min(self.shared.start_patience() / 4) };
        let timeout = timespec(look);
        let socket = self.process.socket.clone();
        let interest = if is_blocked { PollFlags::IN | PollFlags::OUT } else { PollFlags::IN };
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
            answers::send_again(self.shared);
            calls::cancel_abandoned(self.shared);
        }
        if has_output {
            self.process.output.read();
        }
        self.process.output.report(Instant::now());
        if has_frames {
            let goes_on = self.incoming.receive().unwrap_or(false);
            self.deal()?;
            if !goes_on {
                return Ok(false);
            }
        }
        Ok(!has_ended || has_frames)
    }

    fn deal(&mut self) -> Result<(), Garbage> {
        // What follows from answers comes when all of them are there.
        let _afterwards = Afterwards::open();
        while let Some(news) = self.incoming.next()? {
            match news {
                News::Released(slot) => {
                    if let Some(outgoing) = &mut self.shared.state().outgoing {
                        outgoing.take_back(slot);
                    }
                }
                News::Frame(head, payload) => self.take(head, &payload)?,
            }
        }
        Ok(())
    }

    fn take(&mut self, head: Head, payload: &Bytes) -> Result<(), Garbage> {
        match head.kind {
            kind::READY => {
                if !std::mem::replace(&mut self.is_ready, true) {
                    self.shared.is_ready();
                }
            }
            kind::FAILED => self.failure = Some(text_of(payload, TEXT_BYTES)),
            kind::RESPONSES | kind::RETURNED => {
                answers::take(self.shared, head, payload)?;
                self.has_answered = true;
            }
            kind::ASK => answers::asked(self.shared, head, payload),
            kind::CALL => calls::begin(self.shared, head, payload)?,
            kind::CALL_CANCEL => calls::cancel(self.shared, head.id),
            kind::CALL_TAKEN => calls::taken(self.shared, head.id),
            kind::METRIC => metrics::change(&*self.shared.metrics, head, payload)?,
            kind::LOG => self.process.output.log(head.count, payload),
            kind::FINALIZED => {}
            _ => return Err(Garbage("a frame of an unknown kind")),
        }
        if self.failure.is_some() {
            self.process.kill();
        }
        Ok(())
    }
}
