//! Generative models: texts in, texts out, as they come.
//!
//! What makes tokens is another engine behind a runner of its own, which takes tokens and gives tokens ([`exchange`]).
//! All that is text is done here, once for every way in: a thread makes prompts tokens, those of chats by their template, another one makes tokens text,
//! finds where an answer ends, and sends it.

mod answers;
mod ask;
mod chat;
mod counts;
mod elements;
mod engine;
mod exchange;
mod face;
mod mail;
mod model;
mod places;
mod prompt_kind;
mod run;
mod sampling;
mod schema;
mod threads;
mod tokens;

pub use chat::ChatOptions;
pub use engine::GenerativeEngine;
pub use exchange::token_spec;
pub use model::GenerativeOptions;
