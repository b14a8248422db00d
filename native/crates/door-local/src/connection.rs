//! One client: reads what has come, submits it, writes what is answered.
//!
//! What always holds: a request that was read gets one answer or failure, unless the client goes away;
//! then its places in the queues are free at once, and its memory when nobody computes with it.

mod frames;

use std::collections::HashSet;
use std::future::poll_fn;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use bytes::Bytes;
use kushi_core::{Credit, Error, ErrorKind, Mail, ModelSpec, Response};
use kushi_net::{Activity, Answering, COUNTED_BYTES, Guest, Reservation, Sink, SmallRequests, Stage};
use kushi_oip::{Hello, Kind, PROTOCOL};
use tokio::io::Interest;
use tokio::net::UnixStream;
use tokio::task::JoinError;

use crate::LocalContext;
use crate::Violation;
use crate::alarm::Alarm;
use crate::answer::{self, LocalAnswer};
use crate::answer_slots::AnswerSlots;
use crate::calls::Calls;
use crate::choices::{self, Choices};
use crate::client_slots::ClientSlots;
use crate::incoming::{Incoming, Read};
use crate::outgoing::OutgoingFrames;
use crate::request::Arrived;
use crate::requests::{Ended, News, Requests};
use crate::tasks::Tasks;

/// A client that does not read what it asked for is not read from.
const UNREAD_BYTES: usize = 1 << 20;
/// Then the other tasks of this thread have a turn.
const READS_AT_ONCE: usize = 16;

pub(super) struct Connection {
    context: LocalContext,
    stream: UnixStream,
    incoming: Incoming,
    outgoing: OutgoingFrames,
    /// What a client that does not read keeps: answers that have not left.
    owed: Reservation,
    requests: Requests,
    calls: Calls,
    /// Requests whose inputs are copied out of their slots.
    arriving: Tasks<(Result<Vec<Bytes>, Error>, Arrived)>,
    choices: Choices,
    /// Of answers in streams that have not left.
    credits: Vec<Credit>,
    /// Streams that have failed here, and whose models have not ended yet.
    refused: HashSet<u64>,
    /// Answers that are copied into their slots.
    copies: Tasks<(Result<LocalAnswer, Error>, Answering)>,
    sink: Rc<Sink>,
    /// Empty between polls; its memory serves the next.
    mail: Vec<(u64, Mail)>,
    client_slots: ClientSlots,
    answer_slots: AnswerSlots,
    small_requests: SmallRequests,
    alarm: Alarm,
    /// The client has said hello.
    greeted: bool,
    /// The server closes: nothing more is read.
    closing: bool,
    /// Counted as one whose client does not read.
    blocked: bool,
    /// What too long nothing happens at.
    activity: Rc<Activity>,
    /// What has come of a frame that is not whole, counted.
    coming: Reservation,
    has_come: usize,
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
    pub(super) fn new(context: &LocalContext, stream: UnixStream) -> Self {
        let mut outgoing = OutgoingFrames::default();
        let hello = Hello { protocol: PROTOCOL, version: context.plane.metadata.version.clone() };
        outgoing.message(Kind::Hello, 0, &hello);
        Self {
            context: context.clone(),
            stream,
            incoming: Incoming::default(),
            outgoing,
            owed: context.io.net.budget.open(),
            requests: Requests::default(),
            calls: Calls::default(),
            arriving: Tasks::default(),
            choices: Tasks::default(),
            credits: Vec::new(),
            refused: HashSet::new(),
            copies: Tasks::default(),
            sink: Rc::default(),
            mail: Vec::new(),
            client_slots: ClientSlots::default(),
            answer_slots: AnswerSlots::new(&context.io.net.budget),
            small_requests: SmallRequests::default(),
            alarm: Alarm::default(),
            greeted: false,
            closing: false,
            blocked: false,
            activity: Rc::new(Activity::staying()),
            coming: context.io.net.budget.open(),
            has_come: 0,
        }
    }

    /// Until the client goes away, breaks the protocol, or the server closes.
    pub(super) async fn run(mut self, guest: &Guest) -> Result<(), Violation> {
        let context = self.context.clone();
        let place = context.io.connections.enter();
        context.io.look_over_connections();
        place.watch(&self.activity, guest);
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
        if self.is_overdue() {
            log::debug!("a local connection ended: its client does not read, or a frame does not come");
            return Poll::Ready(Err(Ending::Gone));
        }
        if let Err(ending) = self.advance(context) {
            return Poll::Ready(Err(ending));
        }
        let aside = self.arriving.len() + self.calls.len() + self.choices.len() + self.copies.len();
        if self.closing && self.requests.len() + aside == 0 && self.outgoing.is_empty() {
            Poll::Ready(Ok(()))
        } else {
            Poll::Pending
        }
    }

    /// The rest of a frame has not come for the time of a body. A client of the same user may take its answers when it
    /// likes, until the server ends: it may be held up by whoever takes them from it.
    fn is_overdue(&self) -> bool {
        if self.blocked {
            return self.context.io.connections.is_draining() && self.activity.is_lost();
        }
        self.activity.take_overdue()
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
        if !self.closing {
            // What had come before the server closed is still refused, or answered.
            self.closing = self.context.io.connections.is_closing();
            self.read(context)?;
        }
        self.write(context)?;
        Ok(())
    }

    fn answer(&mut self) {
        let mut mail = std::mem::take(&mut self.mail);
        self.sink.take(&mut mail);
        for (id, mail) in mail.drain(..) {
            match self.requests.take_mail(id, mail) {
                None => {}
                Some(News::Ended(ended)) => self.end(id, ended),
                Some(News::Part(spec, response, credit)) => self.part(id, &spec, response, credit),
                Some(News::Over(last, result)) => self.close_stream(id, last, result),
            }
        }
        self.mail = mail;
        while let Some((id, ended)) = self.choices.next_done() {
            self.end(id, ended);
        }
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
        if ended.result.as_ref().is_ok_and(choices::takes_long) {
            let budget = &self.context.io.net.budget;
            if let Err(error) = choices::begin(&mut self.choices, &self.sink, budget, id, ended) {
                self.fail(id, &error);
            }
            return;
        }
        let Ended { spec, result, mut answering } = ended;
        let (mut response, mut end) = match result {
            Ok(answer) => answer,
            Err(error) => return self.fail(id, &error),
        };
        if let Err(error) = choices::choose(&spec, &mut response, &mut end) {
            return self.fail(id, &error);
        }
        let answer = LocalAnswer::new(spec, response, end, &mut self.answer_slots);
        if answer.takes_long() {
            answering.owe(answer.bytes_in_slots());
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

    /// One of any number. Where it cannot be written, nobody waits for the others.
    fn part(&mut self, id: u64, spec: &ModelSpec, response: Response, credit: Option<Credit>) {
        if self.refused.contains(&id) {
            return;
        }
        match answer::write_part(id, spec, response, &mut self.outgoing) {
            // Its room is taken until it has left.
            Ok(()) => self.credits.extend(credit),
            Err(error) => {
                self.fail(id, &error);
                self.refused.insert(id);
                self.requests.cancel(id);
            }
        }
    }

    fn close_stream(&mut self, id: u64, last: Option<(Arc<ModelSpec>, Response)>, result: Result<(), Error>) {
        if let Some((spec, response)) = last {
            self.part(id, &spec, response, None);
        }
        if self.refused.remove(&id) {
            return;
        }
        match result {
            Ok(()) => drop(self.outgoing.frame(Kind::End, id, 0)),
            Err(error) => self.fail(id, &error),
        }
    }

    fn write_answer(&mut self, id: u64, answer: LocalAnswer) {
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
                // from here on it counts as a request
                self.coming.owe_in_all(0);
                self.has_come = 0;
                self.take(frame)?;
            }
            self.await_rest();
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

    /// A frame that has begun comes within the time of a body, and counts while it does.
    fn await_rest(&mut self) {
        let bytes = self.incoming.unread();
        let stage = if bytes > 0 { Stage::Body } else { Stage::Idle };
        if self.activity.stage() == stage {
            self.activity.has_taken_in(bytes.saturating_sub(self.has_come));
        } else {
            self.activity.enter(stage);
        }
        self.has_come = bytes;
        self.coming.owe_in_all(if bytes >= COUNTED_BYTES { bytes } else { 0 });
    }

    fn write(&mut self, context: &mut Context<'_>) -> io::Result<()> {
        let was_full = self.outgoing.len() > UNREAD_BYTES;
        while !self.outgoing.is_empty() {
            match self.stream.poll_write_ready(context) {
                Poll::Pending => {
                    self.count_blocked(true);
                    self.owed.owe_in_all(self.outgoing.len());
                    return Ok(());
                }
                Poll::Ready(ready) => ready?,
            }
            match self.stream.try_io(Interest::WRITABLE, || self.outgoing.send(&self.stream)) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                sent => {
                    sent?;
                    self.activity.has_written();
                }
            }
        }
        self.count_blocked(false);
        self.owed.owe_in_all(0);
        self.credits.clear();
        if was_full {
            context.waker().wake_by_ref();
        }
        Ok(())
    }

    fn count_blocked(&mut self, blocked: bool) {
        if self.blocked != blocked {
            self.blocked = blocked;
            self.context.io.count_blocked(blocked);
            self.activity.set_blocked(blocked);
        }
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
