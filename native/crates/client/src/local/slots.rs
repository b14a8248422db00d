//! Tensors beside the stream: ours in slots that we lend, the server's in slots that we view.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use kushi_core::Buffer;
use kushi_oip::{Kind, Release, Slot as SlotMessage, SlotRange};
use kushi_shm::{LentSlot, PoolLimits, SlotPool, View};
use smallvec::SmallVec;

use super::outgoing::OutgoingFrames;
use crate::call::InferCall;
use crate::decode::Violation;

/// From here on a tensor travels in a slot: one copy instead of four, for two small system calls' worth of
/// bookkeeping at either end.
pub const SLOT_BYTES: usize = 64 << 10;

/// Kept for the next calls while no call and no array uses it.
const KEPT: PoolLimits = PoolLimits { kept_bytes: 256 << 20, kept_slots: 128 };

/// A server takes 1024 and 4 GiB of one connection, and counts what was forgotten while it still computes with it.
const MAX_ANNOUNCED: usize = 768;
const MAX_ANNOUNCED_BYTES: usize = 3 << 30;

/// The server is not expected to have more slots under way to one client.
const MAX_VIEWS: usize = 4096;

/// The slots of one client, for all of its connections.
#[derive(Clone, Debug)]
pub struct Arena {
    pool: SlotPool,
}

impl Default for Arena {
    fn default() -> Self {
        Self { pool: SlotPool::new(KEPT) }
    }
}

/// Where the inputs of a call lie: for each its slot and range, `None` for one that travels in the frame.
pub type Placed = SmallVec<[Option<(LentSlot, SlotRange)>; 4]>;

/// The bytes of a tensor at the start of a slot, which is not lent to others before this is gone.
struct InSlot {
    slot: LentSlot,
    length: usize,
}

impl AsRef<[u8]> for InSlot {
    fn as_ref(&self) -> &[u8] {
        &(*self.slot).as_ref()[..self.length]
    }
}

impl Arena {
    /// Memory for a tensor that is written where it will be sent from; `None` when the system has no more.
    pub fn buffer(&self, length: usize) -> Option<Buffer> {
        self.take(length).map(|slot| Buffer::from_owner(InSlot { slot, length }))
    }

    pub fn take(&self, length: usize) -> Option<LentSlot> {
        self.pool.take(length).inspect_err(|error| log::debug!("no slot of {length} bytes: {error}")).ok()
    }

    /// Finds the slots in which inputs lie already, and copies other large ones into slots.
    pub fn place(&self, call: &InferCall) -> Placed {
        call.inputs.iter().map(|input| self.place_bytes(input.tensor.data.as_bytes())).collect()
    }

    fn place_bytes(&self, bytes: &[u8]) -> Option<(LentSlot, SlotRange)> {
        if bytes.len() < SLOT_BYTES {
            return None;
        }
        let length = bytes.len() as u64;
        if let Some((slot, range)) = self.pool.find(bytes.as_ptr().addr(), bytes.len()) {
            let range = SlotRange { slot: slot.id(), offset: range.start as u64, length };
            return Some((slot, range));
        }
        let slot = self.take(bytes.len()).filter(|slot| slot.write(0, bytes))?;
        let range = SlotRange { slot: slot.id(), offset: 0, length };
        Some((slot, range))
    }
}

/// Which of our slots the other end of one connection knows.
#[derive(Default)]
pub(crate) struct Announced {
    lengths: HashMap<u64, usize>,
    bytes: usize,
    /// The pool's count of dropped slots when we last looked for ours among them.
    drops: u64,
}

impl Announced {
    /// Makes sure that the other end knows the slot; false when it takes no more of them.
    pub(crate) fn announce(&mut self, arena: &Arena, slot: &LentSlot, outgoing: &mut OutgoingFrames) -> bool {
        if self.lengths.contains_key(&slot.id()) {
            return true;
        }
        self.forget_dropped(arena, outgoing);
        let (id, length) = (slot.id(), slot.len());
        if self.lengths.len() >= MAX_ANNOUNCED || self.bytes.saturating_add(length) > MAX_ANNOUNCED_BYTES {
            return false;
        }
        outgoing.announce(slot.clone());
        self.lengths.insert(id, length);
        self.bytes += length;
        true
    }

    /// Tells the server which slots are no more.
    pub(crate) fn forget_dropped(&mut self, arena: &Arena, outgoing: &mut OutgoingFrames) {
        let drops = arena.pool.drops();
        if drops == self.drops {
            return;
        }
        self.drops = drops;
        let dropped = self.lengths.extract_if(|&id, _| !arena.pool.is_alive(id));
        let slots: Vec<u64> = dropped.map(|(id, length)| (self.bytes -= length, id).1).collect();
        if !slots.is_empty() {
            outgoing.message(Kind::Forget, 0, &Release { slots });
        }
    }
}

/// The server's slots as one connection knows them.
#[derive(Default)]
pub(crate) struct Views {
    views: HashMap<u64, View>,
    released: Arc<Released>,
}

/// The slots of answers that nobody here looks at any more.
#[derive(Default)]
struct Released(Mutex<Vec<u64>>);

impl Released {
    fn push(&self, slot: u64) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(slot);
    }

    fn take(&self) -> Vec<u64> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// One answer's use of one slot, shared by its outputs.
struct Lease {
    slot: u64,
    released: Arc<Released>,
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.released.push(self.slot);
    }
}

struct Leased {
    bytes: Bytes,
    _lease: Arc<Lease>,
}

impl AsRef<[u8]> for Leased {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// The slots of one answer while it is read.
#[derive(Default)]
pub(crate) struct Leases(SmallVec<[Arc<Lease>; 2]>);

impl Views {
    pub(crate) fn add(&mut self, message: SlotMessage, descriptor: OwnedFd) -> Result<(), Violation> {
        if self.views.len() >= MAX_VIEWS {
            return Err(format!("more than {MAX_VIEWS} slots"));
        }
        let view = View::map(descriptor, message.length).map_err(|error| error.to_string())?;
        match self.views.insert(message.slot, view) {
            None => Ok(()),
            Some(_) => Err(format!("slot {} announced twice", message.slot)),
        }
    }

    /// Views of answers keep their memory.
    pub(crate) fn forget(&mut self, slots: &[u64]) {
        for slot in slots {
            self.views.remove(slot);
        }
    }

    pub(crate) fn lease(&self, leases: &mut Leases, range: SlotRange) -> Option<Buffer> {
        let bytes = self.views.get(&range.slot)?.range(range.offset, range.length)?;
        let lease = leases.0.iter().find(|lease| lease.slot == range.slot).cloned().unwrap_or_else(|| {
            let lease = Arc::new(Lease { slot: range.slot, released: self.released.clone() });
            leases.0.push(lease.clone());
            lease
        });
        Some(Buffer::from_owner(Leased { bytes, _lease: lease }))
    }

    /// Tells the server which slots it may use again.
    pub(crate) fn release(&self, outgoing: &mut OutgoingFrames) {
        let slots = self.released.take();
        if !slots.is_empty() {
            outgoing.message(Kind::Release, 0, &Release { slots });
        }
    }
}
