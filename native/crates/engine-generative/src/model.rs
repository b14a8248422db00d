//! What is known of a model while it serves, and what a request becomes by it.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use kushi_core::{Error, ErrorKind, ModelSpec};
use kushi_text::Tokenizer;
use serde::Deserialize;

use crate::answers::tells_of_likelihood;
use crate::ask::Ask;
use crate::chat::{ChatOptions, Chats};
use crate::face::Face;
use crate::places::Places;
use crate::prompt_kind::PromptKind;

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
    pub chat: ChatOptions,
}

/// What a request has become.
pub(crate) struct Asked {
    pub ask: Ask,
    pub prompt: Vec<u32>,
    /// What the engine of tokens is told of each text that answers it.
    pub orders: Vec<String>,
    /// Tokens that each of them may need, with the prompt.
    pub needed: usize,
}

/// What both threads know.
pub(crate) struct Model {
    pub name: String,
    pub places: Places,
    pub face: Arc<Face>,
    chats: Chats,
    options: GenerativeOptions,
    seeds: RandomState,
}

impl Model {
    pub(crate) fn new(spec: &ModelSpec, tokenizer: &[u8], options: GenerativeOptions) -> Result<Self, Error> {
        let longest = options.context.min(options.kept_tokens);
        let fault =
            |text: String| Error::new(ErrorKind::ConfigInvalid, format!("model '{}': {text}", spec.name));
        let tokenizer = Tokenizer::new(tokenizer, Some(longest))
            .map_err(|text| fault(format!("its tokenizer cannot be used: {text}")))?;
        let chats = Chats::new(&options.chat, &tokenizer).map_err(fault)?;
        if options.chat.has_template()
            && let Some(text) = chats.fault()
        {
            log::warn!("model '{}' refuses chats: {text}", spec.name);
        }
        Ok(Self {
            name: spec.name.clone(),
            places: Places::of(spec)?,
            face: Arc::new(Face::new(tokenizer, options.kept_tokens)),
            chats,
            options,
            seeds: RandomState::new(),
        })
    }

    pub(crate) fn prepare(&self, mut ask: Ask) -> Result<Asked, Error> {
        let longest = self.face.tokenizer.longest();
        let too_long = |text: String| {
            let of = format!(
                "This model's maximum context length is {longest} tokens, one of them for the answer"
            );
            Error::invalid(format!("{of}; the prompt is too long: {text}"))
        };
        let prompt = match ask.kind {
            PromptKind::Tokens => self.read_tokens(&mut ask)?,
            PromptKind::Text => self.tokens(&ask, true).map_err(too_long)?,
            PromptKind::Chat => {
                let most = self.face.tokenizer.longest_text();
                let written = self.chats.write(&ask.prompt, most).map_err(Error::invalid)?;
                ask.prompt = written.prompt;
                ask.tools = written.tools;
                ask.sampling.skip_special &= !written.shows_special;
                self.tokens(&ask, false).map_err(too_long)?
            }
        };
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
        let needed = prompt.len() + max_tokens;
        Ok(Asked { ask, prompt, orders, needed })
    }

    /// `usual`: whether it gets special tokens around it where it does not say so.
    fn tokens(&self, ask: &Ask, usual: bool) -> Result<Vec<u32>, String> {
        self.face.tokenizer.whole(&ask.prompt, ask.sampling.add_special.unwrap_or(usual))
    }

    fn read_tokens(&self, ask: &mut Ask) -> Result<Vec<u32>, Error> {
        let fault = |error| Error::invalid(format!("the prompt is no JSON list of tokens: {error}"));
        let most = self.face.tokenizer.longest_text();
        if ask.prompt.len() > most {
            return Err(Error::invalid(format!("the prompt has more than {most} bytes of JSON")));
        }
        let tokens: Vec<u32> = serde_json::from_str(&ask.prompt).map_err(fault)?;
        ask.prompt =
            self.face.tokenizer.text_of(&tokens, ask.sampling.skip_special).map_err(Error::invalid)?;
        Ok(tokens)
    }

    /// The tokens with which it ends an answer.
    pub(crate) fn ends(&self) -> &[u32] {
        &self.options.ends
    }

    fn knows(&self, token: u32) -> bool {
        usize::try_from(token).is_ok_and(|token| token < self.options.vocabulary)
    }
}
