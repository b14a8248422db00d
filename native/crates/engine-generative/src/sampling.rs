//! How tokens follow one another: what a request may say of it, by the names of vLLM.

use kushi_core::Parameter;
use kushi_text::{LONGEST_STOP, MOST_STOPS};
use serde_json::{Map, Value, json};

use crate::prompt_kind::{self, PromptKind};
use crate::schema;

/// Of all parameters, as JSON.
const MOST_BYTES: usize = 256 << 10;
const USUAL_TOKENS: usize = 16;
pub(crate) const MOST_SEQUENCES: u64 = 64;
const MOST_STOP_TOKENS: usize = 64;
/// More than any model has tokens.
const MOST_TOP_K: u64 = 1 << 30;
const LARGEST_MIN_P: f64 = 0.999;
/// What is below it means the likeliest token, as in vLLM.
const NO_TEMPERATURE: f64 = 1e-5;
/// The engine divides by it, in 32 bits.
const TEMPERATURES: std::ops::RangeInclusive<f64> = 0.01..=100.0;

/// What vLLM has and the engine cannot do.
const REFUSED: [&str; 15] = [
    "allowed_token_ids",
    "bad_words",
    "beam_width",
    "best_of",
    "extra_args",
    "length_penalty",
    "logit_bias",
    "logits_processors",
    "lora_name",
    "output_kind",
    "prompt_logprobs",
    "spaces_between_special_tokens",
    "truncate_prompt_tokens",
    "use_beam_search",
    "vllm_xargs",
];

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Sampling {
    pub sequences: usize,
    pub max_tokens: usize,
    pub min_tokens: usize,
    pub stops: Vec<String>,
    pub include_stop: bool,
    pub skip_special: bool,
    /// Whether a prompt gets the special tokens around it; `None`: as is usual for its kind.
    pub add_special: Option<bool>,
    /// How many of the likeliest tokens are to be told beside each.
    pub log_probabilities: Option<u64>,
    pub stop_tokens: Vec<u32>,
    pub ignore_end: bool,
    temperature: f64,
    top_p: f64,
    top_k: u64,
    min_p: f64,
    presence_penalty: f64,
    frequency_penalty: f64,
    repetition_penalty: f64,
    seed: Option<u64>,
    /// That an answer fits.
    schema: Option<String>,
}

impl Default for Sampling {
    fn default() -> Self {
        Self {
            sequences: 1,
            max_tokens: USUAL_TOKENS,
            min_tokens: 0,
            stops: Vec::new(),
            include_stop: false,
            skip_special: true,
            add_special: None,
            log_probabilities: None,
            stop_tokens: Vec::new(),
            ignore_end: false,
            temperature: 1.0,
            top_p: 1.0,
            top_k: 0,
            min_p: 0.0,
            presence_penalty: 0.0,
            frequency_penalty: 0.0,
            repetition_penalty: 1.0,
            seed: None,
            schema: None,
        }
    }
}

impl Sampling {
    /// The answer in a chat may be as long as there is room.
    fn usual(kind: PromptKind) -> Self {
        let max_tokens = if kind == PromptKind::Chat { usize::MAX } else { USUAL_TOKENS };
        Self { max_tokens, ..Self::default() }
    }

    /// From a JSON object.
    pub(crate) fn read(text: &str, kind: PromptKind) -> Result<Self, String> {
        if text.len() > MOST_BYTES {
            let bytes = text.len();
            return Err(format!("'sampling_parameters' has {bytes} bytes, expected at most {MOST_BYTES}"));
        }
        let members: Map<String, Value> = serde_json::from_str(text)
            .map_err(|error| format!("'sampling_parameters' is no JSON object: {error}"))?;
        let mut sampling = Self::usual(kind);
        for (name, value) in &members {
            sampling.set(name, value)?;
        }
        sampling.check()?;
        Ok(sampling)
    }

    /// From the parameters of a request.
    pub(crate) fn of(parameters: &[(String, Parameter)], kind: PromptKind) -> Result<Self, String> {
        let mut sampling = Self::usual(kind);
        // a header that came with the request is none of them
        let is_one = |name: &str| !name.contains('-') && name != prompt_kind::PARAMETER;
        for (name, value) in parameters.iter().filter(|(name, _)| is_one(name)) {
            let value = match value {
                Parameter::Bool(value) => json!(value),
                Parameter::Int(value) => json!(value),
                Parameter::Double(value) => json!(value),
                Parameter::String(value) => json!(value),
            };
            sampling.set(name, &value)?;
        }
        sampling.check()?;
        Ok(sampling)
    }

    fn set(&mut self, name: &str, value: &Value) -> Result<(), String> {
        if value.is_null() {
            return Ok(());
        }
        match name {
            "n" => {
                let count = whole(name, value)?;
                if !(1..=MOST_SEQUENCES).contains(&count) {
                    return Err(format!("n must be at least 1 and at most {MOST_SEQUENCES}, got {count}."));
                }
                self.sequences = count as usize;
            }
            "max_tokens" => {
                self.max_tokens = whole(name, value)? as usize;
                if self.max_tokens == 0 {
                    return Err("max_tokens must be at least 1, got 0.".to_owned());
                }
            }
            "min_tokens" => self.min_tokens = whole(name, value)? as usize,
            "temperature" => {
                self.temperature = temperature(name, value)?;
            }
            "top_p" => {
                self.top_p = within(name, value, 1e-6..=1.0, "must be in (0, 1]")?;
            }
            "min_p" => self.min_p = within(name, value, 0.0..=LARGEST_MIN_P, "must be in [0, 1)")?,
            "presence_penalty" => {
                self.presence_penalty = within(name, value, -2.0..=2.0, "must be in [-2, 2]")?;
            }
            "frequency_penalty" => {
                self.frequency_penalty = within(name, value, -2.0..=2.0, "must be in [-2, 2]")?;
            }
            "repetition_penalty" => {
                self.repetition_penalty = within(name, value, 0.01..=100.0, "must be in [0.01, 100]")?;
            }
            "top_k" => self.top_k = if is_minus_one(value) { 0 } else { whole(name, value)?.min(MOST_TOP_K) },
            "seed" => self.seed = if is_minus_one(value) { None } else { Some(whole(name, value)?) },
            "ignore_eos" => self.ignore_end = flag(name, value)?,
            "include_stop_str_in_output" => self.include_stop = flag(name, value)?,
            "add_special_tokens" => self.add_special = Some(flag(name, value)?),
            "skip_special_tokens" => self.skip_special = flag(name, value)?,
            // as it always is
            "detokenize" if flag(name, value)? => {}
            "stop" => self.stops = stops(value)?,
            "stop_token_ids" => self.stop_tokens = stop_tokens(value)?,
            "logprobs" => self.log_probabilities = Some(whole(name, value)?),
            "guided_decoding" | "structured_outputs" => self.schema = schema_of(name, value)?,
            "detokenize" => return Err(unable(name)),
            _ if REFUSED.contains(&name) => return Err(unable(name)),
            _ => return Err(format!("Unexpected keyword argument '{name}' of the sampling parameters")),
        }
        Ok(())
    }

    /// What no parameter says alone.
    fn check(&self) -> Result<(), String> {
        if self.min_tokens > self.max_tokens {
            let (least, most) = (self.min_tokens, self.max_tokens);
            return Err(format!("min_tokens must be less than or equal to max_tokens={most}, got {least}."));
        }
        if self.is_greedy() && self.sequences > 1 {
            return Err(format!("n must be 1 when using greedy sampling, got {}.", self.sequences));
        }
        if self.schema.is_some() && (self.ignore_end || self.min_tokens > 0) {
            return Err(
                "an answer that fits a schema ends by itself: ignore_eos and min_tokens do not go with it"
                    .to_owned(),
            );
        }
        // of the engine only the probability of the token is known that it took
        let known = u64::from(self.takes_the_likeliest());
        match self.log_probabilities {
            Some(asked) if asked > known => Err(format!(
                "logprobs must be at most {known} here, got {asked}: the engine knows the probability of the token that it takes, \
                 and no other"
            )),
            _ => Ok(()),
        }
    }

    fn is_greedy(&self) -> bool {
        self.temperature == 0.0
    }

    /// Whether each token is the likeliest one.
    pub(crate) fn takes_the_likeliest(&self) -> bool {
        let penalties = (self.presence_penalty, self.frequency_penalty, self.repetition_penalty);
        self.is_greedy() && penalties == (0.0, 0.0, 1.0) && self.min_tokens == 0
    }

    /// What each of the texts is drawn with.
    pub(crate) fn seeds(&self, drawn: impl FnOnce() -> u64) -> impl Iterator<Item = u64> {
        let first = self.seed.unwrap_or_else(drawn);
        (0..self.sequences as u64).map(move |number| first.wrapping_add(number))
    }

    /// As the engine's own configuration has it. `ends`: the tokens with which the model ends an answer;
    /// `likely`: whether it is asked how likely each token was.
    pub(crate) fn order(&self, max_tokens: usize, ends: &[u32], likely: bool, seed: u64) -> String {
        // one that ignores its end ignores all others: they are found by whoever reads its tokens
        let mut stop_tokens = Vec::new();
        if !self.ignore_end {
            stop_tokens.extend_from_slice(&self.stop_tokens);
            stop_tokens.extend_from_slice(ends);
            stop_tokens.sort_unstable();
            stop_tokens.dedup();
        }
        let mut order = json!({
            "max_new_tokens": max_tokens,
            "min_new_tokens": self.min_tokens.min(max_tokens),
            "ignore_eos": self.ignore_end,
            "stop_token_ids": stop_tokens,
            "presence_penalty": self.presence_penalty,
            "frequency_penalty": self.frequency_penalty,
            "repetition_penalty": self.repetition_penalty,
            "logprobs": u8::from(likely),
        });
        if let Some(schema) = &self.schema {
            order["json_schema"] = json!(schema);
        }
        if let Some(end) = stop_tokens.first() {
            order["eos_token_id"] = json!(end);
        }
        if !self.is_greedy() {
            order["do_sample"] = json!(true);
            order["temperature"] = json!(self.temperature);
            order["top_p"] = json!(self.top_p);
            order["min_p"] = json!(self.min_p);
            order["rng_seed"] = json!(seed);
            if self.top_k > 0 {
                order["top_k"] = json!(self.top_k);
            }
        }
        order.to_string()
    }
}

/// By the names of vLLM, old and new.
fn schema_of(name: &str, value: &Value) -> Result<Option<String>, String> {
    let members = match value {
        Value::String(text) => serde_json::from_str(text).ok(),
        other => other.as_object().cloned(),
    };
    let members: Map<String, Value> =
        members.ok_or_else(|| format!("{name} must be an object, got {value}"))?;
    let mut found = None;
    for (member, value) in members.iter().filter(|(_, value)| !value.is_null()) {
        let schema = match (&**member, value) {
            ("json", Value::String(text)) => {
                let read =
                    serde_json::from_str(text).map_err(|error| format!("{name}.json is no JSON: {error}"))?;
                schema::read(&read)?
            }
            ("json", value) => schema::read(value)?,
            ("json_object", Value::Bool(true)) => schema::of_objects(),
            ("json_object", Value::Bool(false)) => continue,
            _ => return Err(unable(&format!("{name}.{member}"))),
        };
        if found.replace(schema).is_some() {
            return Err(format!("{name} has more than one form"));
        }
    }
    Ok(found)
}

fn unable(name: &str) -> String {
    format!("sampling parameter '{name}' is none that this engine can do")
}

/// Numbers come as texts, too: Triton's own examples write them so.
fn number(name: &str, value: &Value) -> Result<f64, String> {
    let number = match value {
        Value::String(text) => text.trim().parse().ok(),
        other => other.as_f64(),
    };
    number
        .filter(|number: &f64| number.is_finite())
        .ok_or_else(|| format!("{name} must be a number, got {value}"))
}

fn whole(name: &str, value: &Value) -> Result<u64, String> {
    let exact = match value {
        Value::String(text) => text.trim().parse().ok(),
        other => other.as_u64(),
    };
    let number = match exact {
        Some(number) => return Ok(number),
        None => number(name, value)?,
    };
    let is_whole = number >= 0.0 && number.fract() == 0.0 && number < 9e15;
    if is_whole {
        Ok(number as u64)
    } else {
        Err(format!("{name} must be a whole number from 0 on, got {value}"))
    }
}

fn within(
    name: &str,
    value: &Value,
    range: std::ops::RangeInclusive<f64>,
    rule: &str,
) -> Result<f64, String> {
    let number = number(name, value)?;
    if range.contains(&number) { Ok(number) } else { Err(format!("{name} {rule}, got {number}.")) }
}

/// One that is nearly nothing is none.
fn temperature(name: &str, value: &Value) -> Result<f64, String> {
    let temperature =
        within(name, value, 0.0..=*TEMPERATURES.end(), "must be non-negative, and 100 at most")?;
    Ok(if temperature < NO_TEMPERATURE { 0.0 } else { temperature.max(*TEMPERATURES.start()) })
}

fn is_minus_one(value: &Value) -> bool {
    value.as_i64() == Some(-1) || value.as_str().is_some_and(|text| text.trim() == "-1")
}

fn flag(name: &str, value: &Value) -> Result<bool, String> {
    match value {
        Value::Bool(flag) => Ok(*flag),
        Value::String(text) if text.eq_ignore_ascii_case("true") => Ok(true),
        Value::String(text) if text.eq_ignore_ascii_case("false") => Ok(false),
        _ => Err(format!("{name} must be true or false, got {value}")),
    }
}

fn stops(value: &Value) -> Result<Vec<String>, String> {
    let wrong = || format!("stop must be a text or a list of texts, got {value}");
    let stops: Vec<String> = match value {
        Value::String(text) => vec![text.clone()],
        Value::Array(texts) => {
            let texts = texts.iter().map(|text| text.as_str().map(str::to_owned));
            texts.collect::<Option<_>>().ok_or_else(wrong)?
        }
        _ => return Err(wrong()),
    };
    if stops.iter().any(String::is_empty) {
        return Err("stop cannot contain an empty string.".to_owned());
    }
    if stops.len() > MOST_STOPS || stops.iter().any(|stop| stop.len() > LONGEST_STOP) {
        return Err(format!("stop may have {MOST_STOPS} texts of {LONGEST_STOP} bytes each at most"));
    }
    Ok(stops)
}

fn stop_tokens(value: &Value) -> Result<Vec<u32>, String> {
    let token = |value: &Value| value.as_u64().and_then(|token| i32::try_from(token).ok());
    let tokens = value.as_array().filter(|tokens| tokens.len() <= MOST_STOP_TOKENS);
    let tokens: Option<Vec<i32>> = tokens.and_then(|tokens| tokens.iter().map(token).collect());
    tokens.map(|tokens| tokens.into_iter().map(i32::cast_unsigned).collect()).ok_or_else(|| {
        format!("stop_token_ids must be a list of {MOST_STOP_TOKENS} tokens at most, got {value}")
    })
}
