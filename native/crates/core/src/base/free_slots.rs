//! Which slots of a model are free, by their indexes.

use std::num::NonZeroU64;

const BITS: usize = u64::BITS as usize;

/// A set of slots. It has no memory of its own where there are no more than 64.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FreeSlots {
    count: usize,
    first: u64,
    others: Vec<u64>,
}

impl FreeSlots {
    pub fn len(&self) -> usize {
        self.count
    }

    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    pub fn contains(&self, slot: usize) -> bool {
        self.words().nth(slot / BITS).is_some_and(|word| word & bit(slot) != 0)
    }

    /// The one with the lowest index: its memory is the warmest.
    pub fn first(&self) -> Option<usize> {
        self.iter().next()
    }

    /// In ascending order.
    pub fn iter(&self) -> impl Iterator<Item = usize> {
        self.words().enumerate().flat_map(|(index, word)| {
            let without_lowest = |rest: &NonZeroU64| NonZeroU64::new(rest.get() & (rest.get() - 1));
            let rests = std::iter::successors(NonZeroU64::new(word), without_lowest);
            rests.map(move |rest| index * BITS + rest.trailing_zeros() as usize)
        })
    }

    pub(crate) fn only(slot: usize) -> Self {
        let mut free = Self::default();
        free.insert(slot);
        free
    }

    pub(crate) fn insert(&mut self, slot: usize) {
        let word = self.word(slot);
        let is_new = *word & bit(slot) == 0;
        *word |= bit(slot);
        self.count += usize::from(is_new);
    }

    pub(crate) fn remove(&mut self, slot: usize) {
        let word = self.word(slot);
        let was_in = *word & bit(slot) != 0;
        *word &= !bit(slot);
        self.count -= usize::from(was_in);
    }

    fn words(&self) -> impl Iterator<Item = u64> {
        std::iter::once(self.first).chain(self.others.iter().copied())
    }

    fn word(&mut self, slot: usize) -> &mut u64 {
        let Some(other) = (slot / BITS).checked_sub(1) else {
            return &mut self.first;
        };
        if other >= self.others.len() {
            self.others.resize(other + 1, 0);
        }
        &mut self.others[other]
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
