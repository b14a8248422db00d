//! The way from a worker: frames, as they come, with payloads that lie where the worker wrote them.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, PoisonError};

use bytes::{Buf, Bytes, BytesMut};
use kushi_shm::{View, receive};

use crate::frame::{HEAD_BYTES, Head, INLINE_BYTES, kind};
use crate::message::Garbage;
use crate::outgoing::Released;

const READ_BYTES: usize = 64 << 10;
const MOST_SLOTS: usize = 1024;

pub(crate) struct Incoming {
    socket: Arc<OwnedFd>,
    unread: BytesMut,
    descriptors: VecDeque<OwnedFd>,
    views: HashMap<u64, View>,
    released: Released,
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

    /// Reads what has come. False: the worker has closed.
    pub(crate) fn receive(&mut self) -> io::Result<bool> {
        self.unread.reserve(READ_BYTES);
        match receive(self.socket.as_fd(), &mut self.unread) {
            Ok(received) => {
                self.descriptors.extend(received.descriptor);
                Ok(received.bytes > 0)
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(true),
            Err(error) => Err(error),
        }
    }

    /// The next whole frame.
    pub(crate) fn next(&mut self) -> Result<Option<News>, Garbage> {
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
            let release = Release { slot: head.slot, released: self.released.clone() };
            let payload = view.clone().guarded(release).range(0, head.length);
            let payload = payload.ok_or(Garbage("a frame is longer than its slot"))?;
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
