//! Mail on its way out, sorted by mailbox, so that each is called once for a whole batch.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use smallvec::{SmallVec, smallvec};

use crate::{Mail, Mailbox};

#[derive(Default)]
pub(crate) struct Outbox(SmallVec<[Bundle; 2]>);

type Bundle = (Arc<dyn Mailbox>, Vec<Mail>);

impl Outbox {
    pub(crate) fn of(mailbox: Arc<dyn Mailbox>, mail: Mail) -> Self {
        Self(smallvec![(mailbox, vec![mail])])
    }

    pub(crate) fn add(&mut self, mailbox: &Arc<dyn Mailbox>, mail: Mail) {
        match self.0.iter_mut().find(|(known, _)| Arc::ptr_eq(known, mailbox)) {
            Some((_, waiting)) => waiting.push(mail),
            None => self.0.push((mailbox.clone(), vec![mail])),
        }
    }

    pub(crate) fn append(&mut self, other: Self) {
        if self.is_empty() {
            *self = other;
            return;
        }
        for (mailbox, mail) in other.0 {
            for mail in mail {
                self.add(&mailbox, mail);
            }
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// A mailbox that panics loses its own mail and nobody else's.
    pub(crate) fn deliver(self) {
        for (mailbox, mail) in self.0 {
            if catch_unwind(AssertUnwindSafe(|| mailbox.deliver(mail))).is_err() {
                log::error!("a mailbox panicked, and the answers in its mail are lost");
            }
        }
    }
}
