//! Bytes on their way in, cut into frames, and the file descriptors that come with them.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

use kushi_oip::{Frame, Reader};
use kushi_shm::{Received, receive};

use crate::Violation;

/// Set aside at a time; read into until less than a quarter is left.
const READ_BYTES: usize = 64 << 10;
/// A frame that is longer gets its memory as its bytes arrive.
const TRUSTED_BYTES: usize = 1 << 20;

#[derive(Default)]
pub(super) struct Incoming {
    reader: Reader,
    /// They wait for their frames: a read brings one at most, and may end inside the frame of one and the
    /// next bring the rest and another.
    descriptors: VecDeque<OwnedFd>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Read {
    Closed,
    /// There may be more.
    More,
    /// That was all, for now.
    All,
}

impl Incoming {
    pub(super) fn read(&mut self, socket: impl AsFd) -> io::Result<Read> {
        let missing = self.reader.missing();
        let least = if missing <= READ_BYTES { READ_BYTES / 4 } else { missing.min(TRUSTED_BYTES) };
        let room = self.reader.room(0);
        if room.capacity() - room.len() < least {
            room.reserve(least.max(READ_BYTES));
        }
        let free = room.capacity() - room.len();
        let Received { bytes, descriptor } = receive(socket, room)?;
        let with_descriptor = descriptor.is_some();
        self.descriptors.extend(descriptor);
        Ok(match bytes {
            0 => Read::Closed,
            // A read ends behind a descriptor, whatever there is behind it.
            _ if bytes == free || with_descriptor => Read::More,
            _ => Read::All,
        })
    }

    /// Bytes of a frame that has begun.
    pub(super) fn unread(&self) -> usize {
        self.reader.len()
    }

    pub(super) fn next_frame(&mut self) -> Result<Option<Frame>, Violation> {
        let frame = self.reader.next_frame().map_err(|error| Violation(error.to_string()))?;
        // One may belong to the frame that has begun.
        let begun = usize::from(!self.reader.is_empty());
        if frame.is_none() && self.descriptors.len() > begun {
            return Err(Violation::new("a file descriptor that no frame asked for"));
        }
        Ok(frame)
    }

    pub(super) fn take_descriptor(&mut self) -> Option<OwnedFd> {
        self.descriptors.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use std::io::IoSlice;
    use std::os::unix::net::UnixStream;

    use bytes::BytesMut;
    use kushi_oip::{HEADER_BYTES, Kind, write_frame, write_message};
    use kushi_shm::{Slot, send};

    use super::*;

    fn announcement(slot: &Slot) -> BytesMut {
        let mut frame = BytesMut::new();
        let message = kushi_oip::Slot { slot: slot.id(), length: slot.len() as u64 };
        write_message(&mut frame, Kind::Slot, 0, &message);
        frame
    }

    /// The next read then brings the rest of the frame, and the next descriptor with it.
    #[test]
    fn a_read_may_end_anywhere_in_the_frame_of_a_slot() {
        let slots = [Slot::new(1).unwrap(), Slot::new(1).unwrap()];
        for inside in 0..=announcement(&slots[0]).len() {
            let (client, server) = UnixStream::pair().unwrap();
            let mut before = BytesMut::new();
            write_frame(&mut before, Kind::Infer, 0, &vec![0; READ_BYTES - HEADER_BYTES - inside]);
            assert_eq!(send(&client, &[IoSlice::new(&before)], None).unwrap(), before.len());
            for slot in &slots {
                send(&client, &[IoSlice::new(&announcement(slot))], Some(slot.fd())).unwrap();
            }
            let (mut incoming, mut announced) = (Incoming::default(), 0);
            while announced < slots.len() {
                incoming.read(&server).unwrap();
                while let Some(frame) =
                    incoming.next_frame().unwrap_or_else(|error| panic!("{inside}: {error}"))
                {
                    if frame.kind == Kind::Slot {
                        assert!(incoming.take_descriptor().is_some(), "{inside}");
                        announced += 1;
                    }
                }
            }
        }
    }
}
