//! One request on its way: what it has asked of the engine of tokens, and what came of it.

use std::sync::Arc;

use kushi_core::{Batch, Error, ErrorKind, Mail, Response, Runner, Sent, SlotToken};
use kushi_text::Tokenizer;

use crate::answers::{Ends, Sequence, response, tells_of_tokens};
use crate::ask::Ask;
use crate::counts::CountedText;
use crate::exchange;
use crate::mail::{AnswerMail, Wake};
use crate::model::{Asked, Model};
use crate::tokens::{Tokens, key_of};

/// A request whose prompt has become tokens.
pub(crate) struct Prepared {
    pub slot: SlotToken,
    pub batch: Batch,
    pub asked: Asked,
}

pub(crate) struct Run {
    /// `None` once the engine of tokens has done its part.
    slot: Option<SlotToken>,
    batch: Batch,
    ask: Ask,
    prompt_tokens: usize,
    tells_of_tokens: bool,
    /// The texts that answer, each with its tokens.
    sequences: Vec<Sequence>,
    tokens: Vec<Tokens>,
    /// Found no room.
    unsent: Option<Box<Response>>,
    outcome: Option<Result<(), Error>>,
}

impl Prepared {
    pub(crate) fn new(model: &Model, slot: SlotToken, mut batch: Batch) -> Option<Self> {
        batch.begun();
        if batch.is_abandoned(0) {
            batch.fail(&Error::cancelled());
            return None;
        }
        let request = batch.request(0)?;
        let made = Ask::read(&model.places, request).and_then(|ask| model.prepare(ask));
        match made {
            Ok(asked) => Some(Self { slot, batch, asked }),
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
        engine: &Arc<Runner>,
        prepared: Prepared,
        mail: AnswerMail,
        key: u64,
    ) -> Option<Self> {
        let Prepared { slot, mut batch, asked } = prepared;
        let Asked { ask, prompt, orders, needed } = asked;
        let face = &model.face;
        let ends = Ends::of(&ask.sampling, model.ends());
        let sequence = |_| Sequence::new(&face.tokenizer, &prompt, &ask, &ends);
        let sequences: Result<Vec<_>, _> = orders.iter().map(sequence).collect();
        let fault = |text| Error::new(ErrorKind::EngineFailed, text);
        let wake = mail.wake(key);
        let begun = sequences.map_err(fault).and_then(|sequences| {
            let context = batch.child_context(0).ok_or_else(Error::cancelled)?;
            let arrived = batch.request(0).ok_or_else(Error::cancelled)?.arrived;
            let mailbox = Arc::new(mail);
            let begin = |(number, order): (usize, &String)| {
                let asked = exchange::request(&prompt, order);
                let counted = CountedText::begin(&face.counts, needed, arrived);
                Tokens::begin(engine, &mailbox, key_of(key, number), context.clone(), asked, counted)
            };
            // where one is refused, those before it are cancelled by being dropped
            let tokens = orders.iter().enumerate().map(begin).collect::<Result<Vec<_>, _>>()?;
            Ok((sequences, tokens))
        });
        match begun {
            Ok((sequences, tokens)) => {
                batch.when_abandoned(0, wake);
                face.counts.read_prompt(prompt.len());
                Some(Self {
                    slot: Some(slot),
                    batch,
                    tells_of_tokens: tells_of_tokens(&model.places, &ask),
                    ask,
                    prompt_tokens: prompt.len(),
                    sequences,
                    tokens,
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

    /// Mail of the text with this number.
    pub(crate) fn take(&mut self, tokenizer: &Tokenizer, number: usize, mail: Mail) {
        if self.outcome.is_some() {
            return;
        }
        let Mail { response, end, .. } = mail;
        let (sequence, tokens) = (&mut self.sequences[number], &mut self.tokens[number]);
        let mut taken = response.map_or(Ok(()), |response| step(sequence, tokens, tokenizer, &response));
        if let Some(end) = end {
            tokens.have_ended();
            // One that has come to its end here was cancelled there.
            if sequence.finish.is_none() {
                let early = || {
                    Error::new(ErrorKind::EngineFailed, "the engine of tokens ended before its answer did")
                };
                taken = taken.and(end.result).and_then(|()| Err(early()));
            }
        }
        if let Err(error) = taken {
            return self.close(Err(error));
        }
        if sequence.finish.is_some() {
            tokens.cancel();
        }
        if self.sequences.iter().all(|sequence| sequence.finish.is_some()) {
            self.close(Ok(()));
        }
    }

    /// Nothing is wanted of the engine of tokens any more.
    fn close(&mut self, outcome: Result<(), Error>) {
        self.tokens.iter_mut().for_each(Tokens::cancel);
        self.slot = None;
        self.outcome.get_or_insert(outcome);
    }

    /// Ends it without what has not been sent.
    pub(crate) fn stop(mut self, error: &Error) {
        self.close(Err(error.clone()));
        self.batch.end(0, Err(error.clone()));
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
        response(&model.places, &self.ask, &model.face.tokenizer, self.prompt_tokens, &mut self.sequences)
    }
}

fn step(
    sequence: &mut Sequence,
    tokens: &mut Tokens,
    tokenizer: &Tokenizer,
    response: &Response,
) -> Result<(), Error> {
    let fault = |text| Error::new(ErrorKind::EngineFailed, text);
    let step = exchange::step(response)?;
    tokens.count(step.tokens.len());
    for (token, log_probability) in step.tokens {
        sequence.push(tokenizer, token, log_probability).map_err(fault)?;
    }
    step.end.map_or(Ok(()), |finish| sequence.end(tokenizer, finish).map_err(fault))
}
