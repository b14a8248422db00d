//! What is open at the doors, for the metrics.

use std::sync::atomic::{AtomicUsize, Ordering};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DoorKind {
    Http,
    Grpc,
    Local,
    Metrics,
}

impl DoorKind {
    pub(crate) const ALL: [Self; 4] = [Self::Http, Self::Grpc, Self::Local, Self::Metrics];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Grpc => "grpc",
            Self::Local => "local",
            Self::Metrics => "metrics",
        }
    }
}

#[derive(Default)]
pub struct Traffic {
    connections: [AtomicUsize; DoorKind::ALL.len()],
    streams: [AtomicUsize; DoorKind::ALL.len()],
}

/// Counted until it is dropped.
#[must_use = "what is dropped is not counted"]
pub struct Counted<'a>(&'a AtomicUsize);

impl Traffic {
    pub fn connection(&self, door: DoorKind) -> Counted<'_> {
        Counted::new(&self.connections[door as usize])
    }

    /// One that has any number of answers.
    pub fn stream(&self, door: DoorKind) -> Counted<'_> {
        Counted::new(&self.streams[door as usize])
    }

    pub(crate) fn connections(&self, door: DoorKind) -> usize {
        self.connections[door as usize].load(Ordering::Relaxed)
    }

    pub(crate) fn streams(&self, door: DoorKind) -> usize {
        self.streams[door as usize].load(Ordering::Relaxed)
    }
}

impl<'a> Counted<'a> {
    fn new(open: &'a AtomicUsize) -> Self {
        open.fetch_add(1, Ordering::Relaxed);
        Self(open)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
