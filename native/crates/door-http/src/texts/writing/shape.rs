//! Answers in the words of OpenAI: whole ones, and the events of a stream.

use std::hash::{BuildHasher, RandomState};
use std::time::Instant;

use kushi_core::epoch_ms;
use kushi_oip::json::write;

use super::body::{Asked, Style};
use super::piece::{LikelyToken, Part, Piece, ToolCall};
use crate::events::event;

const CALLS_TOOLS: &str = "tool_calls";
const LEAST_LIKELY: f64 = -9999.0;

/// What is the same in all that is told of a request.
pub(super) struct Shape {
    style: Style,
    /// Up to the choices, of what is told at once and of an event.
    whole: Vec<u8>,
    event: Vec<u8>,
    /// Makes names for calls of tools.
    names: RandomState,
    tells_usage: bool,
    /// How many of the likeliest tokens are told; `None`: not even the one that was taken.
    likeliest: Option<u64>,
}

/// What has been told of a prompt's texts.
#[derive(Default)]
pub(super) struct Begun {
    texts: Vec<BegunText>,
}

#[derive(Default)]
struct BegunText {
    has_begun: bool,
    has_ended: bool,
    /// Characters, as the offsets of tokens count.
    characters: usize,
}

/// Tokens, as far as models tell them.
#[derive(Default)]
pub(super) struct Usage {
    /// Of each prompt.
    prompts: Vec<u64>,
    answers: u64,
    is_known: bool,
}

impl Usage {
    pub(super) fn add(&mut self, at: usize, piece: &Piece) {
        if self.prompts.len() <= at {
            self.prompts.resize(at + 1, 0);
        }
        if let Some(tokens) = piece.prompt_tokens {
            self.prompts[at] = tokens;
            self.is_known = true;
        }
        self.answers += piece.answer_tokens.unwrap_or_default();
    }

    fn write(&self, out: &mut Vec<u8>) {
        if !self.is_known {
            return out.extend_from_slice(b"null");
        }
        let prompts: u64 = self.prompts.iter().sum();
        out.extend_from_slice(b"{\"prompt_tokens\":");
        write::integer(out, prompts);
        out.extend_from_slice(b",\"completion_tokens\":");
        write::integer(out, self.answers);
        out.extend_from_slice(b",\"total_tokens\":");
        write::integer(out, prompts + self.answers);
        out.push(b'}');
    }
}

impl Shape {
    pub(super) fn new(asked: &Asked, model: &str) -> Self {
        let names = RandomState::new();
        let now = epoch_ms(Instant::now());
        let (begin, whole, event) = match asked.style {
            Style::Chat => ("chatcmpl", "chat.completion", "chat.completion.chunk"),
            Style::Completion => ("cmpl", "text_completion", "text_completion"),
        };
        let id = format!("{begin}-{}", name(&names, (0, 0)));
        let head = |object: &str| {
            let mut head = b"{\"id\":".to_vec();
            write::string(&mut head, id.as_bytes());
            head.extend_from_slice(b",\"object\":");
            write::string(&mut head, object.as_bytes());
            head.extend_from_slice(b",\"created\":");
            write::integer(&mut head, now / 1000);
            head.extend_from_slice(b",\"model\":");
            write::string(&mut head, model.as_bytes());
            head.extend_from_slice(b",\"choices\":[");
            head
        };
        let (whole, event) = (head(whole), head(event));
        let (style, tells_usage, likeliest) = (asked.style, asked.tells_usage, asked.log_probabilities);
        Self { style, whole, event, names, tells_usage, likeliest }
    }

    /// The answer to all prompts.
    pub(super) fn whole(&self, pieces: &[Piece]) -> Vec<u8> {
        let mut out = self.whole.clone();
        let mut usage = Usage::default();
        let mut index = 0;
        for (at, piece) in pieces.iter().enumerate() {
            usage.add(at, piece);
            for part in &piece.parts {
                if index > 0 {
                    out.push(b',');
                }
                self.whole_choice(&mut out, index, part);
                index += 1;
            }
        }
        out.extend_from_slice(b"],\"usage\":");
        usage.write(&mut out);
        out.push(b'}');
        out
    }

    fn whole_choice(&self, out: &mut Vec<u8>, index: usize, part: &Part) {
        out.extend_from_slice(b"{\"index\":");
        write::integer(out, index);
        match self.style {
            Style::Completion => {
                out.extend_from_slice(b",\"text\":");
                write::string(out, part.text.as_bytes());
            }
            Style::Chat => {
                out.extend_from_slice(b",\"message\":{\"role\":\"assistant\",\"content\":");
                if part.text.is_empty() && !part.calls.is_empty() {
                    out.extend_from_slice(b"null");
                } else {
                    write::string(out, part.text.as_bytes());
                }
                out.extend_from_slice(b",\"refusal\":null");
                if !part.calls.is_empty() {
                    out.extend_from_slice(b",\"tool_calls\":");
                    write::array(out, part.calls.iter().enumerate(), |out, (at, call)| {
                        self.call(out, None, (index + 1, at), call);
                    });
                }
                out.push(b'}');
            }
        }
        self.tokens(out, part, 0);
        finish(out, part.finish.as_deref().map(|reason| reason_of(reason, part)));
    }

    /// What a piece of the prompt `at` tells.
    pub(super) fn events(&self, out: &mut Vec<u8>, at: usize, begun: &mut Begun, piece: &Piece) {
        let first = at * piece.parts.len();
        begun.texts.resize_with(piece.parts.len(), BegunText::default);
        for ((number, part), text) in piece.parts.iter().enumerate().zip(&mut begun.texts) {
            if text.has_ended {
                continue;
            }
            let index = first + number;
            if !std::mem::replace(&mut text.has_begun, true) && self.style == Style::Chat {
                self.delta(out, index, None, |out| {
                    out.extend_from_slice(b"\"role\":\"assistant\",\"content\":\"\"");
                });
            }
            text.has_ended = part.finish.is_some();
            match self.style {
                Style::Chat => self.chat_events(out, index, part),
                Style::Completion => self.completion_event(out, index, part, text.characters),
            }
            text.characters += part.text.chars().count();
        }
    }

    fn chat_events(&self, out: &mut Vec<u8>, index: usize, part: &Part) {
        if !part.text.is_empty() || !part.tokens.is_empty() {
            self.delta(out, index, Some(part), |out| {
                out.extend_from_slice(b"\"content\":");
                write::string(out, part.text.as_bytes());
            });
        }
        for (at, call) in part.calls.iter().enumerate() {
            self.delta(out, index, None, |out| {
                out.extend_from_slice(b"\"tool_calls\":[");
                self.call(out, Some(at), (index + 1, at), call);
                out.push(b']');
            });
        }
        if let Some(reason) = &part.finish {
            let reason = reason_of(reason, part);
            self.choice(out, |out| {
                out.extend_from_slice(b"{\"index\":");
                write::integer(out, index);
                out.extend_from_slice(b",\"delta\":{},\"logprobs\":null");
                finish(out, Some(reason));
            });
        }
    }

    fn delta(
        &self,
        out: &mut Vec<u8>,
        index: usize,
        part: Option<&Part>,
        write_delta: impl FnOnce(&mut Vec<u8>),
    ) {
        self.choice(out, |out| {
            out.extend_from_slice(b"{\"index\":");
            write::integer(out, index);
            out.extend_from_slice(b",\"delta\":{");
            write_delta(out);
            out.push(b'}');
            match part {
                Some(part) => self.tokens(out, part, 0),
                None => out.extend_from_slice(b",\"logprobs\":null"),
            }
            finish(out, None);
        });
    }

    fn completion_event(&self, out: &mut Vec<u8>, index: usize, part: &Part, characters: usize) {
        if part.text.is_empty() && part.tokens.is_empty() && part.finish.is_none() {
            return;
        }
        self.choice(out, |out| {
            out.extend_from_slice(b"{\"index\":");
            write::integer(out, index);
            out.extend_from_slice(b",\"text\":");
            write::string(out, part.text.as_bytes());
            self.tokens(out, part, characters);
            finish(out, part.finish.as_deref());
        });
    }

    fn choice(&self, out: &mut Vec<u8>, write_choice: impl FnOnce(&mut Vec<u8>)) {
        event(out, |out| {
            out.extend_from_slice(&self.event);
            write_choice(out);
            out.extend_from_slice(if self.tells_usage { b"],\"usage\":null}" } else { b"]}" });
        });
    }

    /// Behind all others.
    pub(super) fn last_events(&self, out: &mut Vec<u8>, usage: &Usage) {
        if self.tells_usage {
            event(out, |out| {
                out.extend_from_slice(&self.event);
                out.extend_from_slice(b"],\"usage\":");
                usage.write(out);
                out.push(b'}');
            });
        }
        event(out, |out| out.extend_from_slice(b"[DONE]"));
    }

    /// The member behind others that tells of tokens.
    fn tokens(&self, out: &mut Vec<u8>, part: &Part, characters: usize) {
        out.extend_from_slice(b",\"logprobs\":");
        let Some(likeliest) = self.likeliest else { return out.extend_from_slice(b"null") };
        match self.style {
            Style::Chat => {
                out.extend_from_slice(b"{\"content\":");
                write::array(out, part.tokens.iter(), |out, token| {
                    out.push(b'{');
                    of_chat(out, token);
                    out.extend_from_slice(b",\"top_logprobs\":[");
                    if likeliest > 0 {
                        out.push(b'{');
                        of_chat(out, token);
                        out.push(b'}');
                    }
                    out.extend_from_slice(b"]}");
                });
                out.extend_from_slice(b",\"refusal\":null}");
            }
            Style::Completion => of_completion(out, &part.tokens, likeliest > 0, characters),
        }
    }

    fn call(&self, out: &mut Vec<u8>, index: Option<usize>, place: (usize, usize), call: &ToolCall) {
        out.push(b'{');
        if let Some(index) = index {
            out.extend_from_slice(b"\"index\":");
            write::integer(out, index);
            out.push(b',');
        }
        out.extend_from_slice(b"\"id\":");
        write::string(out, format!("call_{}", name(&self.names, place)).as_bytes());
        out.extend_from_slice(b",\"type\":\"function\",\"function\":{\"name\":");
        write::string(out, call.name.as_bytes());
        out.extend_from_slice(b",\"arguments\":");
        write::string(out, call.arguments.as_bytes());
        out.extend_from_slice(b"}}");
    }
}

fn reason_of<'a>(reason: &'a str, part: &Part) -> &'a str {
    if part.calls.is_empty() || reason != "stop" { reason } else { CALLS_TOOLS }
}

/// What nobody else has, with very high probability.
fn name(names: &RandomState, place: (usize, usize)) -> String {
    format!("{:016x}{:016x}", names.hash_one(place), names.hash_one((place, "more")))
}

/// The end of a choice.
fn finish(out: &mut Vec<u8>, reason: Option<&str>) {
    out.extend_from_slice(b",\"finish_reason\":");
    match reason {
        Some(reason) => write::string(out, reason.as_bytes()),
        None => out.extend_from_slice(b"null"),
    }
    out.push(b'}');
}

fn of_chat(out: &mut Vec<u8>, token: &LikelyToken) {
    out.extend_from_slice(b"\"token\":");
    write::string(out, token.text.as_bytes());
    out.extend_from_slice(b",\"logprob\":");
    number(out, token.log_probability);
    out.extend_from_slice(b",\"bytes\":");
    if token.text.contains(char::REPLACEMENT_CHARACTER) {
        // part of a character
        out.extend_from_slice(b"null");
    } else {
        write::array(out, token.text.bytes(), write::integer);
    }
}

fn of_completion(out: &mut Vec<u8>, tokens: &[LikelyToken], tells_likeliest: bool, characters: usize) {
    out.extend_from_slice(b"{\"tokens\":");
    write::array(out, tokens.iter(), |out, token| write::string(out, token.text.as_bytes()));
    out.extend_from_slice(b",\"token_logprobs\":");
    write::array(out, tokens.iter(), |out, token| number(out, token.log_probability));
    out.extend_from_slice(b",\"top_logprobs\":");
    if tells_likeliest {
        write::array(out, tokens.iter(), |out, token| {
            out.push(b'{');
            write::string(out, token.text.as_bytes());
            out.push(b':');
            number(out, token.log_probability);
            out.push(b'}');
        });
    } else {
        out.extend_from_slice(b"null");
    }
    out.extend_from_slice(b",\"text_offset\":");
    let mut offset = characters;
    write::array(out, tokens.iter(), |out, token| {
        write::integer(out, offset);
        offset += token.text.chars().count();
    });
    out.push(b'}');
}

/// JSON has none that is not finite: what cannot be is as unlikely as OpenAI says it.
fn number(out: &mut Vec<u8>, value: f64) {
    write::double(out, if value.is_finite() { value } else { LEAST_LIKELY });
}
