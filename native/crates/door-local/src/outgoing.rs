//! Bytes on their way out: small ones joined, large ones where they lie, file descriptors at the start
//! of their frames.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::os::fd::AsFd;

use bytes::Bytes;
use kushi_oip::{Kind, wire};
use kushi_shm::{Slot, send};

/// Tensors up to this size are copied behind their frame; larger ones are sent where they lie.
const COPIED_BYTES: usize = 16 << 10;
/// Memory that one burst needed is not kept for the next.
const KEPT_BYTES: usize = 1 << 20;
/// Handed to the kernel at once.
const MOST_SLICES: usize = 32;

#[derive(Default)]
pub(super) struct OutgoingFrames {
    pieces: VecDeque<Piece>,
    /// Bytes behind the pieces.
    open: Vec<u8>,
    /// How many bytes of the first piece, or of `open` without one, have left.
    sent: usize,
    /// Bytes in pieces.
    in_pieces: usize,
}

struct Piece {
    bytes: Bytes,
    /// Its descriptor leaves with the first byte.
    slot: Option<Slot>,
}

impl OutgoingFrames {
    /// What has not left yet.
    pub(super) fn len(&self) -> usize {
        self.in_pieces + self.open.len() - self.sent
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Where to write what comes next: whole frames, or parts of one.
    pub(super) fn open(&mut self) -> &mut Vec<u8> {
        &mut self.open
    }

    /// Begins a frame of so many bytes.
    pub(super) fn frame(&mut self, kind: Kind, id: u64, length: usize) -> &mut Vec<u8> {
        kushi_oip::write_header(&mut self.open, kind, id, length);
        &mut self.open
    }

    pub(super) fn message(&mut self, kind: Kind, id: u64, message: &impl prost::Message) {
        let open = self.frame(kind, id, message.encoded_len());
        message.encode_raw(open);
    }

    /// Why a request failed, or with the id 0 the connection.
    pub(super) fn failure(&mut self, id: u64, kind: &str, message: &str) {
        let length = wire::text_length(1, kind) + wire::text_length(2, message);
        let open = self.frame(Kind::Failure, id, length);
        wire::put_text(open, 1, kind);
        wire::put_text(open, 2, message);
    }

    /// The bytes of a tensor.
    pub(super) fn tensor(&mut self, bytes: Bytes) {
        if bytes.len() <= COPIED_BYTES {
            self.open.extend_from_slice(&bytes);
        } else {
            self.seal(None);
            self.push(Piece { bytes, slot: None });
        }
    }

    /// Tells of a slot; its descriptor goes with this frame.
    pub(super) fn announce(&mut self, slot: &Slot) {
        self.seal(None);
        let message = kushi_oip::Slot { slot: slot.id(), length: slot.len() as u64 };
        self.message(Kind::Slot, 0, &message);
        self.seal(Some(slot.clone()));
    }

    fn seal(&mut self, slot: Option<Slot>) {
        // What has left of it counts as having left of the piece that it becomes.
        if !self.open.is_empty() {
            let bytes = std::mem::take(&mut self.open).into();
            self.push(Piece { bytes, slot });
        }
    }

    fn push(&mut self, piece: Piece) {
        self.in_pieces += piece.bytes.len();
        self.pieces.push_back(piece);
    }

    /// Sends until everything has left or the socket takes no more.
    pub(super) fn send(&mut self, socket: impl AsFd) -> io::Result<()> {
        while !self.is_empty() {
            let mut slices = [IoSlice::new(&[]); MOST_SLICES];
            let mut count = 0;
            let mut whole = true;
            for (index, piece) in self.pieces.iter().enumerate() {
                // A descriptor goes with the first byte of what is sent at once.
                if count == MOST_SLICES - 1 || (index > 0 && piece.slot.is_some()) {
                    whole = false;
                    break;
                }
                let start = if index == 0 { self.sent } else { 0 };
                slices[count] = IoSlice::new(&piece.bytes[start..]);
                count += 1;
            }
            if whole {
                let start = if self.pieces.is_empty() { self.sent } else { 0 };
                slices[count] = IoSlice::new(&self.open[start..]);
                count += 1;
            }
            let slot = self.pieces.front().and_then(|piece| piece.slot.as_ref()).filter(|_| self.sent == 0);
            let sent = send(&socket, &slices[..count], slot.map(Slot::fd))?;
            self.advance(sent);
        }
        Ok(())
    }

    fn advance(&mut self, bytes: usize) {
        self.sent += bytes;
        while let Some(first) = self.pieces.front() {
            let length = first.bytes.len();
            if self.sent < length {
                return;
            }
            self.sent -= length;
            self.in_pieces -= length;
            self.pieces.pop_front();
        }
        // What has left of the open bytes goes once it is the larger part.
        if self.sent >= self.len() {
            self.open.drain(..self.sent);
            self.sent = 0;
            if self.open.is_empty() && self.open.capacity() > KEPT_BYTES {
                self.open = Vec::new();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use bytes::BytesMut;
    use kushi_shm::receive;

    use super::*;

    /// Sends all through a socket that takes little at a time; answers the bytes, and where among them
    /// descriptors came.
    fn through_a_socket(outgoing: &mut OutgoingFrames) -> (BytesMut, Vec<usize>) {
        let (one, other) = UnixStream::pair().unwrap();
        one.set_nonblocking(true).unwrap();
        let expected = outgoing.len();
        let (mut bytes, mut descriptors) = (BytesMut::new(), Vec::new());
        while bytes.len() < expected {
            if let Err(error) = outgoing.send(&one) {
                assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
            }
            let left = outgoing.len();
            while bytes.len() + left < expected {
                let before = bytes.len();
                bytes.reserve(50_000);
                if receive(&other, &mut bytes).unwrap().descriptor.is_some() {
                    descriptors.push(before);
                }
            }
        }
        assert!(outgoing.is_empty());
        (bytes, descriptors)
    }

    #[test]
    fn what_has_left_takes_no_memory_although_something_always_waits() {
        let (one, other) = UnixStream::pair().unwrap();
        one.set_nonblocking(true).unwrap();
        let mut outgoing = OutgoingFrames::default();
        let (mut written, mut read, mut bytes) = (0_u32, 0_u32, BytesMut::new());
        for round in 0..5000 {
            for _ in 0..1000 {
                outgoing.open().extend_from_slice(&written.to_le_bytes());
                written += 1;
            }
            let blocked = outgoing.send(&one).err();
            if round >= 100 {
                assert_eq!(blocked.map(|error| error.kind()), Some(io::ErrorKind::WouldBlock));
                // Less than what waits, as much as comes.
                while read + 1000 < written - 100_000 {
                    bytes.reserve(4000);
                    receive(&other, &mut bytes).unwrap();
                    while let Some((number, _)) = bytes.split_first_chunk() {
                        assert_eq!(u32::from_le_bytes(*number), read);
                        read += 1;
                        drop(bytes.split_to(4));
                    }
                }
            }
        }
        assert!(outgoing.open.capacity() < 4 << 20, "{} bytes", outgoing.open.capacity());
    }

    #[test]
    fn everything_leaves_in_order_and_descriptors_with_their_frames() {
        let mut outgoing = OutgoingFrames::default();
        let mut expected = Vec::new();
        let mut places = Vec::new();
        for round in 0..50_u8 {
            for length in [1, 100, COPIED_BYTES, COPIED_BYTES + 1, 300_000] {
                outgoing.open().push(round);
                outgoing.tensor(vec![round; length].into());
                expected.resize(expected.len() + length + 1, round);
            }
            let slot = Slot::new(1).unwrap();
            let mut frame = BytesMut::new();
            let message = kushi_oip::Slot { slot: slot.id(), length: slot.len() as u64 };
            kushi_oip::write_message(&mut frame, Kind::Slot, 0, &message);
            places.push(expected.len());
            expected.extend_from_slice(&frame);
            outgoing.announce(&slot);
        }
        let (bytes, descriptors) = through_a_socket(&mut outgoing);
        assert!(bytes == expected);
        assert_eq!(descriptors.len(), places.len());
        assert!(descriptors.iter().zip(&places).all(|(came, place)| came <= place));
    }
}
