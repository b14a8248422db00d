//! A process that is asked one thing.

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use kushi_core::{Error, ErrorKind, os_text};
use rustix::event::{PollFd, PollFlags, poll};

use crate::frame::kind;
use crate::incoming::{Came, Incoming, News};
use crate::logged::Logged;
use crate::outgoing::{OutgoingFrames, Released};
use crate::parts::{TEXT_BYTES, text_of};
use crate::process::{Launch, Process, timespec};
use crate::worker::STILL_WANTED_EVERY;

/// Of a configuration, as JSON: that of a file has a megabyte at most.
const MOST_ANSWER_BYTES: usize = 16 << 20;

/// Lets a model complete its configuration: what `order` says, as JSON, and what comes of it. The process ends where
/// nobody waits for it any more.
pub fn complete(
    launch: &Launch,
    order: &str,
    patience: Duration,
    is_given_up: &dyn Fn() -> bool,
) -> Result<String, Error> {
    let failed = |text: String| Error::new(ErrorKind::ConfigInvalid, text);
    let process = Process::start(launch).map_err(|error| {
        let program = launch.command.first().cloned();
        failed(format!("cannot start '{}': {}", program.unwrap_or_default(), os_text(&error)))
    })?;
    let released = Released::default();
    let mut incoming = Incoming::new(process.socket.clone(), released.clone());
    let mut outgoing = OutgoingFrames::new(process.socket.clone(), released);
    // Where this cannot be sent, its end says why.
    let _ = outgoing.send_text(kind::AUTO_COMPLETE, 0, 0, order.as_bytes());
    let mut logged = Logged::new(launch.name.clone());
    let until = Instant::now() + patience;
    let answer = converse(process, &mut incoming, &mut outgoing, &mut logged, &|| {
        let left = until.saturating_duration_since(Instant::now());
        if is_given_up() { Duration::ZERO } else { left }
    });
    answer.map_err(|error| failed(format!("{}: {error}", launch.name)))
}

fn converse(
    mut process: Process,
    incoming: &mut Incoming,
    outgoing: &mut OutgoingFrames,
    logged: &mut Logged,
    left: &dyn Fn() -> Duration,
) -> Result<String, String> {
    loop {
        let left = left();
        if left.is_zero() {
            process.kill();
            return Err(format!(
                "its configuration was not complete in time; {}",
                process.end(left, false).description()
            ));
        }
        let interest = if outgoing.is_blocked() { PollFlags::IN | PollFlags::OUT } else { PollFlags::IN };
        let timeout = timespec(left.min(STILL_WANTED_EVERY));
        let socket = process.socket.clone();
        let mut descriptors = [
            PollFd::from_borrowed_fd(socket.as_fd(), interest),
            PollFd::new(&process.ended, PollFlags::IN),
            match process.output.pipe() {
                Some(pipe) => PollFd::new(pipe, PollFlags::IN),
                None => PollFd::new(&process.ended, PollFlags::empty()),
            },
        ];
        let _ = poll(&mut descriptors, Some(&timeout));
        let [has_frames, has_ended, has_output] =
            descriptors.map(|descriptor| !descriptor.revents().is_empty());
        let _ = outgoing.flush();
        if has_output {
            process.output.read();
        }
        process.output.report(Instant::now());
        logged.report(Instant::now());
        let goes_on = if has_frames { incoming.receive() != Came::End } else { !has_ended };
        while let Some(news) = incoming.next().map_err(|garbage| garbage.0)? {
            let News::Frame(head, payload) = news else { continue };
            match head.kind {
                kind::READY if payload.len() > MOST_ANSWER_BYTES => {
                    let length = payload.len();
                    return Err(format!("it answers {length} bytes, at most {MOST_ANSWER_BYTES} are read"));
                }
                kind::READY => return Ok(text_of(&payload, MOST_ANSWER_BYTES)),
                kind::FAILED => return Err(text_of(&payload, TEXT_BYTES)),
                kind::LOG => logged.write(head.count, &payload),
                _ => {
                    return Err(
                        "it asks the server, which it cannot while its configuration is completed".into()
                    );
                }
            }
        }
        if !goes_on {
            return Err(process.end(Duration::from_secs(1), false).description());
        }
    }
}
