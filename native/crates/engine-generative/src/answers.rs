//! What is known of an answer and has not been sent yet.

use std::sync::Arc;

use kushi_core::{DataType, Parameter, Response};
use kushi_text::{Stops, TextStream, Tokenizer, ToolCall, ToolStream};
use serde_json::{Value, json};

use crate::ask::Ask;
use crate::elements::{numbers, texts};
use crate::exchange::Finish;
use crate::places::{Output, Places};
use crate::sampling::Sampling;

/// The parameter of a response that has the calls of tools: a JSON list for each text.
const TOOL_CALLS: &str = "tool_calls";

/// One of the texts that answer a request.
pub(crate) struct Sequence {
    stream: TextStream,
    stops: Stops,
    /// `None`: none are offered.
    tools: Option<ToolStream>,
    tokens: usize,
    /// That end it, and have a text where the stop is part of it.
    stop_tokens: Arc<[u32]>,
    include_stop: bool,
    /// So many tokens come before a stop is looked for.
    min_tokens: usize,
    cumulative: f64,
    pub finish: Option<Finish>,
    news: News,
}

/// What ends each of the texts of a request.
pub(crate) struct Ends {
    texts: Arc<[String]>,
    tokens: Arc<[u32]>,
}

impl Ends {
    /// `ends`: with which the model ends an answer.
    pub(crate) fn of(sampling: &Sampling, ends: &[u32]) -> Self {
        let ends = if sampling.ignore_end { &[] } else { ends };
        let tokens = sampling.stop_tokens.iter().chain(ends).copied().collect();
        Self { texts: sampling.stops.clone().into(), tokens }
    }
}

/// Since the last answer.
#[derive(Default)]
struct News {
    text: String,
    tokens: usize,
    log_probabilities: Vec<(u32, f32)>,
    calls: Vec<ToolCall>,
}

impl Sequence {
    pub(crate) fn new(tokenizer: &Tokenizer, prompt: &[u32], ask: &Ask, ends: &Ends) -> Result<Self, String> {
        Ok(Self {
            stream: TextStream::after(tokenizer, prompt, ask.sampling.skip_special)?,
            stops: Stops::new(ends.texts.clone(), ask.sampling.include_stop),
            tools: ask.tools.clone(),
            tokens: 0,
            stop_tokens: ends.tokens.clone(),
            include_stop: ask.sampling.include_stop,
            min_tokens: ask.sampling.min_tokens,
            cumulative: 0.0,
            finish: None,
            news: News::default(),
        })
    }

    /// Takes a token; what comes behind the end is none of its own.
    pub(crate) fn push(
        &mut self,
        tokenizer: &Tokenizer,
        token: u32,
        log_probability: f32,
    ) -> Result<(), String> {
        if self.finish.is_some() {
            return Ok(());
        }
        self.tokens += 1;
        self.cumulative += f64::from(log_probability);
        self.news.tokens += 1;
        self.news.log_probabilities.push((token, log_probability));
        let ends = self.tokens > self.min_tokens && self.stop_tokens.contains(&token);
        if !ends || self.include_stop {
            let text = self.stream.push(tokenizer, token)?;
            self.add(&text);
        }
        if ends { self.end(tokenizer, Finish::Stop) } else { Ok(()) }
    }

    fn add(&mut self, text: &str) {
        if self.tokens <= self.min_tokens {
            self.let_out(text);
            return;
        }
        let out = self.stops.take(text);
        self.let_out(&out.text);
        if out.stop.is_some() {
            self.close(Finish::Stop);
        }
    }

    fn let_out(&mut self, text: &str) {
        let Some(tools) = &mut self.tools else { return self.news.text.push_str(text) };
        self.news.text.push_str(&tools.take(text));
        if tools.has_all() {
            self.close(Finish::Stop);
        }
    }

    fn close(&mut self, finish: Finish) {
        if self.finish.is_some() {
            return;
        }
        self.finish = Some(finish);
        if let Some(tools) = &mut self.tools {
            self.news.text.push_str(&tools.finish());
            self.news.calls = tools.calls().to_vec();
        }
    }

    /// No token follows.
    pub(crate) fn end(&mut self, tokenizer: &Tokenizer, finish: Finish) -> Result<(), String> {
        if self.finish.is_some() {
            return Ok(());
        }
        let rest = self.stream.finish(tokenizer)?;
        self.add(&rest);
        if self.finish.is_none() {
            let rest = self.stops.finish();
            self.let_out(&rest);
            self.close(finish);
        }
        Ok(())
    }

    /// Whether there is something that one who reads along wants to hear now.
    pub(crate) fn has_news(&self, of_tokens: bool) -> bool {
        !self.news.text.is_empty() || (of_tokens && self.news.tokens > 0)
    }
}

/// Whether outputs are asked for that tell of each token.
pub(crate) fn tells_of_tokens(places: &Places, ask: &Ask) -> bool {
    answers_one_of(places, ask, &[Output::LogProbabilities, Output::AnswerTokens, Output::Cumulative])
}

/// Whether outputs are asked for that tell how likely tokens were.
pub(crate) fn tells_of_likelihood(places: &Places, ask: &Ask) -> bool {
    answers_one_of(places, ask, &[Output::LogProbabilities, Output::Cumulative])
}

fn answers_one_of(places: &Places, ask: &Ask, outputs: &[Output]) -> bool {
    places.outputs.iter().zip(&ask.answered).any(|(output, &answered)| answered && outputs.contains(output))
}

/// What has come since the last one.
pub(crate) fn response(
    places: &Places,
    ask: &Ask,
    tokenizer: &Tokenizer,
    prompt_tokens: usize,
    sequences: &mut [Sequence],
) -> Response {
    let news: Vec<News> = sequences.iter_mut().map(|sequence| std::mem::take(&mut sequence.news)).collect();
    let before = if ask.with_prompt { &*ask.prompt } else { "" };
    let asked = places.outputs.iter().zip(&ask.answered).enumerate().filter(|(_, (_, answered))| **answered);
    let outputs = asked.map(|(at, (output, _))| {
        let tensor = match output {
            Output::Text => {
                let whole: Vec<String> = news.iter().map(|news| format!("{before}{}", news.text)).collect();
                texts(whole.iter().map(String::as_str))
            }
            Output::FinishReason => {
                // as Python writes what is not there
                texts(sequences.iter().map(|sequence| sequence.finish.map_or("None", Finish::name)))
            }
            Output::Cumulative => {
                let sums = sequences.iter().map(|sequence| (sequence.cumulative as f32).to_le_bytes());
                numbers(DataType::Fp32, sums)
            }
            Output::LogProbabilities => {
                let rank = ask.sampling.takes_the_likeliest().then_some(1);
                let lists: Vec<String> = news
                    .iter()
                    .map(|news| log_probabilities(tokenizer, &news.log_probabilities, rank))
                    .collect();
                texts(lists.iter().map(String::as_str))
            }
            Output::PromptTokens => count(prompt_tokens),
            Output::AnswerTokens => count(news.iter().map(|news| news.tokens).sum()),
        };
        (at as u16, tensor)
    });
    let outputs = outputs.collect();
    Response { outputs, parameters: tool_calls(&news).into_iter().collect(), ..Response::default() }
}

/// Those of each text, where one has any.
fn tool_calls(news: &[News]) -> Option<(String, Parameter)> {
    if news.iter().all(|news| news.calls.is_empty()) {
        return None;
    }
    let call = |call: &ToolCall| json!({"name": call.name, "arguments": call.arguments});
    let lists: Value = news.iter().map(|news| news.calls.iter().map(call).collect::<Value>()).collect();
    Some((TOOL_CALLS.to_owned(), Parameter::String(lists.to_string())))
}

fn count(number: usize) -> kushi_core::Tensor {
    numbers(DataType::Uint32, std::iter::once((number as u32).to_le_bytes()))
}

/// A list with an object for each token, as vLLM's is.
fn log_probabilities(tokenizer: &Tokenizer, tokens: &[(u32, f32)], rank: Option<u32>) -> String {
    let of_token = |&(token, log_probability): &(u32, f32)| -> Value {
        let text = tokenizer.token_text(token);
        json!({ token.to_string(): {"logprob": log_probability, "rank": rank, "decoded_token": text} })
    };
    Value::Array(tokens.iter().map(of_token).collect()).to_string()
}
