//! Bytes on their way out, and the slots whose file descriptors travel at certain places among them.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::ops::Range;
use std::os::fd::AsFd;

use kushi_oip::{Kind, write_header};
use kushi_shm::{LentSlot, send};
use prost::Message;

/// Memory that one burst needed is not kept for the next.
const KEPT_BYTES: usize = 1 << 20;

/// A place is the number of bytes of the stream before it.
#[derive(Default)]
pub(crate) struct OutgoingFrames {
    bytes: Vec<u8>,
    /// How many of the bytes have left.
    sent: usize,
    /// The place of the first byte.
    start: u64,
    slots: VecDeque<(u64, LentSlot)>,
}

impl OutgoingFrames {
    /// What has not left yet.
    pub(crate) fn len(&self) -> usize {
        self.bytes.len() - self.sent
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Where the next byte will stand.
    pub(crate) fn end(&self) -> u64 {
        self.start + self.bytes.len() as u64
    }

    /// To append whole frames to.
    pub(crate) fn open(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    /// A frame that is its header alone.
    pub(crate) fn signal(&mut self, kind: Kind, id: u64) {
        write_header(&mut self.bytes, kind, id, 0);
    }

    pub(crate) fn message(&mut self, kind: Kind, id: u64, message: &impl Message) {
        write_header(&mut self.bytes, kind, id, message.encoded_len());
        message.encode_raw(&mut self.bytes);
    }

    /// A frame about a slot, which carries its file descriptor.
    pub(crate) fn announce(&mut self, slot: LentSlot) {
        let message = kushi_oip::Slot { slot: slot.id(), length: slot.len() as u64 };
        self.slots.push_back((self.end(), slot));
        self.message(Kind::Slot, 0, &message);
    }

    /// Takes back what was appended from this place on, none of which has left.
    pub(crate) fn take_back(&mut self, place: u64) {
        self.bytes.truncate((place - self.start) as usize);
    }

    /// What stands at these places; `None` when some of it has left.
    pub(crate) fn unsent(&self, places: &Range<u64>) -> Option<&[u8]> {
        let start = places.start.checked_sub(self.start)? as usize;
        let end = places.end.checked_sub(self.start)? as usize;
        self.bytes.get(start..end).filter(|_| start >= self.sent)
    }

    /// Sends as much as the socket takes, and answers whether that was anything.
    pub(crate) fn send(&mut self, socket: impl AsFd) -> io::Result<bool> {
        let before = self.sent;
        while self.sent < self.bytes.len() {
            let place = self.start + self.sent as u64;
            let attached = self.slots.front().filter(|(at, _)| *at == place);
            let next = self.slots.get(usize::from(attached.is_some()));
            let end = next.map_or(self.bytes.len(), |(at, _)| (at - self.start) as usize);
            let descriptor = attached.map(|(_, slot)| slot.fd());
            match send(&socket, &[IoSlice::new(&self.bytes[self.sent..end])], descriptor) {
                Ok(count) => {
                    if attached.is_some() {
                        self.slots.pop_front();
                    }
                    self.sent += count;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        let sent = self.sent > before;
        self.forget_sent();
        Ok(sent)
    }

    /// Once it is the larger part: what has not left is moved for no more than it costs to have sent.
    fn forget_sent(&mut self) {
        if self.sent < self.len() {
            return;
        }
        self.bytes.drain(..self.sent);
        self.start += self.sent as u64;
        self.sent = 0;
        if self.bytes.is_empty() && self.bytes.capacity() > KEPT_BYTES {
            self.bytes = Vec::new();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use kushi_oip::Reader;
    use kushi_shm::{PoolLimits, SlotPool, receive};

    use super::*;

    #[test]
    fn what_has_left_takes_no_memory_although_something_always_waits() {
        let pool = SlotPool::new(PoolLimits { kept_bytes: 1 << 20, kept_slots: 1 });
        let (one, other) = UnixStream::pair().unwrap();
        one.set_nonblocking(true).unwrap();
        let mut outgoing = OutgoingFrames::default();
        let (mut reader, mut read, mut descriptors) = (Reader::default(), 0, 0);
        let mut last = 0..0;
        for round in 0..3000_u64 {
            let start = outgoing.end();
            if round % 10 == 0 {
                outgoing.announce(pool.take(1).unwrap());
            } else {
                write_header(outgoing.open(), Kind::Infer, round, 8000);
                outgoing.open().extend_from_slice(&[round as u8; 8000]);
            }
            let before = std::mem::replace(&mut last, start..outgoing.end());
            outgoing.send(&one).unwrap();
            if round < 100 {
                continue;
            }
            assert!(!outgoing.is_empty());
            let frame = outgoing.unsent(&before).expect("the socket is full of others").to_vec();
            assert_eq!(frame.len() as u64, before.end - before.start);
            // Less than what waits, as much as comes.
            while read < round - 100 {
                let received = receive(&other, reader.room(4096)).unwrap();
                descriptors += u64::from(received.descriptor.is_some());
                while let Some(frame) = reader.next_frame().unwrap() {
                    let expected = if read % 10 == 0 { (Kind::Slot, 0) } else { (Kind::Infer, read) };
                    assert_eq!((frame.kind, frame.id), expected);
                    assert!(frame.kind == Kind::Slot || frame.body[..] == [read as u8; 8000]);
                    read += 1;
                    assert!(descriptors >= read.div_ceil(10));
                }
            }
        }
        assert!(outgoing.bytes.capacity() < 4 << 20, "{} bytes", outgoing.bytes.capacity());
    }
}
