//! What the engine of tokens does for one text: asked once, and told where nobody wants it any more.

use std::sync::Arc;
use std::time::Instant;

use kushi_core::{Admission, Bound, Context, Error, Reply, Request, Runner, Ticket};

use crate::counts::CountedText;
use crate::exchange;
use crate::mail::AnswerMail;
use crate::sampling::MOST_SEQUENCES;

/// Whose mail nobody reads.
const NOBODY: u64 = u64::MAX;

/// Dropping it cancels what it has asked.
pub(crate) struct Tokens {
    engine: Arc<Runner>,
    mailbox: Arc<AnswerMail>,
    key: u64,
    /// `None` once it has ended.
    ticket: Option<Ticket>,
    counted: Option<CountedText>,
}

/// That of a text, by the key of its request.
pub(crate) fn key_of(request: u64, number: usize) -> u64 {
    request * MOST_SEQUENCES + number as u64
}

/// The key of the request, and which of its texts it is.
pub(crate) fn place_of(key: u64) -> (u64, usize) {
    (key / MOST_SEQUENCES, (key % MOST_SEQUENCES) as usize)
}

impl Tokens {
    pub(crate) fn begin(
        engine: &Arc<Runner>,
        mailbox: &Arc<AnswerMail>,
        key: u64,
        context: Context,
        asked: Bound,
        counted: CountedText,
    ) -> Result<Self, Error> {
        let (engine, mailbox, counted) = (engine.clone(), mailbox.clone(), Some(counted));
        let mut tokens = Self { engine, mailbox, key, ticket: None, counted };
        tokens.ticket = Some(tokens.submit(key, context, asked)?);
        Ok(tokens)
    }

    fn submit(&self, key: u64, context: Context, asked: Bound) -> Result<Ticket, Error> {
        let reply = Reply::new(self.mailbox.clone(), key);
        // by which the engine knows it
        let id = self.key.to_string();
        let request = Request { id, context, ..Request::new(asked, self.engine.now(), reply) };
        let (ticket, admission) = self.engine.submit(request).map_err(|(error, _)| error)?;
        if let Admission::Lead(lease) = admission {
            lease.run_afterwards();
        }
        Ok(ticket)
    }

    /// So many have come.
    pub(crate) fn count(&mut self, tokens: usize) {
        if let Some(counted) = &mut self.counted {
            counted.add(tokens, Instant::now());
        }
    }

    pub(crate) fn have_ended(&mut self) {
        self.ticket = None;
        self.counted = None;
    }

    /// Its process asks nobody whether it is waited for, at every step: it is told.
    pub(crate) fn cancel(&mut self) {
        self.counted = None;
        let Some(ticket) = self.ticket.take() else { return };
        if ticket.cancel() {
            // where it cannot be told, it hears so when it sends what nobody takes
            drop(self.submit(NOBODY, Context::default(), exchange::cancellation()));
        }
    }
}

impl Drop for Tokens {
    fn drop(&mut self) {
        self.cancel();
    }
}
