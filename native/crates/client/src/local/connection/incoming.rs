//! What comes from the server: bytes into frames, and frames into the ends of calls.

use std::io;
use std::path::Path;
use std::time::Instant;

use bytes::Bytes;
use kushi_core::Error;
use kushi_oip::{Frame, Hello, Kind, PROTOCOL, Release, Slot};
use kushi_shm::receive;
use prost::Message;

use super::{Connection, Ended, Outcome, Part};
use crate::decode::{self, Violation};
use crate::local::slots::Leases;
use crate::local::texts;

/// What one read may bring, unless a frame is known to be longer.
const ROOM_BYTES: usize = 16 << 10;
/// Reads of one turn; other sockets of the same thread go on then.
const MAX_READS: usize = 64;
/// Descriptors that came ahead of their frames.
const MAX_DESCRIPTORS: usize = 64;

impl<T> Connection<T> {
    /// Reads what has come, without waiting for more. Answers whether that was all, as far as is known.
    pub fn receive(&mut self, now: Instant, ended: &mut Vec<Ended<T>>) -> Result<bool, Error> {
        for _ in 0..MAX_READS {
            let wanted = self.reader.missing().max(ROOM_BYTES);
            let into = self.reader.room(wanted);
            let room = into.capacity() - into.len();
            let received = match receive(&*self.stream, into) {
                Ok(received) => received,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(true),
                Err(error) => return Err(texts::broken(self.door.path(), &error)),
            };
            if received.bytes == 0 {
                return Err(texts::closed(self.door.path(), self.greeted));
            }
            self.heard = self.heard.max(now);
            let more = received.bytes == room || received.descriptor.is_some();
            self.descriptors.extend(received.descriptor);
            self.read_frames(ended)?;
            if !more {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn read_frames(&mut self, ended: &mut Vec<Ended<T>>) -> Result<(), Error> {
        let violation = |path: &Path, text: Violation| texts::violation(path, &text);
        loop {
            let frame =
                self.reader.next_frame().map_err(|error| violation(self.door.path(), error.to_string()))?;
            let Some(frame) = frame else { break };
            if !self.greeted {
                self.greet(&frame)?;
                continue;
            }
            if frame.kind == Kind::Failure && frame.id == 0 {
                let reason =
                    decode::failure(&frame.body).map_err(|text| violation(self.door.path(), text))?;
                return Err(texts::ended(self.door.path(), &reason));
            }
            self.take(frame, ended).map_err(|text| violation(self.door.path(), text))?;
        }
        if self.descriptors.len() > MAX_DESCRIPTORS {
            return Err(violation(self.door.path(), "file descriptors that belong to no slot".into()));
        }
        Ok(())
    }

    fn greet(&mut self, frame: &Frame) -> Result<(), Error> {
        let hello = Some(frame).filter(|frame| frame.kind == Kind::Hello);
        match hello.map(|frame| Hello::decode(&frame.body[..])) {
            Some(Ok(hello)) if hello.protocol == PROTOCOL => {
                self.greeted = true;
                Ok(())
            }
            Some(Ok(hello)) => Err(texts::mismatch(self.door.path(), &hello, PROTOCOL)),
            _ => Err(texts::violation(self.door.path(), "it did not begin with its version")),
        }
    }

    fn take(&mut self, frame: Frame, ended: &mut Vec<Ended<T>>) -> Result<(), Violation> {
        let Frame { kind, id, body } = frame;
        match kind {
            Kind::Answer | Kind::Failure | Kind::CallAnswer | Kind::End => self.end(kind, id, body, ended),
            Kind::Part => self.part(id, &body),
            Kind::Slot => {
                let slot: Slot = read(&body)?;
                let descriptor = self.descriptors.pop_front().ok_or("a slot without its file descriptor")?;
                self.views.add(slot, descriptor)
            }
            Kind::Forget => {
                self.views.forget(&read::<Release>(&body)?.slots);
                Ok(())
            }
            Kind::Ping => {
                self.outgoing.signal(Kind::Pong, id);
                Ok(())
            }
            Kind::Pong => Ok(()),
            Kind::Hello | Kind::Infer | Kind::Stream | Kind::Cancel | Kind::Call | Kind::Release => {
                Err(format!("a frame of the kind {kind:?}, which only clients send"))
            }
        }
    }

    fn part(&mut self, call: u64, body: &Bytes) -> Result<(), Violation> {
        let flight = self.calls.get(&call).filter(|flight| flight.expects == Kind::End);
        let flight = flight.ok_or_else(|| format!("an answer to {call}, which is no stream"))?;
        if flight.asker.is_some() {
            let mut leases = Leases::default();
            let answer = decode::answer(body, |range| self.views.lease(&mut leases, range))?;
            self.parts.push_back(Part { call, answer, bytes: body.len() });
        }
        Ok(())
    }

    fn end(&mut self, kind: Kind, id: u64, body: Bytes, ended: &mut Vec<Ended<T>>) -> Result<(), Violation> {
        let flight = self.calls.remove(&id).ok_or_else(|| format!("an answer to the unknown call {id}"))?;
        if let Some(deadline) = flight.deadline {
            self.deadlines.remove(&(deadline, id));
        }
        if kind != Kind::Failure && kind != flight.expects {
            return Err(format!("an answer of the kind {kind:?} to call {id}"));
        }
        let outcome = match kind {
            Kind::Failure => Err(decode::failure(&body)?),
            Kind::CallAnswer => Ok(Outcome::CallAnswer(decode::call_answer(body)?)),
            Kind::End => Ok(Outcome::End),
            // Also when nobody waits for it: its slots are released by reading and dropping it.
            _ => {
                let mut leases = Leases::default();
                Ok(Outcome::Answer(decode::answer(&body, |range| self.views.lease(&mut leases, range))?))
            }
        };
        if let Some(asker) = flight.asker {
            ended.push(Ended { asker, outcome });
        }
        Ok(())
    }
}

fn read<M: Message + Default>(body: &[u8]) -> Result<M, Violation> {
    M::decode(body).map_err(|error| format!("an unreadable message: {error}"))
}
