//! The outputs that a request asks for, and how they come.

use std::borrow::Cow;

use kushi_shm::RegionRange;

pub(crate) struct WantedOutput<'a> {
    pub name: Cow<'a, str>,
    pub way: Way,
    /// How many of its classes are wanted in its place; 0: the output as it is.
    pub classes: usize,
}

/// How an output comes to its client.
pub(crate) enum Way {
    Json,
    Binary,
    Region(RegionRange),
}

impl Way {
    pub(crate) fn region(&self) -> Option<&RegionRange> {
        match self {
            Self::Region(range) => Some(range),
            Self::Json | Self::Binary => None,
        }
    }
}
