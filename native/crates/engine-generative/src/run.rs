//! One request on its way: what it has asked of the engine of tokens, and what came of it.

use std::sync::Arc;

use kushi_core::{
    Admission, Batch, Error, ErrorKind, Lease, Mail, Reply, Request, Response, Runner, Sent, SlotToken,
    Ticket,
};
use kushi_text::Tokenizer;

use crate::answers::{Sequence, response, tells_of_tokens};
use crate::ask::Ask;
use crate::engine::Model;
use crate::exchange;
use crate::threads::{AnswerMail, Wake};

/// A request whose prompt has become tokens.
pub(crate) struct Prepared {
    pub slot: SlotToken,
    pub batch: Batch,
    pub ask: Ask,
    pub prompt: Vec<u32>,
    /// For the engine of tokens.
    pub order: String,
}

pub(crate) struct Run {
    /// `None` once the engine of tokens has done its part.
    slot: Option<SlotToken>,
    batch: Batch,
    ask: Ask,
    prompt_tokens: usize,
    tells_of_tokens: bool,
    sequences: Vec<Sequence>,
    ticket: Option<Ticket>,
    /// Found no room.
    unsent: Option<Box<Response>>,
    outcome: Option<Result<(), Error>>,
}

impl Prepared {
    pub(crate) fn new(model: &Model, slot: SlotToken, mut batch: Batch) -> Option<Self> {
        batch.begun();
        let request = batch.request(0)?;
        let made = Ask::read(&model.places, request).and_then(|ask| model.prepare(ask));
        match made {
            Ok((ask, prompt, order)) => Some(Self { slot, batch, ask, prompt, order }),
            Err(error) => {
                let error = error.of_request(&request.id);
                batch.fail(&error);
                None
            }
        }
    }
}

impl Run {
    /// Hands it in to the engine of tokens. `None`: it has ended.
    pub(crate) fn begin(
        model: &Model,
        tokens: &Arc<Runner>,
        prepared: Prepared,
        mail: AnswerMail,
        key: u64,
    ) -> Option<Self> {
        let Prepared { slot, mut batch, ask, prompt, order } = prepared;
        let stops: Arc<[String]> = ask.sampling.stops.clone().into();
        let sequence = |_| Sequence::new(&model.tokenizer, &prompt, &ask, &stops);
        let sequences: Result<Vec<_>, _> = (0..ask.sampling.sequences).map(sequence).collect();
        let begun =
            sequences.map_err(|text| Error::new(ErrorKind::EngineFailed, text)).and_then(|sequences| {
                let context = batch.child_context(0).ok_or_else(Error::cancelled)?;
                let id = batch.request(0).map(|request| request.id.clone()).unwrap_or_default();
                let wake = mail.wake(key);
                let reply = Reply::new(Arc::new(mail), key);
                let request = Request {
                    id,
                    context,
                    ..Request::new(exchange::request(&prompt, &order), tokens.now(), reply)
                };
                let (ticket, admission) = tokens.submit(request).map_err(|(error, _)| error)?;
                Ok((sequences, ticket, admission, wake))
            });
        match begun {
            Ok((sequences, ticket, admission, wake)) => {
                batch.when_abandoned(0, wake);
                if let Admission::Lead(lease) = admission {
                    Lease::run_afterwards(lease);
                }
                Some(Self {
                    slot: Some(slot),
                    batch,
                    tells_of_tokens: tells_of_tokens(&model.places, &ask),
                    ask,
                    prompt_tokens: prompt.len(),
                    sequences,
                    ticket: Some(ticket),
                    unsent: None,
                    outcome: None,
                })
            }
            Err(error) => {
                batch.end(0, Err(error));
                None
            }
        }
    }

    pub(crate) fn take(&mut self, tokenizer: &Tokenizer, mail: Mail) {
        if self.outcome.is_some() {
            return;
        }
        let Mail { response, end, .. } = mail;
        let taken = response.map_or(Ok(()), |response| self.step(tokenizer, &response));
        let all_ended = self.sequences.iter().all(|sequence| sequence.finish.is_some());
        match (taken, end) {
            (Err(error), _) => self.close(Err(error)),
            (Ok(()), Some(end)) => {
                // its request has come back
                self.ticket = None;
                let early = || {
                    Error::new(ErrorKind::EngineFailed, "the engine of tokens ended before its answer did")
                };
                self.close(end.result.and_then(|()| if all_ended { Ok(()) } else { Err(early()) }));
            }
            (Ok(()), None) if all_ended => self.close(Ok(())),
            (Ok(()), None) => {}
        }
    }

    fn step(&mut self, tokenizer: &Tokenizer, response: &Response) -> Result<(), Error> {
        let step = exchange::step(response, self.sequences.len())?;
        let fault = |text| Error::new(ErrorKind::EngineFailed, text);
        for (sequence, token, log_probability) in step.tokens {
            self.sequences[sequence].push(tokenizer, token, log_probability).map_err(fault)?;
        }
        for (sequence, finish) in step.ends {
            self.sequences[sequence].end(tokenizer, finish).map_err(fault)?;
        }
        Ok(())
    }

    /// Nothing is wanted of the engine of tokens any more.
    pub(crate) fn close(&mut self, outcome: Result<(), Error>) {
        if let Some(ticket) = self.ticket.take() {
            ticket.cancel();
        }
        self.slot = None;
        self.outcome.get_or_insert(outcome);
    }

    /// Sends what there is, as far as there is room. False: it has ended.
    pub(crate) fn go_on(&mut self, model: &Model, wake: impl Fn() -> Wake) -> bool {
        if self.batch.is_abandoned(0) {
            self.close(Err(Error::cancelled()));
            self.batch.end(0, Err(Error::cancelled()));
            return false;
        }
        if let Some(unsent) = self.unsent.take()
            && !self.send(*unsent, &wake)
        {
            return true;
        }
        match self.outcome.take() {
            Some(Ok(())) => {
                let last = self.response(model);
                self.batch.end_with(0, last);
                false
            }
            Some(Err(error)) => {
                self.batch.end(0, Err(error));
                false
            }
            None => {
                let has_news = |sequence: &Sequence| sequence.has_news(self.tells_of_tokens);
                if self.ask.streams && self.sequences.iter().any(has_news) {
                    let news = self.response(model);
                    self.send(news, &wake);
                }
                true
            }
        }
    }

    /// Whether it has left, or nobody waits for it.
    fn send(&mut self, response: Response, wake: &impl Fn() -> Wake) -> bool {
        match self.batch.send(0, response) {
            Sent::Full(response) => {
                self.unsent = Some(response);
                self.batch.when_room(0, wake());
                false
            }
            _ => true,
        }
    }

    fn response(&mut self, model: &Model) -> Response {
        response(&model.places, &self.ask, &model.tokenizer, self.prompt_tokens, &mut self.sequences)
    }
}
