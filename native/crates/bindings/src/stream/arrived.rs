//! What has come of a stream and was not taken: no more than the window of its request.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex};
use std::time::Instant;

use kushi_client::Streamed;
use kushi_core::{Mail, Mailbox};

use crate::arrivals::{Completer, Outcome};
use crate::locks::lock;

pub(crate) enum Letter {
    /// Of the core.
    Mail(Mail),
    /// Of a client.
    Streamed(Streamed),
}

#[derive(Default)]
pub(crate) struct Arrived {
    letters: Mutex<Letters>,
    changed: Condvar,
}

#[derive(Default)]
struct Letters {
    queue: VecDeque<Letter>,
    is_over: bool,
    /// What an event loop waits for.
    waker: Option<Completer>,
}

impl Letter {
    fn is_end(&self) -> bool {
        match self {
            Self::Mail(mail) => mail.end.is_some(),
            Self::Streamed(streamed) => matches!(streamed, Streamed::End(_)),
        }
    }
}

impl Mailbox for Arrived {
    fn deliver(&self, mail: Vec<Mail>) {
        self.push(mail.into_iter().map(Letter::Mail));
    }
}

impl Arrived {
    /// From any thread. What comes behind the end, or when nobody waits any more, goes.
    pub(crate) fn push(&self, come: impl IntoIterator<Item = Letter>) {
        let mut unwanted = Vec::new();
        let mut letters = lock(&self.letters);
        if letters.is_over {
            unwanted.extend(come);
        } else {
            letters.queue.extend(come);
        }
        let waker = letters.waker.take();
        drop(letters);
        self.changed.notify_all();
        ring(waker);
    }

    pub(super) fn pop(&self) -> Option<Letter> {
        let mut letters = lock(&self.letters);
        let letter = letters.queue.pop_front()?;
        letters.is_over = letters.is_over || letter.is_end();
        Some(letter)
    }

    pub(super) fn is_over(&self) -> bool {
        lock(&self.letters).is_over
    }

    /// Until something comes, or until then.
    pub(super) fn wait(&self, until: Instant) {
        let letters = lock(&self.letters);
        let patience = until.saturating_duration_since(Instant::now());
        let nothing = |letters: &mut Letters| letters.queue.is_empty() && !letters.is_over;
        // Whoever waited looks again, whatever came.
        drop(self.changed.wait_timeout_while(letters, patience, nothing));
    }

    /// Tells an event loop as soon as something is there. The completer comes back where another one is waited with.
    pub(super) fn wake(&self, waker: Completer) -> Result<(), Completer> {
        let mut letters = lock(&self.letters);
        if letters.waker.is_some() {
            return Err(waker);
        }
        if letters.queue.is_empty() && !letters.is_over {
            letters.waker = Some(waker);
        } else {
            drop(letters);
            ring(Some(waker));
        }
        Ok(())
    }

    /// Whoever waits looks again.
    pub(super) fn ring(&self) {
        let waker = lock(&self.letters).waker.take();
        ring(waker);
    }

    /// Nobody takes what is left.
    pub(super) fn close(&self) {
        let mut letters = lock(&self.letters);
        letters.is_over = true;
        let (left, waker) = (std::mem::take(&mut letters.queue), letters.waker.take());
        drop(letters);
        // Their room, under no lock.
        drop(left);
        self.changed.notify_all();
        ring(waker);
    }
}

fn ring(waker: Option<Completer>) {
    if let Some(waker) = waker {
        waker.complete(Outcome::Come);
    }
}
