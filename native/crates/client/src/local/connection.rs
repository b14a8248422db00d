//! One stream to a server, and the calls that share it.
//!
//! What always holds: each call ends once, by an [`Ended`] or by being handed back when the stream is
//! [`wreck`](Connection::wreck)ed; one that was given up is still in flight until the server has ended it, and
//! keeps its slots until then. Nothing here waits, reads a clock or starts a thread: whoever owns the
//! connection watches the socket, and brings the time.

mod incoming;

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Instant;

use kushi_core::Error;
use kushi_oip::{Hello, Kind, MAX_BODY_BYTES, PROTOCOL, Reader, SlotRange};
use kushi_shm::LentSlot;
use prost::Message;
use smallvec::SmallVec;

use super::activity;
use super::door::Door;
use super::heartbeat::{Beat, LOST_AFTER, LOST_AT_WORK_AFTER, beat};
use super::outgoing::OutgoingFrames;
use super::slots::{Announced, Placed, Views};
use super::texts;
use crate::call::{Answer, Call, CallAnswer, InferCall};
use crate::encode;

/// What a server takes from one connection.
const MAX_IN_FLIGHT: usize = 65_536;
/// Beyond this the server has not read for long.
const MAX_UNSENT_BYTES: usize = 256 << 20;

pub struct Connection<T> {
    stream: Arc<UnixStream>,
    door: Arc<Door>,
    reader: Reader,
    descriptors: VecDeque<OwnedFd>,
    outgoing: OutgoingFrames,
    calls: HashMap<u64, Flight<T>>,
    deadlines: BTreeSet<(Instant, u64)>,
    greeted: bool,
    /// A sign of life, or the moment when the first of the calls in flight began.
    heard: Instant,
    pinged: Option<Instant>,
    /// Bytes that the socket had no room for wait in `outgoing`.
    blocked: bool,
    announced: Announced,
    views: Views,
    /// That have come and were not taken.
    parts: VecDeque<Part>,
}

struct Flight<T> {
    /// `None`: given up.
    asker: Option<T>,
    expects: Kind,
    deadline: Option<Instant>,
    slots: SmallVec<[LentSlot; 1]>,
    frame: Range<u64>,
    /// It was handed from a broken stream to this one, and will not be handed on again.
    resent: bool,
}

/// The end of a call that somebody waits for.
#[derive(Debug)]
pub struct Ended<T> {
    pub asker: T,
    pub outcome: Result<Outcome, Error>,
}

#[derive(Debug)]
pub enum Outcome {
    Answer(Answer),
    CallAnswer(CallAnswer),
    /// All parts have come.
    End,
}

/// One of any number of answers to a call.
#[derive(Debug)]
pub struct Part {
    pub call: u64,
    pub answer: Answer,
    /// Of its frame.
    pub bytes: usize,
}

/// Calls of a broken stream that nothing was sent of.
pub struct Unsent<T>(Vec<(u64, Vec<u8>, Flight<T>)>);

impl<T> Unsent<T> {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// When there is no other stream to send them on.
    pub fn fail(self, error: &Error, ended: &mut Vec<Ended<T>>) {
        let askers = self.0.into_iter().filter_map(|(_, _, flight)| flight.asker);
        ended.extend(askers.map(|asker| Ended { asker, outcome: Err(error.clone()) }));
    }
}

impl<T> Connection<T> {
    /// `stream` does not block.
    pub fn new(stream: Arc<UnixStream>, door: Arc<Door>, now: Instant) -> Self {
        let mut outgoing = OutgoingFrames::default();
        let hello = Hello { protocol: PROTOCOL, version: env!("CARGO_PKG_VERSION").into() };
        outgoing.message(Kind::Hello, 0, &hello);
        Self {
            stream,
            door,
            reader: Reader::default(),
            descriptors: VecDeque::new(),
            outgoing,
            calls: HashMap::new(),
            deadlines: BTreeSet::new(),
            greeted: false,
            heard: now,
            pinged: None,
            blocked: false,
            announced: Announced::default(),
            views: Views::default(),
            parts: VecDeque::new(),
        }
    }

    pub fn stream(&self) -> &Arc<UnixStream> {
        &self.stream
    }

    pub fn door(&self) -> &Arc<Door> {
        &self.door
    }

    pub fn in_flight(&self) -> usize {
        self.calls.len()
    }

    /// All who wait for answers.
    pub fn askers(&self) -> impl Iterator<Item = &T> {
        self.calls.values().filter_map(|flight| flight.asker.as_ref())
    }

    /// Whether something waits for a [`Connection::flush`].
    pub fn has_unsent(&self) -> bool {
        !self.outgoing.is_empty()
    }

    /// Queues a request for the next flush; the answer goes to `asker`, who is dropped on an error.
    pub fn infer(
        &mut self,
        call: &InferCall,
        placed: Placed,
        asker: T,
        deadline: Option<Instant>,
        now: Instant,
    ) -> Result<u64, Error> {
        let flight = Flight { expects: Kind::Answer, ..Flight::new(asker, deadline, SmallVec::new()) };
        self.ask(Kind::Infer, call, placed, flight, now)
    }

    /// The same for any number of answers: they come as [`Connection::next_part`], and [`Outcome::End`] behind them.
    pub fn infer_in_parts(
        &mut self,
        call: &InferCall,
        placed: Placed,
        asker: T,
        deadline: Option<Instant>,
        now: Instant,
    ) -> Result<u64, Error> {
        let flight = Flight { expects: Kind::End, ..Flight::new(asker, deadline, SmallVec::new()) };
        self.ask(Kind::Stream, call, placed, flight, now)
    }

    fn ask(
        &mut self,
        kind: Kind,
        call: &InferCall,
        placed: Placed,
        flight: Flight<T>,
        now: Instant,
    ) -> Result<u64, Error> {
        self.admit()?;
        let mut slots = SmallVec::new();
        let mut inline_bytes = 0_usize;
        let mut ranges = SmallVec::<[Option<SlotRange>; 4]>::new();
        for (input, placed) in call.inputs.iter().zip(placed) {
            let known = |(slot, _): &(LentSlot, SlotRange)| {
                self.announced.announce(self.door.arena(), slot, &mut self.outgoing)
            };
            let range = placed.filter(known).map(|(slot, range)| {
                slots.push(slot);
                range
            });
            if range.is_none() {
                inline_bytes = inline_bytes.saturating_add(input.tensor.data.len());
            }
            ranges.push(range);
        }
        if inline_bytes > MAX_BODY_BYTES {
            return Err(texts::no_room(&call.model, inline_bytes));
        }
        let timeout_us = flight.deadline.map_or(0, |deadline| (deadline - now).as_micros().max(1) as u64);
        let flight = Flight { slots, ..flight };
        self.append(flight, now, |out, id| encode::infer(out.open(), kind, id, call, &ranges, timeout_us))
    }

    /// The same for anything but inference, by its verb.
    pub fn call(
        &mut self,
        call: &Call,
        asker: T,
        deadline: Option<Instant>,
        now: Instant,
    ) -> Result<u64, Error> {
        self.admit()?;
        let flight = Flight { expects: Kind::CallAnswer, ..Flight::new(asker, deadline, SmallVec::new()) };
        let Call { verb, arguments, .. } = call.clone();
        let message = kushi_oip::Call { verb, arguments };
        self.append(flight, now, |out, id| {
            out.message(Kind::Call, id, &message);
            message.encoded_len()
        })
    }

    fn admit(&self) -> Result<(), Error> {
        if self.calls.len() >= MAX_IN_FLIGHT || self.outgoing.len() > MAX_UNSENT_BYTES {
            return Err(texts::overloaded(self.door.path(), self.calls.len(), self.outgoing.len()));
        }
        Ok(())
    }

    /// `write` answers the length of the body that it wrote.
    fn append(
        &mut self,
        mut flight: Flight<T>,
        now: Instant,
        write: impl FnOnce(&mut OutgoingFrames, u64) -> usize,
    ) -> Result<u64, Error> {
        let (id, start) = (self.door.next_id(), self.outgoing.end());
        let body = write(&mut self.outgoing, id);
        if body > MAX_BODY_BYTES {
            self.outgoing.take_back(start);
            return Err(texts::too_long(body));
        }
        flight.frame = start..self.outgoing.end();
        self.begin(id, flight, now);
        Ok(id)
    }

    fn begin(&mut self, id: u64, flight: Flight<T>, now: Instant) {
        if self.calls.is_empty() {
            self.heard = self.heard.max(now);
        }
        if let Some(deadline) = flight.deadline {
            self.deadlines.insert((deadline, id));
        }
        self.calls.insert(id, flight);
    }

    /// The next answer of a stream that has come, of those that somebody waits for.
    pub fn next_part(&mut self) -> Option<Part> {
        self.parts.pop_front()
    }

    /// Nobody waits for this call any more. The server is told with the next flush.
    pub fn cancel(&mut self, id: u64) -> Option<T> {
        let flight = self.calls.get_mut(&id)?;
        let asker = flight.asker.take()?;
        if let Some(deadline) = flight.deadline.take() {
            self.deadlines.remove(&(deadline, id));
        }
        self.outgoing.signal(Kind::Cancel, id);
        Some(asker)
    }

    /// Sends what the socket takes; true when there is no room to wait for. That the server has closed is no failure
    /// here: what it said before is still to be read, and the end behind it.
    pub fn flush(&mut self, now: Instant) -> Result<bool, Error> {
        self.views.release(&mut self.outgoing);
        self.announced.forget_dropped(self.door.arena(), &mut self.outgoing);
        let sent = match self.outgoing.send(&*self.stream) {
            Ok(sent) => sent,
            Err(error) if texts::is_end(&error) => {
                self.blocked = false;
                return Ok(true);
            }
            Err(error) => return Err(texts::broken(self.door.path(), &error)),
        };
        if self.blocked && sent {
            // The other side has read.
            self.heard = self.heard.max(now);
        }
        self.blocked = !self.outgoing.is_empty();
        Ok(!self.blocked)
    }

    /// What is due at `now`: calls whose deadline has passed end, and a silent server is asked for a sign of life or
    /// given up. To be followed by a flush. Answers when to call it next; `None` while no call is in flight.
    pub fn tick(&mut self, now: Instant, ended: &mut Vec<Ended<T>>) -> Result<Option<Instant>, Error> {
        let expires = self.next_deadline().is_some_and(|deadline| deadline <= now);
        if expires || self.beat(now) == Beat::Lost {
            // What has come or left already counts, however late this look is.
            self.receive(now, ended)?;
            self.flush(now)?;
        }
        while let Some(&(_, id)) = self.deadlines.first().filter(|(deadline, _)| *deadline <= now) {
            match self.cancel(id) {
                Some(asker) => ended.push(Ended { asker, outcome: Err(Error::expired()) }),
                // Unreachable, as whoever gives up a call takes its deadline away.
                None => self.deadlines.retain(|&(_, other)| other != id),
            }
        }
        loop {
            match self.beat(now) {
                Beat::Rest => return Ok(None),
                Beat::Wait(until) => {
                    return Ok(Some(self.next_deadline().map_or(until, |deadline| deadline.min(until))));
                }
                Beat::Ping => {
                    self.outgoing.signal(Kind::Ping, 0);
                    self.pinged = Some(now);
                }
                // it may come to the question yet
                Beat::Lost if self.is_at_work(now) => self.pinged = Some(now),
                Beat::Lost => {
                    let silence = now.saturating_duration_since(self.heard);
                    let patience = if silence < LOST_AT_WORK_AFTER { LOST_AFTER } else { LOST_AT_WORK_AFTER };
                    return Err(texts::silent(self.door.path(), patience));
                }
            }
        }
    }

    fn is_at_work(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.heard) < LOST_AT_WORK_AFTER && activity::is_at_work(&self.stream)
    }

    fn beat(&self, now: Instant) -> Beat {
        beat(now, self.heard, self.pinged, self.calls.len())
    }

    /// The earliest moment for the next [`Connection::tick`]; a call that comes now may have an earlier deadline.
    pub fn next_deadline(&self) -> Option<Instant> {
        self.deadlines.first().map(|(deadline, _)| *deadline)
    }

    /// The stream is broken, or no longer wanted: all calls end with `error`, except those that nothing was sent of
    /// and that may be sent on another stream, once.
    pub fn wreck(self, error: &Error, ended: &mut Vec<Ended<T>>) -> Unsent<T> {
        let mut calls: Vec<_> = self.calls.into_iter().collect();
        calls.sort_unstable_by_key(|(id, _)| *id);
        let mut unsent = Vec::new();
        for (id, mut flight) in calls {
            let Some(asker) = flight.asker.take() else { continue };
            match self.outgoing.unsent(&flight.frame).filter(|_| !flight.resent) {
                Some(frame) => unsent.push((id, frame.into(), Flight { asker: Some(asker), ..flight })),
                None => ended.push(Ended { asker, outcome: Err(error.clone()) }),
            }
        }
        Unsent(unsent)
    }

    /// Takes over calls of a broken stream, before any of its own. They keep their numbers.
    pub fn adopt(&mut self, unsent: Unsent<T>, now: Instant) {
        for (id, frame, mut flight) in unsent.0 {
            for slot in &flight.slots {
                self.announced.announce(self.door.arena(), slot, &mut self.outgoing);
            }
            let start = self.outgoing.end();
            self.outgoing.open().extend_from_slice(&frame);
            flight.frame = start..self.outgoing.end();
            flight.resent = true;
            self.begin(id, flight, now);
        }
    }
}

impl<T> Flight<T> {
    fn new(asker: T, deadline: Option<Instant>, slots: SmallVec<[LentSlot; 1]>) -> Self {
        Self { asker: Some(asker), expects: Kind::Answer, deadline, slots, frame: 0..0, resent: false }
    }
}

impl<T> AsFd for Connection<T> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}
