//! An asker that takes its answers one by one, when a test says so.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, mpsc};

use kushi_core::{Batch, Mail, Mailbox, Response, Sent};

use crate::{PATIENCE, lock, wait_until};

#[derive(Default)]
pub struct SlowReader {
    untaken: Mutex<VecDeque<Mail>>,
    arrived: Condvar,
}

impl SlowReader {
    /// Waits for the next mail and takes it.
    pub fn take(&self) -> Mail {
        let mut untaken = wait_until(&self.untaken, &self.arrived, "mail", |untaken| !untaken.is_empty());
        untaken.pop_front().unwrap_or_else(|| unreachable!("there was some under this lock"))
    }

    /// How much has come and has not been taken.
    pub fn untaken(&self) -> usize {
        lock(&self.untaken).len()
    }

    /// What it has not taken goes unread.
    pub fn leave(&self) {
        let left = std::mem::take(&mut *lock(&self.untaken));
        drop(left);
    }
}

impl Mailbox for SlowReader {
    fn deliver(&self, mail: Vec<Mail>) {
        lock(&self.untaken).extend(mail);
        self.arrived.notify_all();
    }
}

/// Sends a response, when there is room for it; false where nobody waits for it any more. For engines' threads that have
/// nothing else to do.
pub fn send_when_room(batch: &mut Batch, index: usize, mut response: Response) -> bool {
    loop {
        response = match batch.send(index, response) {
            Sent::Full(response) => *response,
            sent => return matches!(sent, Sent::Accepted),
        };
        let (wake, woken) = mpsc::channel();
        batch.when_room(index, move || {
            let _ = wake.send(());
        });
        assert!(woken.recv_timeout(PATIENCE).is_ok(), "waited in vain for room");
    }
}
