//! The instances of one version: one that cannot execute leaves its batches to the others, as long as one of them can.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use crate::worker::Shared;

static GROUPS: Mutex<Option<HashMap<u64, Weak<Group>>>> = Mutex::new(None);

#[derive(Default)]
pub(crate) struct Group {
    /// Those that are ready, and those of which it is not known yet.
    able: AtomicUsize,
    members: Mutex<Vec<Weak<Shared>>>,
}

impl Group {
    pub(crate) fn of(number: u64) -> Arc<Self> {
        let mut groups = GROUPS.lock().unwrap_or_else(PoisonError::into_inner);
        let groups = groups.get_or_insert_default();
        groups.retain(|_, group| group.strong_count() > 0);
        let known = groups.get(&number).and_then(Weak::upgrade);
        known.unwrap_or_else(|| {
            let group = Arc::default();
            groups.insert(number, Arc::downgrade(&group));
            group
        })
    }

    pub(crate) fn join(&self, member: &Arc<Shared>) {
        self.able.fetch_add(1, Ordering::SeqCst);
        self.members.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::downgrade(member));
    }

    pub(crate) fn can_execute(&self) -> bool {
        self.able.load(Ordering::SeqCst) > 0
    }

    pub(crate) fn can_execute_again(&self) {
        self.able.fetch_add(1, Ordering::SeqCst);
    }

    /// Where it was the last one, nobody waits with anything for the others. Not under the lock of a member.
    pub(crate) fn can_execute_no_more(&self) {
        if self.able.fetch_sub(1, Ordering::SeqCst) > 1 {
            return;
        }
        let members = self.members.lock().unwrap_or_else(PoisonError::into_inner).clone();
        for member in members.iter().filter_map(Weak::upgrade) {
            member.unpark();
        }
    }
}
