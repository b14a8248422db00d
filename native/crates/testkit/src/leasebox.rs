//! Takes second leases as io threads would, and keeps them for a test.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex};

use kushi_core::{Drivers, Lease};

use crate::{lock, wait_until};

#[derive(Default)]
pub struct LeaseBox {
    leases: Mutex<VecDeque<Lease>>,
    offered: Condvar,
}

impl LeaseBox {
    /// Waits for an offered lease.
    pub fn lease(&self) -> Lease {
        let mut leases = wait_until(&self.leases, &self.offered, "a lease", |leases| !leases.is_empty());
        leases.pop_front().unwrap_or_else(|| unreachable!("there was one under this lock"))
    }

    pub fn is_empty(&self) -> bool {
        lock(&self.leases).is_empty()
    }
}

impl Drivers for LeaseBox {
    fn offer(&self, lease: Lease) {
        lock(&self.leases).push_back(lease);
        self.offered.notify_all();
    }
}
