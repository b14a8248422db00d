//! Where a thread waits for the answer to the one call that it has made.
//!
//! Serves one call after the other. Answers are taken on the thread that delivers them, so that an engine with many of
//! them comes to its end while the asker sleeps, or runs that engine itself.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use kushi_core::{End, Mail, Mailbox, OnlyResponse, Response};

#[derive(Default)]
pub struct OneCall {
    letters: Mutex<Letters>,
    ended: Condvar,
}

#[derive(Default)]
struct Letters {
    /// Of the call that is being waited for; answers to earlier ones are thrown away.
    key: u64,
    only: OnlyResponse<Response>,
    end: Option<End>,
}

impl OneCall {
    /// From now on the answer to another call is waited for, or to none.
    pub fn next_key(&self) -> u64 {
        let mut letters = self.letters();
        let key = letters.key + 1;
        let late = std::mem::replace(&mut *letters, Letters { key, ..Letters::default() });
        drop(letters);
        drop(late);
        key
    }

    pub fn has_end(&self) -> bool {
        self.letters().end.is_some()
    }

    /// Waits for the end of the call, until `until` at most.
    pub fn wait(&self, until: Instant) -> bool {
        let mut letters = self.letters();
        loop {
            if letters.end.is_some() {
                return true;
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            (letters, _) = self.ended.wait_timeout(letters, left).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// What has come, once the call has ended.
    pub fn take(&self) -> Option<(OnlyResponse<Response>, End)> {
        let mut letters = self.letters();
        let end = letters.end.take()?;
        Some((std::mem::take(&mut letters.only), end))
    }

    fn letters(&self) -> MutexGuard<'_, Letters> {
        self.letters.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Mailbox for OneCall {
    fn deliver(&self, mail: Vec<Mail>) {
        // Dropped when the lock is free again.
        let mut unwanted = Vec::new();
        let mut letters = self.letters();
        for mail in mail {
            if mail.key != letters.key {
                unwanted.push(mail);
                continue;
            }
            let Mail { key, response, end, credit } = mail;
            let response = response.and_then(|response| letters.only.put(response));
            if response.is_some() || credit.is_some() {
                unwanted.push(Mail { key, response, end: None, credit });
            }
            if end.is_some() {
                letters.end = end;
                self.ended.notify_one();
            }
        }
        drop(letters);
    }
}
