//! Frames on the socket of a worker: a head of fixed length, and a payload behind it or in a slot.
//!
//! The other end is `runners/worker/channel.py` and `kinds.py`.

use bytes::{Buf, BufMut};

pub(crate) const HEAD_BYTES: usize = 32;

/// Longer payloads lie in slots.
pub(crate) const INLINE_BYTES: usize = 32 << 10;

/// What a frame is about.
pub(crate) mod kind {
    pub(crate) const ADD_SLOT: u32 = 1;
    pub(crate) const DROP_SLOT: u32 = 2;
    pub(crate) const RELEASE_SLOT: u32 = 3;

    pub(crate) const INITIALIZE: u32 = 16;
    pub(crate) const AUTO_COMPLETE: u32 = 17;
    pub(crate) const EXECUTE: u32 = 18;
    pub(crate) const FINALIZE: u32 = 19;
    pub(crate) const GRANT: u32 = 20;
    pub(crate) const ANSWER: u32 = 21;
    pub(crate) const CALL_RESPONSE: u32 = 22;
    pub(crate) const IS_READY: u32 = 23;

    pub(crate) const READY: u32 = 32;
    pub(crate) const FAILED: u32 = 33;
    pub(crate) const RESPONSES: u32 = 34;
    pub(crate) const RETURNED: u32 = 35;
    pub(crate) const LOG: u32 = 36;
    pub(crate) const FINALIZED: u32 = 37;
    pub(crate) const ASK: u32 = 38;
    pub(crate) const CALL: u32 = 39;
    pub(crate) const CALL_CANCEL: u32 = 40;
    pub(crate) const CALL_TAKEN: u32 = 41;
    pub(crate) const METRIC: u32 = 42;
    pub(crate) const READINESS: u32 = 43;
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) kind: u32,
    pub(crate) count: u32,
    pub(crate) id: u64,
    /// 0: the payload follows.
    pub(crate) slot: u64,
    pub(crate) length: u64,
}

impl Head {
    pub(crate) fn write(&self, into: &mut Vec<u8>) {
        into.put_u32_le(self.kind);
        into.put_u32_le(self.count);
        into.put_u64_le(self.id);
        into.put_u64_le(self.slot);
        into.put_u64_le(self.length);
    }

    /// `None` while bytes are missing.
    pub(crate) fn read(mut bytes: &[u8]) -> Option<Self> {
        (bytes.len() >= HEAD_BYTES).then(|| Self {
            kind: bytes.get_u32_le(),
            count: bytes.get_u32_le(),
            id: bytes.get_u64_le(),
            slot: bytes.get_u64_le(),
            length: bytes.get_u64_le(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_is_read_as_it_was_written() {
        let head = Head { kind: 1, count: 2, id: 3, slot: 4, length: u64::MAX };
        let mut bytes = Vec::new();
        head.write(&mut bytes);
        assert_eq!(bytes.len(), HEAD_BYTES);
        assert_eq!(Head::read(&bytes), Some(head));
        assert_eq!(Head::read(&bytes[1..]), None);
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_are_a_head_that_is_written_as_it_was_read(bytes: [u8; HEAD_BYTES]) {
            let mut written = Vec::new();
            Head::read(&bytes).unwrap().write(&mut written);
            proptest::prop_assert_eq!(&written[..], &bytes[..]);
        }
    }
}
