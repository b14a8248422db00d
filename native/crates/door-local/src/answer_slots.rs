//! Large outputs in memory that the client shares, until it has no more use for them.
//!
//! Each connection has slots of its own: what one client does with its memory is no concern of another.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use kushi_net::{Budget, Reservation};
use kushi_oip::{Kind, Release};
use kushi_shm::{LentSlot, PoolLimits, SlotPool};

use crate::outgoing::OutgoingFrames;

/// Smaller outputs travel in the frame: that costs less than telling of a slot and giving it back.
pub(super) const SMALLEST_BYTES: usize = 64 << 10;
/// With the client at one time; a file descriptor each.
const MOST_SLOTS: usize = 256;
const MOST_BYTES: usize = 1 << 30;
/// Kept for the answers to come.
const KEPT: PoolLimits = PoolLimits { kept_bytes: 128 << 20, kept_slots: 32 };

pub(super) struct AnswerSlots {
    pool: SlotPool,
    /// With the client, by id.
    lent: HashMap<u64, LentSlot>,
    /// What they hold.
    counted: Reservation,
    /// What the client has mapped.
    announced: HashSet<u64>,
    /// Of the pool, when the client last heard of them.
    drops: u64,
}

impl AnswerSlots {
    pub(super) fn new(budget: &Arc<Budget>) -> Self {
        Self {
            pool: SlotPool::new(KEPT),
            lent: HashMap::new(),
            counted: budget.open(),
            announced: HashSet::new(),
            drops: 0,
        }
    }

    /// A slot for an output of this length. `None`: it has to travel in the frame.
    pub(super) fn take(&mut self, length: usize) -> Option<LentSlot> {
        let lent_bytes = self.counted.bytes();
        if length < SMALLEST_BYTES
            || self.lent.len() >= MOST_SLOTS
            || lent_bytes + length > MOST_BYTES
            || !self.counted.has_room(length)
        {
            return None;
        }
        let slot = match self.pool.take(length) {
            Ok(slot) => slot,
            Err(error) => {
                log::debug!("no slot for an output of {length} bytes: {error}");
                return None;
            }
        };
        self.counted.owe(slot.len());
        self.lent.insert(slot.id(), slot.clone());
        Some(slot)
    }

    /// Tells the client of a slot that it does not know.
    pub(super) fn announce(&mut self, slot: &LentSlot, outgoing: &mut OutgoingFrames) {
        if self.announced.insert(slot.id()) {
            outgoing.announce(slot);
        }
    }

    /// The client has dropped its views of these.
    pub(super) fn release(&mut self, slots: &[u64], outgoing: &mut OutgoingFrames) {
        for slot in slots {
            if let Some(slot) = self.lent.remove(slot) {
                self.counted.settle(self.counted.bytes() - slot.len());
            }
        }
        if self.drops != self.pool.drops() {
            self.drops = self.pool.drops();
            let pool = &self.pool;
            let slots: Vec<u64> = self.announced.extract_if(|&id| !pool.is_alive(id)).collect();
            outgoing.message(Kind::Forget, 0, &Release { slots });
        }
    }
}
