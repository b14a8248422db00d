//! What is open at the doors, for the metrics.

use std::sync::Arc;
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
    connections: [Arc<AtomicUsize>; DoorKind::ALL.len()],
    streams: [Arc<AtomicUsize>; DoorKind::ALL.len()],
}

/// Counted until it is dropped.
#[must_use = "what is dropped is not counted"]
pub struct Counted(Arc<AtomicUsize>);

impl Traffic {
    pub fn connection(&self, door: DoorKind) -> Counted {
        Counted::new(&self.connections[door as usize])
    }

    /// One that has any number of answers.
    pub fn stream(&self, door: DoorKind) -> Counted {
        Counted::new(&self.streams[door as usize])
    }

    pub(crate) fn connections(&self, door: DoorKind) -> usize {
        self.connections[door as usize].load(Ordering::Relaxed)
    }

    pub(crate) fn streams(&self, door: DoorKind) -> usize {
        self.streams[door as usize].load(Ordering::Relaxed)
    }
}

impl Counted {
    fn new(open: &Arc<AtomicUsize>) -> Self {
        open.fetch_add(1, Ordering::Relaxed);
        Self(open.clone())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
