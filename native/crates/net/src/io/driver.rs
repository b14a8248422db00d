//! Drives the leases of one io thread, all in one task.
//!
//! It runs after all connections that are ready in this round have brought their requests, and between two batches
//! the connections have a turn. A lease survives the connection that began it.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;

use kushi_core::{Lease, Step};
use tokio::sync::Notify;

use crate::io::CountedConnection;

#[derive(Default)]
pub(super) struct Driver {
    waiting: RefCell<VecDeque<(Lease, CountedConnection)>>,
    arrived: Notify,
}

impl Driver {
    pub(super) fn add(&self, lease: Lease, counted: CountedConnection) {
        self.waiting.borrow_mut().push_back((lease, counted));
        self.arrived.notify_one();
    }

    /// Until the thread ends. A lease whose batch panics is lost, and no other.
    pub(super) async fn attend(self: Rc<Self>) {
        loop {
            self.arrived.notified().await;
            while let Some((lease, counted)) = self.next() {
                match catch_unwind(AssertUnwindSafe(|| lease.run())) {
                    Ok(Step::Again(lease)) => self.waiting.borrow_mut().push_back((lease, counted)),
                    Ok(Step::Done) => {}
                    Err(_) => log::error!("a batch panicked on an io thread"),
                }
                if self.waiting.borrow().is_empty() {
                    break;
                }
                tokio::task::yield_now().await;
            }
        }
    }

    fn next(&self) -> Option<(Lease, CountedConnection)> {
        self.waiting.borrow_mut().pop_front()
    }
}
