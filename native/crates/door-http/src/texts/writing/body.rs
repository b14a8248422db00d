//! What bodies ask. A member that is not known is refused, and so is one that asks for what is not done: nothing is taken
//! and ignored.

use kushi_core::Error;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;

use super::form::ResponseFormat;
use super::members::{Members, value};
use crate::texts::given::{Given, Texts};

/// Of one body, each a request to the model.
const MOST_PROMPTS: usize = 64;
/// They go with each prompt.
const MOST_SAMPLING_BYTES: usize = 64 << 10;
/// How tokens follow, by the names that the model has for it.
const SAMPLING: [&str; 15] = [
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "presence_penalty",
    "frequency_penalty",
    "repetition_penalty",
    "seed",
    "n",
    "stop",
    "min_tokens",
    "ignore_eos",
    "stop_token_ids",
    "include_stop_str_in_output",
    "skip_special_tokens",
];
/// Members of a chat that the model reads itself.
const OF_CHAT: [&str; 6] = [
    "messages",
    "tools",
    "tool_choice",
    "parallel_tool_calls",
    "add_generation_prompt",
    "chat_template_kwargs",
];
/// Nothing of an answer depends on them.
const WITHOUT_EFFECT: [&str; 5] =
    ["user", "metadata", "safety_identifier", "prompt_cache_key", "prompt_cache_retention"];

/// How clients ask, and want to be answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Style {
    Chat,
    Completion,
}

/// What is asked of a model.
#[derive(Debug)]
pub(super) struct Asked {
    pub style: Style,
    /// By its name; `None`: the only one that there is.
    pub model: Option<String>,
    /// As the model reads them.
    pub prompts: Vec<String>,
    /// What they are, in the words of the model.
    pub kind: &'static str,
    /// A JSON object.
    pub sampling: String,
    pub streams: bool,
    /// Whether a stream ends by telling how many tokens there were.
    pub tells_usage: bool,
    /// Whether each token is told with its probability, and with so many of the likeliest beside it.
    pub log_probabilities: Option<u64>,
    /// Whether an answer begins with its prompt.
    pub echoes: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct StreamOptions {
    include_usage: Option<bool>,
    include_obfuscation: Option<bool>,
}

pub(super) fn read(style: Style, body: &[u8]) -> Result<Asked, Error> {
    let members: Members<'_> = serde_json::from_slice(body)
        .map_err(|error| Error::invalid(format!("the body cannot be read: {error}")))?;
    let mut reading = Reading::default();
    for (name, raw) in &members.0 {
        if raw.get() != "null" {
            reading.member(style, name, raw)?;
        }
    }
    reading.finish(style)
}

#[derive(Default)]
struct Reading<'a> {
    model: Option<String>,
    given: Option<Given>,
    chat: Vec<(&'a str, &'a RawValue)>,
    sampling: Vec<(&'a str, &'a RawValue)>,
    max_tokens: Option<&'a RawValue>,
    streams: bool,
    options: Option<StreamOptions>,
    tells_tokens: bool,
    likeliest: Option<u64>,
    echoes: bool,
    best_of: Option<&'a RawValue>,
    /// That an answer has to have.
    form: Option<String>,
}

impl<'a> Reading<'a> {
    fn member(&mut self, style: Style, name: &'a str, raw: &'a RawValue) -> Result<(), Error> {
        let is_chat = style == Style::Chat;
        match name {
            "model" => self.model = Some(value(name, raw)?),
            "stream" => self.streams = value(name, raw)?,
            "stream_options" => self.options = Some(value(name, raw)?),
            "max_tokens" | "max_completion_tokens" if name == "max_tokens" || is_chat => {
                if self.max_tokens.replace(raw).is_some() {
                    return Err(Error::invalid(
                        "'max_tokens' and 'max_completion_tokens' are the same, expected one",
                    ));
                }
            }
            "prompt" if !is_chat => self.given = Some(value(name, raw)?),
            "echo" if !is_chat => self.echoes = value(name, raw)?,
            "best_of" if !is_chat => self.best_of = Some(raw),
            "logprobs" if is_chat => self.tells_tokens = value(name, raw)?,
            "logprobs" => self.likeliest = Some(value(name, raw)?),
            "top_logprobs" if is_chat => self.likeliest = Some(value(name, raw)?),
            "response_format" if is_chat => {
                self.form = value::<ResponseFormat>(name, raw)?.told()?;
            }
            "modalities" if is_chat => {
                if value::<Vec<String>>(name, raw)? != ["text"] {
                    return Err(Error::invalid(
                        "'modalities' is more than [\"text\"], and the model writes texts alone",
                    ));
                }
            }
            "suffix" if !is_chat && value::<String>(name, raw)?.is_empty() => {}
            "store" if !value::<bool>(name, raw)? => {}
            "logit_bias" if value::<IgnoredEmpty>(name, raw)?.0 => {}
            "service_tier" if matches!(&*value::<String>(name, raw)?, "auto" | "default") => {}
            "suffix" | "store" | "logit_bias" | "service_tier" => {
                return Err(Error::invalid(format!("'{name}' asks for what is not done here")));
            }
            _ if is_chat && OF_CHAT.contains(&name) => self.chat.push((name, raw)),
            _ if SAMPLING.contains(&name) => self.sampling.push((name, raw)),
            "add_special_tokens" => self.sampling.push((name, raw)),
            _ if WITHOUT_EFFECT.contains(&name) => {}
            _ => return Err(Error::invalid(format!("Unrecognized request argument supplied: {name}"))),
        }
        Ok(())
    }

    fn finish(mut self, style: Style) -> Result<Asked, Error> {
        let log_probabilities = self.log_probabilities(style)?;
        if let Some(raw) = self.max_tokens {
            self.sampling.push(("max_tokens", raw));
        }
        let count = |raw: &RawValue| raw.get().to_owned();
        let n = self
            .sampling
            .iter()
            .find(|(name, _)| *name == "n")
            .map_or_else(|| "1".to_owned(), |(_, raw)| count(raw));
        if self.best_of.is_some_and(|best| count(best) != n) {
            return Err(Error::invalid(
                "'best_of' is another number than 'n': all that is written is answered",
            ));
        }
        if self.echoes && log_probabilities.is_some() {
            return Err(Error::invalid("'logprobs' are those of the answer, which 'echo' does not go with"));
        }
        if self.echoes && self.streams {
            return Err(Error::invalid("'echo' asks for what a stream does not have: its prompt"));
        }
        let options = match self.options {
            Some(_) if !self.streams => {
                return Err(Error::invalid("'stream_options' is only allowed when 'stream' is true"));
            }
            options => options,
        };
        if options.as_ref().and_then(|options| options.include_obfuscation) == Some(true) {
            return Err(Error::invalid(
                "'stream_options.include_obfuscation' asks for what is not done here",
            ));
        }
        let (prompts, kind) = match style {
            Style::Chat => (vec![chat(&self.chat)?], "chat"),
            Style::Completion => prompts(self.given)?,
        };
        let sampling = sampling(&self.sampling, log_probabilities, self.form.as_deref());
        if sampling.len() > MOST_SAMPLING_BYTES {
            let bytes = sampling.len();
            return Err(Error::invalid(format!(
                "all that says how tokens follow has {bytes} bytes, expected at most {MOST_SAMPLING_BYTES}"
            )));
        }
        Ok(Asked {
            style,
            model: self.model,
            prompts,
            kind,
            sampling,
            streams: self.streams,
            tells_usage: options.and_then(|options| options.include_usage).unwrap_or_default(),
            log_probabilities,
            echoes: self.echoes,
        })
    }

    fn log_probabilities(&self, style: Style) -> Result<Option<u64>, Error> {
        match (style, self.tells_tokens, self.likeliest) {
            (Style::Completion, _, likeliest) => Ok(likeliest),
            (Style::Chat, true, likeliest) => Ok(Some(likeliest.unwrap_or_default())),
            (Style::Chat, false, None | Some(0)) => Ok(None),
            (Style::Chat, false, Some(_)) => {
                Err(Error::invalid("'top_logprobs' is only allowed when 'logprobs' is true"))
            }
        }
    }
}

/// Whether an object has no member.
struct IgnoredEmpty(bool);

impl<'de> Deserialize<'de> for IgnoredEmpty {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let members = std::collections::HashMap::<String, IgnoredAny>::deserialize(deserializer)?;
        Ok(Self(members.is_empty()))
    }
}

/// The object that the model reads.
fn chat(members: &[(&str, &RawValue)]) -> Result<String, Error> {
    if !members.iter().any(|(name, _)| *name == "messages") {
        return Err(Error::invalid("'messages' is missing"));
    }
    Ok(object(members))
}

fn prompts(given: Option<Given>) -> Result<(Vec<String>, &'static str), Error> {
    let given = given.ok_or_else(|| Error::invalid("'prompt' is missing"))?;
    let (prompts, kind): (Vec<String>, _) = match given.texts {
        Texts::Strings(texts) => ((0..texts.len()).map(|at| texts.get(at).to_owned()).collect(), "text"),
        Texts::Tokens(tokens) => (tokens.iter().map(|tokens| list(tokens)).collect(), "tokens"),
    };
    match prompts.len() {
        0 => Err(Error::invalid("'prompt' is an empty list")),
        1..=MOST_PROMPTS => Ok((prompts, kind)),
        count => Err(Error::invalid(format!("there are {count} prompts, expected at most {MOST_PROMPTS}"))),
    }
}

fn list(tokens: &[u32]) -> String {
    let tokens: Vec<String> = tokens.iter().map(u32::to_string).collect();
    format!("[{}]", tokens.join(","))
}

fn sampling(members: &[(&str, &RawValue)], log_probabilities: Option<u64>, form: Option<&str>) -> String {
    let mut written = object(members);
    let likely = log_probabilities.map(|count| format!("\"logprobs\":{count}"));
    let form = form.map(|form| format!("\"structured_outputs\":{form}"));
    for more in likely.into_iter().chain(form) {
        let separator = if written == "{}" { "" } else { "," };
        written.pop();
        written.extend([separator, &more, "}"]);
    }
    written
}

fn object(members: &[(&str, &RawValue)]) -> String {
    let mut written = "{".to_owned();
    for (at, (name, raw)) in members.iter().enumerate() {
        if at > 0 {
            written.push(',');
        }
        written.extend(["\"", name, "\":", raw.get()]);
    }
    written.push('}');
    written
}

impl Asked {
    /// What it holds.
    pub(super) fn bytes(&self) -> usize {
        let prompts = self.prompts.iter().map(|prompt| prompt.len() + self.sampling.len());
        prompts.sum()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const CHAT: &str = r#"{"model":"m","messages":[{"role":"user","content":"a\u00e9"}],"temperature":0.5,"n":2,"max_tokens":5,
        "stream":true,"stream_options":{"include_usage":true},"tools":[],"logprobs":true,"top_logprobs":1,"stop":["x"]}"#;

    fn fault(style: Style, body: &str) -> String {
        read(style, body.as_bytes()).expect_err(body).message.into_owned()
    }

    #[test]
    fn a_chat_goes_on_as_it_was_written() {
        let asked = read(Style::Chat, CHAT.as_bytes()).expect("a chat");
        assert_eq!(asked.prompts, [r#"{"messages":[{"role":"user","content":"a\u00e9"}],"tools":[]}"#]);
        assert_eq!(asked.sampling, r#"{"temperature":0.5,"n":2,"stop":["x"],"max_tokens":5,"logprobs":1}"#);
        assert_eq!((asked.kind, asked.streams, asked.tells_usage), ("chat", true, true));
    }

    #[test]
    fn prompts_are_texts_or_tokens() {
        for (json, prompts, kind) in [
            (r#""a""#, vec!["a"], "text"),
            (r#"["a", "b"]"#, vec!["a", "b"], "text"),
            ("[1, 2]", vec!["[1,2]"], "tokens"),
            ("[[1], [2, 3]]", vec!["[1]", "[2,3]"], "tokens"),
        ] {
            let asked = read(Style::Completion, format!(r#"{{"prompt": {json}}}"#).as_bytes()).expect(json);
            assert_eq!(
                (asked.prompts, asked.kind, &*asked.sampling),
                (prompts.into_iter().map(str::to_owned).collect(), kind, "{}")
            );
        }
    }

    #[test]
    fn what_cannot_be_done_is_refused_by_its_name() {
        let user = r#""messages": [{"role": "user", "content": "a"}]"#;
        for (style, members, expected) in [
            (Style::Chat, r#""model": "m""#, "'messages' is missing"),
            (Style::Completion, r#""model": "m""#, "'prompt' is missing"),
            (Style::Completion, r#""prompt": []"#, "'prompt' is an empty list"),
            (Style::Completion, r#""prompt": "a", "messages": []"#, "supplied: messages"),
            (Style::Completion, r#""prompt": "a", "suffix": "b""#, "'suffix' asks"),
            (Style::Completion, r#""prompt": "a", "best_of": 2"#, "'best_of' is another number"),
            (Style::Completion, r#""prompt": "a", "echo": true, "stream": true"#, "'echo' asks"),
            (
                Style::Completion,
                r#""prompt": "a", "echo": true, "logprobs": 1"#,
                "'logprobs' are those of the answer",
            ),
            (Style::Completion, r#""prompt": "a", "stream": "x""#, "'stream' cannot be read"),
            (Style::Chat, r#""prompt": "a""#, "supplied: prompt"),
            (Style::Chat, r#""logit_bias": {"1": 2}"#, "'logit_bias' asks"),
            (Style::Chat, r#""store": true"#, "'store' asks"),
            (Style::Chat, r#""modalities": ["text", "audio"]"#, "'modalities' is more"),
            (Style::Chat, r#""response_format": {"type": "json_schema"}"#, "'json_schema' without a schema"),
            (Style::Chat, r#""top_logprobs": 1"#, "'top_logprobs' is only allowed"),
            (Style::Chat, r#""stream_options": {}"#, "'stream_options' is only allowed"),
            (Style::Chat, r#""max_tokens": 1, "max_completion_tokens": 2"#, "are the same"),
            (Style::Chat, r#""reasoning_effort": "low""#, "supplied: reasoning_effort"),
            (Style::Chat, r#""model": 1"#, "'model' cannot be read"),
        ] {
            let more = if style == Style::Chat && !members.contains("model\": \"m") {
                format!("{user}, {members}")
            } else {
                members.to_owned()
            };
            let text = fault(style, &format!("{{{more}}}"));
            assert!(text.contains(expected), "{members}: {text}");
        }
        let stops = format!("{{{user}, \"stop\": \"{}\"}}", "x".repeat(MOST_SAMPLING_BYTES));
        assert!(fault(Style::Chat, &stops).contains("expected at most"));
        assert!(fault(Style::Chat, "[]").contains("expected an object"));
        assert!(fault(Style::Chat, r#"{"model": "a", "model": "b"}"#).contains("duplicate field"));
    }

    #[test]
    fn what_is_null_is_not_there() {
        let body =
            r#"{"prompt": "a", "suffix": null, "logprobs": null, "stream_options": null, "stop": null}"#;
        assert_eq!(read(Style::Completion, body.as_bytes()).expect("a body").sampling, "{}");
    }

    proptest! {
        #[test]
        fn any_bytes_are_answered(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            for style in [Style::Chat, Style::Completion] {
                let _ = read(style, &bytes);
            }
        }

        #[test]
        fn any_change_of_a_valid_document_is_answered(at in 0..CHAT.len(), byte: u8) {
            let mut bytes = CHAT.as_bytes().to_vec();
            bytes[at] = byte;
            let _ = read(Style::Chat, &bytes);
        }
    }
}
