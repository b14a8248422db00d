//! Responses one by one, as many as their asker has room for.

use crate::request::ordering::Numbered;
use crate::request::outbox::Outbox;
use crate::{Answered, Batch, Credit, Mail, Response};

use super::Sends;

/// What became of a response that was sent.
#[derive(Debug)]
#[non_exhaustive]
#[allow(clippy::large_enum_variant, reason = "a response comes back as it went, without an allocation")]
#[must_use = "a response that finds no room has not been sent"]
pub enum Sent {
    Accepted,
    /// Its asker has not taken those before it. It comes back: to be sent again once there is room, see
    /// [`Batch::when_room`].
    Full(Box<Response>),
    /// Nobody waits for it any more: further responses to this request are wasted work.
    Abandoned,
}

impl Batch {
    /// Sends one of any number of responses, as far as the request's [`Window`](crate::Window) has room for it. The
    /// last one may go with the end, by [`Batch::scatter`], and needs no room.
    pub fn send(&mut self, index: usize, response: Response) -> Sent {
        let Some(entry) = &self.seats[index].entry else {
            return Sent::Abandoned;
        };
        let reply = &entry.request.reply;
        if reply.claim.abandoned().is_some() {
            return Sent::Abandoned;
        }
        let credit = Credit::take(&reply.claim, response.byte_size());
        if credit.is_none() {
            return Sent::Full(Box::new(response));
        }
        if let Some(span) = entry.request.context.span() {
            span.respond(&self.ledger.spec, &response);
        }
        if let Some(observer) = &self.ledger.observer {
            let now = self.ledger.clock.now();
            let Sends { count, last } = self.sends(index);
            let answer = Answered {
                response: Some(&response),
                end: None,
                before: count,
                total: now.saturating_duration_since(entry.request.arrived),
                took: now.saturating_duration_since(last),
                now,
            };
            observer.hear(&self.ledger.spec, &answer);
            self.sends.resize(self.seats.len(), Sends { count: 0, last: self.started });
            self.sends[index] = Sends { count: count + 1, last: now };
        }
        let mail = Mail { key: reply.key, response: Some(response), end: None, credit };
        let mailbox = reply.mailbox.clone();
        match &self.ledger.ordering {
            Some(ordering) => {
                ordering.pass(self.sequence, [Numbered { number: entry.number, mailbox, mail }]);
            }
            None => Outbox::of(mailbox, mail).deliver(),
        }
        self.responded = true;
        Sent::Accepted
    }

    /// Calls `wake` once nobody waits for the answer to this request any more: at once where that is so already. As
    /// [`Batch::when_room`] does, but beside those that wait.
    pub fn when_abandoned(&self, index: usize, wake: impl FnOnce() + Send + 'static) {
        match &self.seats[index].entry {
            Some(entry) => entry.request.reply.claim.when_abandoned(Box::new(wake)),
            None => wake(),
        }
    }

    /// Calls `wake` once [`Batch::send`] will not answer [`Sent::Full`] for this request: when an answer has been taken,
    /// or the asker has gone; at once where that is so already. It takes the place of one that waits. One that waits
    /// when the request ends may be called later, or never.
    ///
    /// `wake` runs on the thread of whoever takes the answer or goes, inside what that thread is doing: it may push to
    /// a queue or notify a thread, and nothing else. An engine that waits for room does so outside of
    /// [`Engine::execute`](crate::Engine::execute), or never runs inline: the asker may be on the very thread that
    /// executes.
    pub fn when_room(&self, index: usize, wake: impl FnOnce() + Send + 'static) {
        match &self.seats[index].entry {
            Some(entry) => entry.request.reply.claim.when_room(Box::new(wake)),
            None => wake(),
        }
    }
}
