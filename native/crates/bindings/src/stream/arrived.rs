//! What has come of a stream and was not taken: no more than the window of its request.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex};
use std::time::Instant;

use kushi_client::Streamed;
use kushi_core::{Mail, Mailbox};

use crate::arrivals::{Completer, Outcome};
use crate::locks::lock;

pub(crate) enum ArrivedAnswer {
    /// Of the core.
    Mail(Mail),
    /// Of a client.
    Streamed(Streamed),
}

#[derive(Default)]
pub(crate) struct Arrived {
    answers: Mutex<ArrivedAnswers>,
    changed: Condvar,
}

#[derive(Default)]
struct ArrivedAnswers {
    queue: VecDeque<ArrivedAnswer>,
    is_over: bool,
    /// What an event loop waits for.
    waker: Option<Completer>,
}

impl ArrivedAnswer {
    fn is_end(&self) -> bool {
        match self {
            Self::Mail(mail) => mail.end.is_some(),
            Self::Streamed(streamed) => matches!(streamed, Streamed::End(_)),
        }
    }
}

impl Mailbox for Arrived {
    fn deliver(&self, mail: Vec<Mail>) {
        self.push(mail.into_iter().map(ArrivedAnswer::Mail));
    }
}

impl Arrived {
    /// From any thread. What comes behind the end, or when nobody waits any more, goes.
    pub(crate) fn push(&self, come: impl IntoIterator<Item = ArrivedAnswer>) {
        let mut unwanted = Vec::new();
        let mut answers = lock(&self.answers);
        if answers.is_over {
            unwanted.extend(come);
        } else {
            answers.queue.extend(come);
        }
        let waker = answers.waker.take();
        drop(answers);
        self.changed.notify_all();
        ring(waker);
    }

    pub(super) fn pop(&self) -> Option<ArrivedAnswer> {
        let mut answers = lock(&self.answers);
        let answer = answers.queue.pop_front()?;
        answers.is_over = answers.is_over || answer.is_end();
        Some(answer)
    }

    pub(super) fn is_over(&self) -> bool {
        lock(&self.answers).is_over
    }

    /// Until something comes, or until then.
    pub(super) fn wait(&self, until: Instant) {
        let answers = lock(&self.answers);
        let patience = until.saturating_duration_since(Instant::now());
        let nothing = |answers: &mut ArrivedAnswers| answers.queue.is_empty() && !answers.is_over;
        // Whoever waited looks again, whatever came.
        drop(self.changed.wait_timeout_while(answers, patience, nothing));
    }

    /// Tells an event loop as soon as something is there. The completer comes back where another one is waited with.
    pub(super) fn wake(&self, waker: Completer) -> Result<(), Completer> {
        let mut answers = lock(&self.answers);
        if answers.waker.is_some() {
            return Err(waker);
        }
        if answers.queue.is_empty() && !answers.is_over {
            answers.waker = Some(waker);
        } else {
            drop(answers);
            ring(Some(waker));
        }
        Ok(())
    }

    /// Whoever waits looks again.
    pub(super) fn ring(&self) {
        let waker = lock(&self.answers).waker.take();
        ring(waker);
    }

    /// Nobody takes what is left.
    pub(super) fn close(&self) {
        let mut answers = lock(&self.answers);
        answers.is_over = true;
        let (left, waker) = (std::mem::take(&mut answers.queue), answers.waker.take());
        drop(answers);
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
