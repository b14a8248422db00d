//! Which slots of a model are free, by their indexes.

use std::num::NonZeroU64;

use smallvec::SmallVec;

const BITS: usize = u64::BITS as usize;

/// A set of slots. Up to 128 need no memory of their own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FreeSlots {
    words: SmallVec<[u64; 2]>,
    count: usize,
}

impl FreeSlots {
    pub fn len(&self) -> usize {
        self.count
    }

    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    pub fn contains(&self, slot: usize) -> bool {
        self.words.get(slot / BITS).is_some_and(|word| word & bit(slot) != 0)
    }

    /// The one with the lowest index: its memory is the warmest.
    pub fn first(&self) -> Option<usize> {
        self.iter().next()
    }

    /// In ascending order.
    pub fn iter(&self) -> impl Iterator<Item = usize> {
        self.words.iter().enumerate().flat_map(|(index, &word)| {
            let without_lowest = |rest: &NonZeroU64| NonZeroU64::new(rest.get() & (rest.get() - 1));
            let rests = std::iter::successors(NonZeroU64::new(word), without_lowest);
            rests.map(move |rest| index * BITS + rest.trailing_zeros() as usize)
        })
    }

    pub(crate) fn only(slot: usize) -> Self {
        [slot].into_iter().collect()
    }

    pub(crate) fn insert(&mut self, slot: usize) {
        let index = slot / BITS;
        if index >= self.words.len() {
            self.words.resize(index + 1, 0);
        }
        self.count += usize::from(!self.contains(slot));
        self.words[index] |= bit(slot);
    }

    pub(crate) fn remove(&mut self, slot: usize) {
        if self.contains(slot) {
            self.count -= 1;
            self.words[slot / BITS] &= !bit(slot);
        }
    }
}

fn bit(slot: usize) -> u64 {
    1 << (slot % BITS)
}

impl FromIterator<usize> for FreeSlots {
    fn from_iter<I: IntoIterator<Item = usize>>(slots: I) -> Self {
        let mut free = Self::default();
        slots.into_iter().for_each(|slot| free.insert(slot));
        free
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn keeps_what_is_inserted_until_it_is_removed() {
        let mut free: FreeSlots = [3, 0, 200, 64, 3].into_iter().collect();
        assert_eq!((free.len(), free.first()), (4, Some(0)));
        assert_eq!(free.iter().collect::<Vec<_>>(), [0, 3, 64, 200]);
        free.remove(0);
        free.remove(1);
        free.remove(1000);
        assert_eq!((free.len(), free.first()), (3, Some(3)));
        assert!(free.contains(64) && !free.contains(0) && !free.contains(1000));
        for slot in [3, 64, 200] {
            free.remove(slot);
        }
        assert_eq!((free.is_empty(), free.first()), (true, None));
    }
}
