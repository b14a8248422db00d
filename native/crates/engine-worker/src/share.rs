//! How many requests a process gets before another one takes its place.

use std::hash::{BuildHasher, Hasher, RandomState};

#[derive(Default)]
pub(crate) struct Share {
    used: u64,
    /// `None`: any number.
    most: Option<u64>,
}

impl Share {
    /// About so many, 0 is any number: a tenth more or less at random, so that not all instances are away together.
    pub(crate) fn new(max_requests: u64) -> Self {
        let tenth = max_requests / 10;
        let random = RandomState::new().build_hasher().finish();
        let most = (max_requests > 0).then(|| max_requests - tenth + random % (2 * tenth + 1));
        Self { used: 0, most }
    }

    pub(crate) fn count(&mut self, requests: usize) {
        self.used += requests as u64;
    }

    pub(crate) fn is_used_up(&self) -> bool {
        self.most.is_some_and(|most| self.used >= most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_a_tenth_more_or_less() {
        let sizes: Vec<u64> = (0..200).filter_map(|_| Share::new(1000).most).collect();
        assert!(sizes.iter().all(|size| (900..=1100).contains(size)));
        assert!(sizes.iter().any(|size| *size != sizes[0]));
        assert_eq!([Share::new(0).most, Share::new(1).most], [None, Some(1)]);
    }

    #[test]
    fn a_share_is_used_up_by_its_requests() {
        let mut share = Share::new(5);
        share.count(4);
        assert!(!share.is_used_up());
        share.count(3);
        assert!(share.is_used_up());
        share = Share::new(0);
        share.count(usize::MAX);
        assert!(!share.is_used_up());
    }
}
