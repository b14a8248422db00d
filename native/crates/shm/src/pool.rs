//! Slots used again and again: making one costs a system call per page, and announcing it another.
//!
//! What is lent belongs to its holders. What comes back is kept for the next one, up to a limit; what
//! is beyond it is dropped for good, and whoever announced it finds out by asking.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::ops::{Deref, Range};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use crate::Slot;

/// Lengths below this are one class.
const SMALLEST_CLASS_BYTES: usize = 64 << 10;
/// Classes between a power of two and the next: a slot is at most a quarter larger than asked for.
const CLASSES_PER_DOUBLING: usize = 4;

/// What is kept while nobody uses it.
#[derive(Clone, Copy, Debug)]
pub struct PoolLimits {
    pub kept_bytes: usize,
    pub kept_slots: usize,
}

/// Clones are the same pool. May be used by any thread.
#[derive(Clone, Debug)]
pub struct SlotPool(Arc<Pool>);

#[derive(Debug)]
struct Pool {
    limits: PoolLimits,
    slots: Mutex<Slots>,
    drops: AtomicU64,
}

#[derive(Debug, Default)]
struct Slots {
    /// The longest unused first.
    kept: VecDeque<Slot>,
    kept_bytes: usize,
    /// What is lent, by address.
    lent: BTreeMap<usize, Weak<Lent>>,
    /// Everything that is kept or lent.
    alive: BTreeSet<u64>,
}

/// The right to use a slot, shared by all who need it: it goes back to the pool when the last clone
/// drops.
#[derive(Clone, Debug)]
pub struct LentSlot(Arc<Lent>);

#[derive(Debug)]
struct Lent {
    slot: Slot,
    pool: Arc<Pool>,
}

impl SlotPool {
    pub fn new(limits: PoolLimits) -> Self {
        Self(Arc::new(Pool { limits, slots: Mutex::default(), drops: AtomicU64::new(0) }))
    }

    /// A slot of at least `length` bytes. It may hold what was in it before.
    pub fn take(&self, length: usize) -> io::Result<LentSlot> {
        let class = class(length).ok_or(io::ErrorKind::OutOfMemory)?;
        let found = self.0.slots().take_kept(class);
        let slot = match found {
            Some(slot) => slot,
            None => Slot::new(class)?,
        };
        let (id, address) = (slot.id(), slot.address());
        let lent = Arc::new(Lent { slot, pool: self.0.clone() });
        let mut slots = self.0.slots();
        slots.alive.insert(id);
        slots.lent.insert(address, Arc::downgrade(&lent));
        Ok(LentSlot(lent))
    }

    /// The lent slot in which these bytes lie as a whole, and where in it.
    pub fn find(&self, address: usize, length: usize) -> Option<(LentSlot, Range<usize>)> {
        let slots = self.0.slots();
        let (&start, lent) = slots.lent.range(..=address).next_back()?;
        let lent = lent.upgrade();
        // A slot that is found and then dropped goes back to the pool, which needs the lock.
        drop(slots);
        let lent = lent?;
        let offset = address - start;
        let end = offset.checked_add(length).filter(|&end| end <= lent.slot.len())?;
        Some((LentSlot(lent), offset..end))
    }

    /// How many slots have been dropped for good so far: when it has not changed, nobody needs to ask
    /// [`SlotPool::is_alive`].
    pub fn drops(&self) -> u64 {
        self.0.drops.load(Ordering::Acquire)
    }

    /// False once the slot of this id has been dropped for good.
    pub fn is_alive(&self, id: u64) -> bool {
        self.0.slots().alive.contains(&id)
    }
}

impl Pool {
    fn slots(&self) -> MutexGuard<'_, Slots> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Slots {
    /// The most recently used that fits without wasting more than half.
    fn take_kept(&mut self, class: usize) -> Option<Slot> {
        let fits = |slot: &Slot| (class..=2 * class).contains(&slot.len());
        let index = self.kept.iter().rposition(fits)?;
        let slot = self.kept.remove(index)?;
        self.kept_bytes -= slot.len();
        Some(slot)
    }

    /// Answers what is beyond the limits.
    fn keep(&mut self, slot: Slot, limits: &PoolLimits) -> Vec<Slot> {
        self.kept_bytes += slot.len();
        self.kept.push_back(slot);
        let mut dropped = Vec::new();
        while self.kept.len() > limits.kept_slots || self.kept_bytes > limits.kept_bytes {
            let Some(oldest) = self.kept.pop_front() else { break };
            self.kept_bytes -= oldest.len();
            self.alive.remove(&oldest.id());
            dropped.push(oldest);
        }
        dropped
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        let mut slots = self.pool.slots();
        slots.lent.remove(&self.slot.address());
        let dropped = slots.keep(self.slot.clone(), &self.pool.limits);
        drop(slots);
        if !dropped.is_empty() {
            self.pool.drops.fetch_add(dropped.len() as u64, Ordering::Release);
        }
    }
}

impl Deref for LentSlot {
    type Target = Slot;

    fn deref(&self) -> &Slot {
        &self.0.slot
    }
}

/// The length of the slots that serve `length` bytes.
fn class(length: usize) -> Option<usize> {
    if length <= SMALLEST_CLASS_BYTES {
        return Some(SMALLEST_CLASS_BYTES);
    }
    let step = length.checked_next_power_of_two()? / (2 * CLASSES_PER_DOUBLING);
    length.checked_next_multiple_of(step.max(rustix::param::page_size()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool(kept_bytes: usize, kept_slots: usize) -> SlotPool {
        SlotPool::new(PoolLimits { kept_bytes, kept_slots })
    }

    #[test]
    fn a_slot_is_lent_again_once_its_last_holder_has_gone() {
        let pool = pool(1 << 30, 8);
        let first = pool.take(600_000).unwrap();
        let (id, holder) = (first.id(), first.clone());
        drop(first);
        assert_ne!(pool.take(600_000).unwrap().id(), id, "it still has a holder");
        drop(holder);
        let again = [pool.take(590_000).unwrap(), pool.take(590_000).unwrap()];
        assert!(again.iter().any(|slot| slot.id() == id));
        assert_eq!(pool.drops(), 0);
    }

    #[test]
    fn what_is_kept_is_bounded_and_what_is_dropped_is_told() {
        for pool in [pool(1 << 30, 3), pool(3 << 20, 100)] {
            let lent: Vec<LentSlot> = (0..10).map(|_| pool.take(1 << 20).unwrap()).collect();
            let ids: Vec<u64> = lent.iter().map(|slot| slot.id()).collect();
            assert!(ids.iter().all(|&id| pool.is_alive(id)));
            drop(lent);
            assert_eq!(pool.drops(), 7);
            assert_eq!(ids.iter().filter(|&&id| pool.is_alive(id)).count(), 3);
            let slots = pool.0.slots();
            assert_eq!((slots.kept.len(), slots.kept_bytes), (3, 3 << 20));
        }
    }

    #[test]
    fn finds_the_slot_in_which_an_array_lies() {
        let pool = pool(1 << 30, 8);
        let slots = [pool.take(1 << 16).unwrap(), pool.take(1 << 20).unwrap(), pool.take(1 << 17).unwrap()];
        for slot in &slots {
            let (start, length) = (slot.address(), slot.len());
            for (offset, bytes) in [(0, length), (0, 0), (17, 5), (length - 1, 1), (length, 0)] {
                // The byte behind a slot may be the first of the next.
                if let Some((found, range)) = pool.find(start + offset, bytes)
                    && found.id() == slot.id()
                {
                    assert_eq!(range, offset..offset + bytes);
                } else {
                    assert_eq!(offset, length);
                }
            }
            assert!(pool.find(start, length + 1).is_none());
            assert!(pool.find(start + 1, usize::MAX).is_none());
        }
        let (start, length) = (slots[0].address(), slots[0].len());
        drop(slots);
        assert!(pool.find(start, length).is_none(), "nobody holds it any more");
    }

    #[test]
    fn classes_waste_little_and_never_fall_short() {
        for length in [0, 1, 65_536, 65_537, 100_000, 600_000, 1 << 20, (1 << 20) + 1, 6_000_000, 1 << 40] {
            let class = class(length).unwrap();
            assert!(class >= length && class.is_multiple_of(rustix::param::page_size()), "{length}");
            assert!(class <= length + length / 4 || class == SMALLEST_CLASS_BYTES, "{length} {class}");
        }
        assert_eq!(class(usize::MAX), None);
    }
}
