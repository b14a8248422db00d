//! One client: reads what has come, submits it, writes what is answered.
//!
//! What always holds: a request that was read gets one answer or failure, unless the client goes away;
//! then its places in the queues are free at once, and its memory when nobody computes with it.

use std::future::poll_fn;
use std::io;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Instant;

use bytes::Bytes;
use kushi_core::{Error, ErrorKind, Mail};
use kushi_oip::{Frame, Hello, Kind, Release};
use prost::Message;
use tokio::io::Interest;
use tokio::net::UnixStream;
use tokio::task::JoinError;

use crate::house::Answering;
use crate::io::Desk;
use crate::local::alarm::Alarm;
use crate::local::answer::Answer;
use crate::local::answer_slots::AnswerSlots;
use crate::local::calls::{self, Calls};
use crate::local::client_slots::{ClientSlots, RangeFault};
use crate::local::incoming::{Incoming, Read};
use crate::local::outgoing::Outgoing;
use crate::local::request::{Arrived, Submitted};
use crate::local::requests::{Ended, MOST_REQUESTS, Requests};
use crate::local::tasks::Tasks;
use crate::local::{PROTOCOL, Violation, request};
use crate::pending::Sink;

/// A client that does not read what it asked for is not read from.
const UNREAD_BYTES: usize = 1 << 20;
/// Then the other tasks of this thread have a turn.
const READS_AT_ONCE: usize = 16;

pub(super) struct Connection {
    desk: Rc<Desk>,
    stream: UnixStream,
    incoming: Incoming,
    outgoing: Outgoing,
    requests: Requests,
    calls: Calls,
    /// Requests whose inputs are copied out of their slots.
    arriving: Tasks<(Result<Vec<Bytes>, Error>, Arrived)>,
    /// Answers that are copied into their slots.
    copies: Tasks<(Result<Answer, Error>, Answering)>,
    sink: Rc<Sink>,
    /// Empty between polls; its memory serves the next.
    mail: Vec<(u64, Mail)>,
    client_slots: ClientSlots,
    answer_slots: AnswerSlots,
    alarm: Alarm,
    /// The client has said hello.
    greeted: bool,
    /// Nothing more is read: the server closes.
    deaf: bool,
    /// Counted as one whose client does not read.
    blocked: bool,
}

/// How a connection ends before the server closes it.
enum Ending {
    /// The client went away.
    Gone,
    Violation(Violation),
}

impl From<Violation> for Ending {
    fn from(violation: Violation) -> Self {
        Self::Violation(violation)
    }
}

impl From<io::Error> for Ending {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::InvalidData => Self::Violation(Violation(error.to_string())),
            _ => Self::Gone,
        }
    }
}

impl Connection {
    pub(super) fn new(desk: &Rc<Desk>, stream: UnixStream) -> Self {
        let mut outgoing = Outgoing::default();
        let hello = Hello { protocol: PROTOCOL, version: desk.house.server_version.clone() };
        outgoing.message(Kind::Hello, 0, &hello);
        Self {
            desk: desk.clone(),
            stream,
            incoming: Incoming::default(),
            outgoing,
            requests: Requests::default(),
            calls: Calls::default(),
            arriving: Tasks::default(),
            copies: Tasks::default(),
            sink: Rc::default(),
            mail: Vec::new(),
            client_slots: ClientSlots::default(),
            answer_slots: AnswerSlots::default(),
            alarm: Alarm::default(),
            greeted: false,
            deaf: false,
            blocked: false,
        }
    }

    /// Until the client goes away, breaks the protocol, or the server closes.
    pub(super) async fn run(mut self) -> Result<(), Violation> {
        let desk = self.desk.clone();
        let place = desk.connections.enter();
        let ended = poll_fn(|context| {
            place.remember(context.waker());
            self.sink.remember(context.waker());
            self.poll(context)
        })
        .await;
        match ended {
            Ok(()) | Err(Ending::Gone) => Ok(()),
            Err(Ending::Violation(violation)) => {
                let text = format!("closing the connection: the client sent {violation}");
                self.outgoing.failure(0, ErrorKind::InvalidInput.name(), &text);
                // A client that reads has room for this.
                let _ = self.outgoing.send(&self.stream);
                Err(violation)
            }
        }
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Ending>> {
        if let Err(ending) = self.advance(context) {
            return Poll::Ready(Err(ending));
        }
        let in_flight = self.requests.len() + self.arriving.len() + self.calls.len() + self.copies.len();
        if self.deaf && in_flight == 0 && self.outgoing.is_empty() {
            Poll::Ready(Ok(()))
        } else {
            Poll::Pending
        }
    }

    fn advance(&mut self, context: &mut Context<'_>) -> Result<(), Ending> {
        self.answer();
        while let Some((id, (copied, arrived))) = self.arriving.next_done() {
            match copied {
                Ok(copied) => self.submit(id, Arrived { from_slots: Some(copied), ..arrived })?,
                Err(error) => self.fail(id, &error),
            }
        }
        self.expire(context);
        if !self.deaf {
            // What had come before the server closed is still refused, or answered.
            self.deaf = self.desk.connections.is_closing();
            self.read(context)?;
        }
        self.write(context)?;
        Ok(())
    }

    fn answer(&mut self) {
        let mut mail = std::mem::take(&mut self.mail);
        self.sink.take(&mut mail);
        for (id, mail) in mail.drain(..) {
            if let Some(ended) = self.requests.take_mail(id, mail) {
                self.end(id, ended);
            }
        }
        self.mail = mail;
        while let Some((id, (answer, _answering))) = self.copies.next_done() {
            match answer {
                Ok(answer) => self.write_answer(id, answer),
                Err(error) => self.fail(id, &error),
            }
        }
        while let Some((id, (answer, _answering))) = self.calls.next_done() {
            self.outgoing.message(Kind::CallAnswer, id, &answer);
        }
    }

    fn end(&mut self, id: u64, ended: Ended) {
        let Ended { runner, result, answering } = ended;
        let (response, end) = match result {
            Ok(answer) => answer,
            Err(error) => return self.fail(id, &error),
        };
        let answer = Answer::new(runner, response, end, &mut self.answer_slots);
        if answer.takes_long() {
            self.copies.begin(&self.sink, id, async move {
                let filled = tokio::task::spawn_blocking(move || {
                    answer.fill();
                    answer
                });
                (filled.await.map_err(|failure| not_copied("an answer", &failure)), answering)
            });
        } else {
            answer.fill();
            self.write_answer(id, answer);
        }
    }

    fn write_answer(&mut self, id: u64, answer: Answer) {
        if let Err(error) = answer.write(id, &mut self.outgoing, &mut self.answer_slots) {
            self.fail(id, &error);
        }
    }

    fn fail(&mut self, id: u64, error: &Error) {
        self.outgoing.failure(id, error.kind.name(), &error.message);
    }

    fn expire(&mut self, context: &mut Context<'_>) {
        while let Some(next) = self.requests.next_alarm()
            && self.alarm.poll(next, context).is_ready()
        {
            let now = Instant::now();
            while let Some((id, ended)) = self.requests.next_expired(now) {
                self.end(id, ended);
            }
        }
    }

    fn read(&mut self, context: &mut Context<'_>) -> Result<(), Ending> {
        for _ in 0..READS_AT_ONCE {
            if self.outgoing.len() > UNREAD_BYTES {
                return Ok(());
            }
            match self.stream.poll_read_ready(context) {
                Poll::Pending => return Ok(()),
                Poll::Ready(ready) => ready?,
            }
            let read = match self.stream.try_io(Interest::READABLE, || self.incoming.read(&self.stream)) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
                read => read?,
            };
            while let Some(frame) = self.incoming.next_frame()? {
                self.take(frame)?;
            }
            match read {
                Read::Closed => return Err(Ending::Gone),
                Read::More => {}
                // The kernel tells when more has come: asking it once more would cost a system call.
                Read::All => {
                    let nothing: io::Result<()> =
                        self.stream.try_io(Interest::READABLE, || Err(io::ErrorKind::WouldBlock.into()));
                    drop(nothing);
                }
            }
        }
        context.waker().wake_by_ref();
        Ok(())
    }

    fn write(&mut self, context: &mut Context<'_>) -> io::Result<()> {
        let was_full = self.outgoing.len() > UNREAD_BYTES;
        while !self.outgoing.is_empty() {
            match self.stream.poll_write_ready(context) {
                Poll::Pending => {
                    self.count_blocked(true);
                    return Ok(());
                }
                Poll::Ready(ready) => ready?,
            }
            match self.stream.try_io(Interest::WRITABLE, || self.outgoing.send(&self.stream)) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                sent => sent?,
            }
        }
        self.count_blocked(false);
        if was_full {
            context.waker().wake_by_ref();
        }
        Ok(())
    }

    fn count_blocked(&mut self, blocked: bool) {
        if self.blocked != blocked {
            self.blocked = blocked;
            self.desk.count_blocked(blocked);
        }
    }

    fn take(&mut self, frame: Frame) -> Result<(), Violation> {
        let Frame { kind, id, body } = frame;
        if !self.greeted {
            return self.greet(kind, body);
        }
        match kind {
            Kind::Infer => self.infer(id, body),
            Kind::Cancel => {
                self.requests.cancel(id);
                Ok(())
            }
            Kind::Call => {
                self.check_new(id)?;
                calls::begin(&mut self.calls, &self.desk, &self.sink, id, body)
            }
            Kind::Slot => {
                let slot = read(body, "slot")?;
                self.client_slots.announce(slot, self.incoming.take_descriptor())
            }
            Kind::Forget => {
                let Release { slots } = read(body, "list of slots")?;
                self.client_slots.forget(&slots);
                Ok(())
            }
            Kind::Release => {
                let Release { slots } = read(body, "list of slots")?;
                self.answer_slots.release(&slots, &mut self.outgoing);
                Ok(())
            }
            Kind::Ping => {
                self.outgoing.frame(Kind::Pong, id, 0);
                Ok(())
            }
            Kind::Pong => Ok(()),
            Kind::Hello | Kind::Answer | Kind::Failure | Kind::CallAnswer => {
                Err(Violation(format!("a frame {kind:?}, which is not the client's to send here")))
            }
        }
    }

    fn greet(&mut self, kind: Kind, body: Bytes) -> Result<(), Violation> {
        if kind != Kind::Hello {
            return Err(Violation(format!("a frame {kind:?} before its Hello")));
        }
        let Hello { protocol, version } = read(body, "Hello")?;
        if protocol != PROTOCOL {
            return Err(Violation(format!(
                "a Hello of protocol {protocol} from version '{version}', expected protocol {PROTOCOL}"
            )));
        }
        self.greeted = true;
        Ok(())
    }

    fn infer(&mut self, id: u64, body: Bytes) -> Result<(), Violation> {
        self.check_new(id)?;
        if self.requests.len() + self.arriving.len() >= MOST_REQUESTS {
            let text = format!("{MOST_REQUESTS} requests of this connection have not been answered yet");
            self.fail(id, &Error::new(ErrorKind::Overloaded, text));
            return Ok(());
        }
        let mut answering = self.desk.house.begin_answer();
        if let Err(error) = answering.cover(body.len()) {
            self.fail(id, &error);
            return Ok(());
        }
        self.submit(id, Arrived { body, at: Instant::now(), answering, from_slots: None })
    }

    fn submit(&mut self, id: u64, arrived: Arrived) -> Result<(), Violation> {
        match request::submit(&self.desk, &self.client_slots, &self.sink, id, &arrived) {
            Ok(Submitted::Queued(waiting, runner)) => {
                self.requests.add(id, waiting, runner, arrived.answering);
            }
            Ok(Submitted::CopyFirst(aside)) => self.arriving.begin(&self.sink, id, async move {
                let copied = tokio::task::spawn_blocking(move || aside.copy()).await;
                let failed = |failure| Err(not_copied("an input", &failure));
                (copied.unwrap_or_else(failed), arrived)
            }),
            Err(RangeFault::Request(error)) => self.fail(id, &error),
            Err(RangeFault::Violation(violation)) => return Err(violation),
        }
        Ok(())
    }

    /// An id names one request at a time.
    fn check_new(&self, id: u64) -> Result<(), Violation> {
        let in_flight = self.requests.contains(id)
            || self.arriving.contains(id)
            || self.calls.contains(id)
            || self.copies.contains(id);
        if id == 0 || in_flight {
            return Err(Violation(format!("a request with the id {id}, which is not free")));
        }
        Ok(())
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.count_blocked(false);
    }
}

fn not_copied(what: &str, failure: &JoinError) -> Error {
    Error::new(ErrorKind::Internal, format!("{what} was not copied: {failure}"))
}

fn read<M: Message + Default>(body: Bytes, what: &str) -> Result<M, Violation> {
    M::decode(body).map_err(|error| Violation(format!("a {what} that cannot be read: {error}")))
}
