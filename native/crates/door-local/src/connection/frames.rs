//! What a client says: one frame after the other.

use std::time::Instant;

use bytes::Bytes;
use kushi_core::{Error, ErrorKind};
use kushi_dataplane::DoorKind;
use kushi_oip::{Frame, Hello, Kind, PROTOCOL, Release};
use prost::Message;

use super::{Connection, not_copied};
use crate::client_slots::RangeFault;
use crate::request::{Arrived, Submitted};
use crate::requests::{Expects, MOST_REQUESTS};
use crate::{Violation, calls, request};

impl Connection {
    pub(super) fn take(&mut self, frame: Frame) -> Result<(), Violation> {
        let Frame { kind, id, body } = frame;
        if !self.greeted {
            return self.greet(kind, body);
        }
        match kind {
            Kind::Infer => self.infer(id, body, false),
            Kind::Stream => self.infer(id, body, true),
            Kind::Cancel => {
                self.requests.cancel(id);
                Ok(())
            }
            Kind::Call => {
                self.check_new(id)?;
                calls::begin(&mut self.calls, &self.context, &self.sink, id, body)
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
            Kind::Hello | Kind::Answer | Kind::Failure | Kind::CallAnswer | Kind::Part | Kind::End => {
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

    fn infer(&mut self, id: u64, body: Bytes, streams: bool) -> Result<(), Violation> {
        self.check_new(id)?;
        if self.requests.len() + self.arriving.len() >= MOST_REQUESTS {
            let text = format!("{MOST_REQUESTS} requests of this connection have not been answered yet");
            self.fail(id, &Error::new(ErrorKind::Overloaded, text));
            return Ok(());
        }
        let mut answering = self.context.io.net.begin_answer();
        if let Err(error) = answering.cover_one_of_many(&self.small_requests, body.len(), body.len()) {
            self.fail(id, &error);
            return Ok(());
        }
        self.submit(id, Arrived { body, at: Instant::now(), answering, from_slots: None, streams })
    }

    pub(super) fn submit(&mut self, id: u64, arrived: Arrived) -> Result<(), Violation> {
        match request::submit(&self.context, &self.client_slots, &self.sink, id, &arrived) {
            Ok(Submitted::Queued(waiting, spec)) => {
                let expects = if arrived.streams {
                    Expects::Parts(self.context.plane.traffic.stream(DoorKind::Local))
                } else {
                    Expects::only()
                };
                self.requests.add(id, waiting, spec, arrived.answering, expects);
            }
            Ok(Submitted::CopyFirst(aside)) => {
                let mut arrived = arrived;
                // the copy is ours
                if let Err(error) = arrived.answering.cover(arrived.body.len() + aside.byte_size()) {
                    self.fail(id, &error);
                    return Ok(());
                }
                self.arriving.begin(&self.sink, id, async move {
                    let copied = tokio::task::spawn_blocking(move || aside.copy()).await;
                    let failed = |failure| Err(not_copied("an input", &failure));
                    (copied.unwrap_or_else(failed), arrived)
                });
            }
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
            || self.choices.contains(id)
            || self.copies.contains(id);
        if id == 0 || in_flight {
            return Err(Violation(format!("a request with the id {id}, which is not free")));
        }
        Ok(())
    }
}

fn read<M: Message + Default>(body: Bytes, what: &str) -> Result<M, Violation> {
    M::decode(body).map_err(|error| Violation(format!("a {what} that cannot be read: {error}")))
}
