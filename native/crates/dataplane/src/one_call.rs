//! Where a thread waits for the answer to the one call that it has made.
//!
//! Serves one call after the other. Answers are taken on the thread that delivers them, so that an engine with many of
//! them comes to its end while the asker sleeps, or runs that engine itself.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use kushi_core::{End, Mail, Mailbox, OnlyResponse, Response};

#[derive(Default)]
pub struct OneCall {
    call: Mutex<CallMail>,
    ended: Condvar,
}

#[derive(Default)]
struct CallMail {
    /// Of the call that is being waited for; answers to earlier ones are thrown away.
    key: u64,
    only: OnlyResponse<Response>,
    end: Option<End>,
}

impl OneCall {
    /// From now on the answer to another call is waited for, or to none.
    pub fn next_key(&self) -> u64 {
        let mut call = self.call();
        let key = call.key + 1;
        let late = std::mem::replace(&mut *call, CallMail { key, ..CallMail::default() });
        drop(call);
        drop(late);
        key
    }

    pub fn has_end(&self) -> bool {
        self.call().end.is_some()
    }

    /// Waits for the end of the call, until `until` at most.
    pub fn wait(&self, until: Instant) -> bool {
        let mut call = self.call();
        loop {
            if call.end.is_some() {
                return true;
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            (call, _) = self.ended.wait_timeout(call, left).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// What has come, once the call has ended.
    pub fn take(&self) -> Option<(OnlyResponse<Response>, End)> {
        let mut call = self.call();
        let end = call.end.take()?;
        Some((std::mem::take(&mut call.only), end))
    }

    fn call(&self) -> MutexGuard<'_, CallMail> {
        self.call.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Mailbox for OneCall {
    fn deliver(&self, mail: Vec<Mail>) {
        // Dropped when the lock is free again.
        let mut unwanted = Vec::new();
        let mut call = self.call();
        for mail in mail {
            if mail.key != call.key {
                unwanted.push(mail);
                continue;
            }
            let Mail { key, response, end, credit } = mail;
            let response = response.and_then(|response| call.only.put(response));
            if response.is_some() || credit.is_some() {
                unwanted.push(Mail { key, response, end: None, credit });
            }
            if end.is_some() {
                call.end = end;
                self.ended.notify_one();
            }
        }
        drop(call);
    }
}
