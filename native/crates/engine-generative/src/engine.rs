//! A generative model, as a runner executes it: each of its slots has one request, from its beginning to its end.

use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Weak};
use std::time::Duration;

use kushi_core::{
    Batch, Capability, Engine, Error, ErrorKind, ModelSpec, OnReady, Readiness, Runner, Slot, SlotToken,
    WatchingThread,
};
use kushi_text::Tokenizer;
use serde::Deserialize;

use crate::answers::tells_of_likelihood;
use crate::ask::Ask;
use crate::places::Places;
use crate::threads::{Event, Threads};

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GenerativeOptions {
    /// Tokens of a prompt and of its answer together, as far as the model can look back.
    pub context: usize,
    /// Tokens that the engine can keep, of all requests together.
    pub kept_tokens: usize,
    /// How many different ones the model knows.
    pub vocabulary: usize,
    /// With which of them it ends an answer.
    pub ends: Vec<u32>,
    /// How many requests run at the same time; others wait in the queue.
    pub most_running: usize,
}

/// What both threads know.
pub(crate) struct Model {
    pub name: String,
    pub places: Places,
    pub tokenizer: Tokenizer,
    options: GenerativeOptions,
    seeds: RandomState,
}

pub struct GenerativeEngine {
    threads: Threads,
    tokens: Arc<Runner>,
}

impl GenerativeEngine {
    /// `tokens`: what runs the engine of tokens, under [`token_spec`](crate::token_spec). `tokenizer`: the content of a
    /// `tokenizer.json`.
    pub fn new(
        spec: &ModelSpec,
        tokens: Arc<Runner>,
        tokenizer: &[u8],
        options: GenerativeOptions,
    ) -> Result<Self, Error> {
        let invalid = |text| Error::new(ErrorKind::ConfigInvalid, format!("model '{}': {text}", spec.name));
        let longest = options.context.min(options.kept_tokens);
        let tokenizer = Tokenizer::new(tokenizer, Some(longest))
            .map_err(|text| invalid(format!("its tokenizer cannot be used: {text}")))?;
        let model = Arc::new(Model {
            name: spec.name.clone(),
            places: Places::of(spec)?,
            tokenizer,
            options,
            seeds: RandomState::new(),
        });
        Ok(Self { threads: Threads::start(&model, tokens.clone())?, tokens })
    }
}

impl Model {
    /// The tokens of the prompt, and what the engine of tokens is told of each text that answers it.
    pub(crate) fn prepare(&self, ask: Ask) -> Result<(Ask, Vec<u32>, Vec<String>), Error> {
        let longest = self.tokenizer.longest();
        let too_long = |text: String| {
            let of = format!(
                "This model's maximum context length is {longest} tokens, one of them for the answer"
            );
            Error::invalid(format!("{of}; the prompt is too long: {text}"))
        };
        let prompt = self.tokenizer.whole(&ask.text).map_err(too_long)?;
        if prompt.is_empty() {
            return Err(Error::invalid("The prompt cannot be empty"));
        }
        if let Some(token) = prompt.iter().chain(&ask.sampling.stop_tokens).find(|&&token| !self.knows(token))
        {
            let text = format!("{token} is none of the {} tokens of the model", self.options.vocabulary);
            return Err(Error::invalid(text));
        }
        let room = longest.saturating_sub(prompt.len());
        if room == 0 {
            return Err(too_long(format!("it has {} tokens", prompt.len())));
        }
        let max_tokens = ask.sampling.max_tokens.min(room);
        // enough for one that nobody has to be able to guess
        let seeds =
            ask.sampling.seeds(|| self.seeds.hash_one(std::time::Instant::now()) & u64::from(u32::MAX));
        let likely = tells_of_likelihood(&self.places, &ask);
        let order = |seed| ask.sampling.order(max_tokens, &self.options.ends, likely, seed);
        let orders = seeds.map(order).collect();
        Ok((ask, prompt, orders))
    }
}

impl Model {
    /// The tokens with which it ends an answer.
    pub(crate) fn ends(&self) -> &[u32] {
        &self.options.ends
    }

    fn knows(&self, token: u32) -> bool {
        usize::try_from(token).is_ok_and(|token| token < self.options.vocabulary)
    }
}

impl Engine for GenerativeEngine {
    fn capability(&self) -> Capability {
        Capability { concurrent: true, inline: false, keeps_slots: true }
    }

    fn readiness(&self) -> Option<Arc<dyn Readiness>> {
        Some(Arc::new(OfTokens(Arc::downgrade(&self.tokens))))
    }

    /// Never called: the slot is kept until the answer has its end.
    fn execute(&self, _slot: &mut Slot, batch: Batch) {
        batch.fail(&Error::new(ErrorKind::Internal, "a generative model keeps its slots"));
    }

    fn begin(&self, slot: SlotToken, batch: Batch) {
        // Where the thread has gone, both come to their end by being dropped.
        let _ = self.threads.prompts.send((slot, batch));
    }

    /// What goes on ends by [`Self::stop_unanswered`].
    fn stop_run(&self, _slot: usize) -> bool {
        true
    }

    fn stop_unanswered(&self) {
        let _ = self.threads.news.send(Event::Stop);
    }

    fn begin_to_leave(&self) {
        self.tokens.stop_admitting();
    }
}

impl Drop for GenerativeEngine {
    fn drop(&mut self) {
        let _ = self.threads.news.send(Event::Close);
        let tokens = self.tokens.clone();
        let retire = move || {
            tokens.retire(Duration::ZERO);
        };
        // It waits, which an io thread must not, and the thread of the answers may be what it waits for.
        if WatchingThread::number() > 0 || self.threads.is_one_of_them() {
            drop(std::thread::Builder::new().name("kushi-retire".into()).spawn(retire));
        } else {
            retire();
        }
    }
}

struct OfTokens(Weak<Runner>);

impl Readiness for OfTokens {
    fn is_ready(&self) -> bool {
        self.0.upgrade().is_some_and(|tokens| tokens.is_ready())
    }

    fn ask(&self, on_answer: OnReady) {
        match self.0.upgrade() {
            Some(tokens) => tokens.ask_ready(on_answer),
            None => on_answer(false),
        }
    }
}
