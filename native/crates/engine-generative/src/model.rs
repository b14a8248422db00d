//! What is known of a model while it serves, and what a request becomes by it.

use std::hash::{BuildHasher, RandomState};

use kushi_core::{Error, ErrorKind, ModelSpec};
use kushi_text::Tokenizer;
use serde::Deserialize;

use crate::answers::tells_of_likelihood;
use crate::ask::Ask;
use crate::places::Places;

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

impl Model {
    pub(crate) fn new(spec: &ModelSpec, tokenizer: &[u8], options: GenerativeOptions) -> Result<Self, Error> {
        let longest = options.context.min(options.kept_tokens);
        let tokenizer = Tokenizer::new(tokenizer, Some(longest)).map_err(|text| {
            let text = format!("model '{}': its tokenizer cannot be used: {text}", spec.name);
            Error::new(ErrorKind::ConfigInvalid, text)
        })?;
        Ok(Self {
            name: spec.name.clone(),
            places: Places::of(spec)?,
            tokenizer,
            options,
            seeds: RandomState::new(),
        })
    }

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

    /// The tokens with which it ends an answer.
    pub(crate) fn ends(&self) -> &[u32] {
        &self.options.ends
    }

    fn knows(&self, token: u32) -> bool {
        usize::try_from(token).is_ok_and(|token| token < self.options.vocabulary)
    }
}
