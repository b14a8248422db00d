//! The way from a worker: frames, as they come, with payloads that lie where the worker wrote them.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, PoisonError};

use bytes::{Buf, Bytes, BytesMut};
use kushi_shm::{View, receive};

use crate::frame::{HEAD_BYTES, Head, INLINE_BYTES, kind};
use crate::outgoing::Released;
use crate::parts::Garbage;

const READ_BYTES: usize = 64 << 10;
const MOST_SLOTS: usize = 1024;
/// A worker has an open file for each slot. From so many on payloads are copied, so that their slots go back at once:
/// answers that nobody reads hold no more of them.
const CROWD: usize = 128;
/// Longer payloads are not: the copy would hold up all others.
const MOST_COPIED: u64 = 8 << 20;

pub(crate) struct Incoming {
    socket: Arc<OwnedFd>,
    unread: BytesMut,
    descriptors: VecDeque<OwnedFd>,
    views: HashMap<u64, View>,
    released: Released,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Came {
    Bytes,
    Nothing,
    /// The worker has closed, or nothing can be read from it.
    End,
}

/// What is to be done about a frame.
pub(crate) enum News {
    Frame(Head, Bytes),
    /// The worker needs this slot no more.
    Released(u64),
}

/// Goes with the last tensor in a slot.
struct Release {
    slot: u64,
    released: Released,
}

impl Drop for Release {
    fn drop(&mut self) {
        self.released.lock().unwrap_or_else(PoisonError::into_inner).push(self.slot);
    }
}

impl Incoming {
    pub(crate) fn new(socket: Arc<OwnedFd>, released: Released) -> Self {
        Self {
            socket,
            unread: BytesMut::new(),
            descriptors: VecDeque::new(),
            views: HashMap::new(),
            released,
        }
    }

    /// The worker is to hear soon of what it can use again.
    pub(crate) fn is_crowded(&self) -> bool {
        self.views.len() >= CROWD
    }

    /// Reads what has come.
    pub(crate) fn receive(&mut self) -> Came {
        self.unread.reserve(READ_BYTES);
        match receive(self.socket.as_fd(), &mut self.unread) {
            Ok(received) => {
                self.descriptors.extend(received.descriptor);
                if received.bytes > 0 { Came::Bytes } else { Came::End }
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Came::Nothing,
            Err(_) => Came::End,
        }
    }

    /// The next whole frame. To be asked until there is none, each time that something was received.
    pub(crate) fn next(&mut self) -> Result<Option<News>, Garbage> {
        let news = self.whole()?;
        // One comes with the first byte of its frame.
        let may_wait = usize::from(!self.unread.is_empty());
        if news.is_none() && self.descriptors.len() > may_wait {
            return Err(Garbage("a file descriptor came that belongs to no slot"));
        }
        Ok(news)
    }

    fn whole(&mut self) -> Result<Option<News>, Garbage> {
        while let Some(head) = Head::read(&self.unread) {
            match head.kind {
                kind::ADD_SLOT => {
                    let descriptor =
                        self.descriptors.pop_front().ok_or(Garbage("a slot came without memory"))?;
                    let view = View::map(descriptor, head.id);
                    let view = view.map_err(|_| Garbage("the memory of a slot cannot be used"))?;
                    if self.views.len() >= MOST_SLOTS {
                        return Err(Garbage("too many slots"));
                    }
                    self.views.insert(head.slot, view);
                    self.unread.advance(HEAD_BYTES);
                }
                kind::DROP_SLOT => {
                    self.views.remove(&head.slot);
                    self.unread.advance(HEAD_BYTES);
                }
                kind::RELEASE_SLOT => {
                    self.unread.advance(HEAD_BYTES);
                    return Ok(Some(News::Released(head.slot)));
                }
                _ => return self.frame(head),
            }
        }
        Ok(None)
    }

    fn frame(&mut self, head: Head) -> Result<Option<News>, Garbage> {
        if head.slot != 0 {
            let view = self.views.get(&head.slot).ok_or(Garbage("a frame names a slot that there is not"))?;
            let is_copied = self.is_crowded() && head.length <= MOST_COPIED;
            let release = Release { slot: head.slot, released: self.released.clone() };
            let payload = view.clone().guarded(release).range(0, head.length);
            let payload = payload.ok_or(Garbage("a frame is longer than its slot"))?;
            let payload = if is_copied { Bytes::copy_from_slice(&payload) } else { payload };
            self.unread.advance(HEAD_BYTES);
            return Ok(Some(News::Frame(head, payload)));
        }
        let length = usize::try_from(head.length).ok().filter(|&length| length <= INLINE_BYTES);
        let length = length.ok_or(Garbage("a frame is too long for the socket"))?;
        if self.unread.len() < HEAD_BYTES + length {
            return Ok(None);
        }
        self.unread.advance(HEAD_BYTES);
        // A copy of its own: a tensor would keep everything alive that was read with it.
        let payload = Bytes::copy_from_slice(&self.unread[..length]);
        self.unread.advance(length);
        Ok(Some(News::Frame(head, payload)))
    }
}

#[cfg(test)]
mod tests {
    use std::io::{IoSlice, Write};
    use std::os::unix::net::UnixStream;

    use kushi_shm::{Slot, send};
    use proptest::prelude::*;

    use super::*;

    fn pair() -> (UnixStream, Incoming) {
        let (theirs, ours) = UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        (theirs, Incoming::new(Arc::new(ours.into()), Released::default()))
    }

    fn bytes_of(head: Head) -> Vec<u8> {
        let mut bytes = Vec::new();
        head.write(&mut bytes);
        bytes
    }

    fn send_slot(to: &UnixStream, number: u64, slot: &Slot) {
        let head =
            bytes_of(Head { kind: kind::ADD_SLOT, id: slot.len() as u64, slot: number, ..Head::default() });
        assert_eq!(send(to, &[IoSlice::new(&head)], Some(slot.fd())).unwrap(), head.len());
    }

    /// What has come by now, as kind and payload.
    fn all(incoming: &mut Incoming) -> Result<Vec<(u32, Vec<u8>)>, Garbage> {
        let mut frames = Vec::new();
        loop {
            let before = incoming.unread.len();
            incoming.receive();
            let is_all = incoming.unread.len() == before;
            while let Some(news) = incoming.next()? {
                frames.push(match news {
                    News::Frame(head, payload) => (head.kind, payload.to_vec()),
                    News::Released(slot) => (kind::RELEASE_SLOT, slot.to_le_bytes().to_vec()),
                });
            }
            if is_all {
                return Ok(frames);
            }
        }
    }

    fn text_of(result: Result<Vec<(u32, Vec<u8>)>, Garbage>) -> &'static str {
        result.err().map_or("", |garbage| garbage.0)
    }

    #[test]
    fn a_payload_in_a_slot_is_released_when_nobody_needs_it() {
        let (mut theirs, mut incoming) = pair();
        let slot = Slot::new(4096).unwrap();
        slot.write(0, b"payload");
        send_slot(&theirs, 5, &slot);
        let head = Head { kind: kind::LOG, slot: 5, length: 7, ..Head::default() };
        theirs.write_all(&bytes_of(head)).unwrap();
        incoming.receive();
        let news = incoming.next().unwrap();
        // The descriptor ends a read.
        let news = news.or_else(|| {
            incoming.receive();
            incoming.next().unwrap()
        });
        let Some(News::Frame(read, payload)) = news else { panic!("there is no frame") };
        assert_eq!((read, &payload[..]), (head, &b"payload"[..]));
        assert!(incoming.released.lock().unwrap().is_empty());
        drop(payload);
        assert_eq!(*incoming.released.lock().unwrap(), [5]);
    }

    #[test]
    fn a_descriptor_that_belongs_to_no_slot_is_garbage() {
        let surplus = "a file descriptor came that belongs to no slot";
        let slot = Slot::new(4096).unwrap();
        let log = bytes_of(Head { kind: kind::LOG, ..Head::default() });
        let (theirs, mut incoming) = pair();
        send(&theirs, &[IoSlice::new(&log)], Some(slot.fd())).unwrap();
        assert_eq!(text_of(all(&mut incoming)), surplus);

        // Beside frames of which the last one never ends, there may be one.
        let (theirs, mut incoming) = pair();
        for expected in ["", surplus] {
            send(&theirs, &[IoSlice::new(&log[..1])], Some(slot.fd())).unwrap();
            assert_eq!(text_of(all(&mut incoming)), expected);
        }
    }

    #[test]
    fn what_is_no_slot_or_too_long_for_one_is_garbage() {
        let slot = Slot::new(4096).unwrap();
        let frame = |slot, length| bytes_of(Head { kind: kind::LOG, slot, length, ..Head::default() });
        for (bytes, what) in [
            (frame(7, 1), "a frame names a slot that there is not"),
            (frame(5, 4097), "a frame is longer than its slot"),
            (frame(5, u64::MAX), "a frame is longer than its slot"),
            (frame(0, INLINE_BYTES as u64 + 1), "a frame is too long for the socket"),
            (frame(0, u64::MAX), "a frame is too long for the socket"),
            (
                bytes_of(Head { kind: kind::ADD_SLOT, slot: 9, id: 4096, ..Head::default() }),
                "a slot came without memory",
            ),
        ] {
            let (mut theirs, mut incoming) = pair();
            send_slot(&theirs, 5, &slot);
            theirs.write_all(&bytes).unwrap();
            assert_eq!(text_of(all(&mut incoming)), what);
        }
    }

    #[test]
    fn in_a_crowd_payloads_give_their_slots_back_at_once() {
        let (theirs, mut incoming) = pair();
        let slot = Slot::new(MOST_COPIED as usize + 1).unwrap();
        slot.write(0, b"payload");
        let frame = |slot, length| bytes_of(Head { kind: kind::LOG, slot, length, ..Head::default() });
        let take = |incoming: &mut Incoming, slot, length| {
            (&theirs).write_all(&frame(slot, length)).unwrap();
            incoming.receive();
            let Some(News::Frame(_, payload)) = incoming.next().unwrap() else { panic!("there is no frame") };
            payload
        };
        for number in 1..CROWD as u64 {
            send_slot(&theirs, number, &slot);
            all(&mut incoming).unwrap();
        }
        let held = take(&mut incoming, 1, 7);
        assert!(incoming.released.lock().unwrap().is_empty());
        send_slot(&theirs, CROWD as u64, &slot);
        all(&mut incoming).unwrap();
        let copied = take(&mut incoming, 2, 7);
        assert_eq!((&held[..], &copied[..]), (&b"payload"[..], &b"payload"[..]));
        assert_eq!(*incoming.released.lock().unwrap(), [2]);
        let large = take(&mut incoming, 3, MOST_COPIED + 1);
        assert_eq!(*incoming.released.lock().unwrap(), [2]);
        drop((held, large));
        assert_eq!(*incoming.released.lock().unwrap(), [2, 1, 3]);
    }

    #[test]
    fn slots_are_bounded() {
        let (theirs, mut incoming) = pair();
        let slot = Slot::new(1).unwrap();
        for number in 1..=MOST_SLOTS as u64 {
            send_slot(&theirs, number, &slot);
            assert_eq!(text_of(all(&mut incoming)), "");
        }
        send_slot(&theirs, 0, &slot);
        assert_eq!(text_of(all(&mut incoming)), "too many slots");
    }

    proptest! {
        #[test]
        fn frames_arrive_whole_however_they_are_cut(
            payloads in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..100), 0..10),
            piece in 1..70_usize,
        ) {
            let (mut theirs, mut incoming) = pair();
            let mut bytes = Vec::new();
            for payload in &payloads {
                Head { kind: kind::LOG, length: payload.len() as u64, ..Head::default() }.write(&mut bytes);
                bytes.extend_from_slice(payload);
            }
            let mut frames = Vec::new();
            for piece in bytes.chunks(piece) {
                theirs.write_all(piece).unwrap();
                frames.extend(all(&mut incoming).unwrap());
            }
            let expected: Vec<_> = payloads.into_iter().map(|payload| (kind::LOG, payload)).collect();
            prop_assert_eq!(frames, expected);
            prop_assert!(incoming.unread.is_empty());
        }

        #[test]
        fn any_bytes_are_frames_or_garbage(
            heads in proptest::collection::vec((0..42_u32, any::<u32>(), 0..4096_u64, 0..3_u64, 0..5000_u64), 0..6),
            rest in proptest::collection::vec(any::<u8>(), 0..100),
        ) {
            let (mut theirs, mut incoming) = pair();
            let slot = Slot::new(4096).unwrap();
            send_slot(&theirs, 1, &slot);
            for (kind, count, id, slot, length) in heads {
                theirs.write_all(&bytes_of(Head { kind, count, id, slot, length })).unwrap();
            }
            theirs.write_all(&rest).unwrap();
            let _ = all(&mut incoming);
        }
    }
}
