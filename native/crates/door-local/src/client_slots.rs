//! The slots of a client: its memory, seen from here.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use kushi_core::Error;
use kushi_oip::SlotRange;
use kushi_shm::View;

use crate::Violation;

const MOST_SLOTS: u64 = 1024;
const MOST_BYTES: u64 = 4 << 30;

#[derive(Default)]
pub(super) struct ClientSlots {
    views: HashMap<u64, View>,
    mapped: Arc<Mapped>,
}

/// What is mapped, by slots that the client has dropped as well while requests are still in them.
#[derive(Default)]
struct Mapped {
    slots: AtomicU64,
    bytes: AtomicU64,
}

/// One mapping, counted.
struct CountedSlot {
    bytes: u64,
    mapped: Arc<Mapped>,
}

impl Drop for CountedSlot {
    fn drop(&mut self) {
        self.mapped.slots.fetch_sub(1, Ordering::Relaxed);
        self.mapped.bytes.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// Why a range cannot be read.
pub(super) enum RangeFault {
    Violation(Violation),
    /// Of this request alone.
    Request(Error),
}

impl ClientSlots {
    pub(super) fn announce(
        &mut self,
        slot: kushi_oip::Slot,
        descriptor: Option<OwnedFd>,
    ) -> Result<(), Violation> {
        let kushi_oip::Slot { slot: id, length } = slot;
        let Some(descriptor) = descriptor else {
            return Err(Violation(format!("slot {id} without a file descriptor")));
        };
        if self.views.contains_key(&id) {
            return Err(Violation(format!("slot {id} twice")));
        }
        let slots = 1 + self.mapped.slots.load(Ordering::Relaxed);
        let bytes = self.mapped.bytes.load(Ordering::Relaxed).saturating_add(length);
        if slots > MOST_SLOTS || bytes > MOST_BYTES {
            return Err(Violation(format!(
                "{slots} slots of {bytes} bytes, at most {MOST_SLOTS} of {MOST_BYTES} are allowed"
            )));
        }
        let view = View::map_read_only(descriptor, length)
            .map_err(|error| Violation(format!("slot {id} that cannot be used: {error}")))?;
        self.mapped.slots.fetch_add(1, Ordering::Relaxed);
        self.mapped.bytes.fetch_add(length, Ordering::Relaxed);
        let counted = CountedSlot { bytes: length, mapped: self.mapped.clone() };
        self.views.insert(id, view.guarded(counted));
        Ok(())
    }

    pub(super) fn range(&self, input: &str, range: SlotRange) -> Result<Bytes, RangeFault> {
        let SlotRange { slot, offset, length } = range;
        let Some(view) = self.views.get(&slot) else {
            let text =
                format!("input '{input}' lies in slot {slot}, which was not announced or is forgotten");
            return Err(RangeFault::Request(Error::invalid(text)));
        };
        view.range(offset, length).ok_or_else(|| {
            let have = view.len();
            RangeFault::Violation(Violation(format!(
                "an input in {length} bytes at {offset} of slot {slot}, which has {have} bytes"
            )))
        })
    }

    pub(super) fn forget(&mut self, slots: &[u64]) {
        for slot in slots {
            self.views.remove(slot);
        }
    }
}
