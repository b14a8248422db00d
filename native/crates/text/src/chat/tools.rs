//! Calls of tools in what a model writes: found while it comes, and kept out of the text.

use std::str::FromStr;

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::stop::overlap;

const OPEN: &str = "<tool_call>";
const CLOSE: &str = "</tool_call>";
const PYTHON_TAG: &str = "<|python_tag|>";
/// What comes behind it is text, whatever it looks like.
const MOST_BYTES: usize = 256 << 10;
const MOST_CALLS: usize = 128;

/// How a model writes that it calls a tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ToolForm {
    /// An object between `<tool_call>` and `</tool_call>`, as Hermes and Qwen do.
    Hermes,
    /// Nothing but an object, or several with semicolons between them, as Llama 3 does.
    Llama,
}

impl FromStr for ToolForm {
    type Err = ();

    fn from_str(name: &str) -> Result<Self, ()> {
        match name {
            "hermes" => Ok(Self::Hermes),
            "llama" => Ok(Self::Llama),
            _ => Err(()),
        }
    }
}

impl ToolForm {
    /// The mark of a call, if it is one of the tokens that texts leave out.
    pub fn mark(self) -> Option<&'static str> {
        (self == Self::Hermes).then_some(OPEN)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolCall {
    pub name: String,
    /// JSON, as the model has written it.
    pub arguments: String,
}

/// Takes a text in pieces, and lets out what belongs to no call.
#[derive(Clone, Debug)]
pub struct ToolStream {
    form: ToolForm,
    /// Where more than one is not wanted, no text follows the first one.
    most: usize,
    held: String,
    calls: Vec<ToolCall>,
    /// The text has begun otherwise than a call does.
    is_text: bool,
}

impl ToolStream {
    pub fn new(form: ToolForm, several: bool) -> Self {
        let most = if several { MOST_CALLS } else { 1 };
        Self { form, most, held: String::new(), calls: Vec::new(), is_text: false }
    }

    /// What can be let out of it.
    pub fn take(&mut self, piece: &str) -> String {
        if self.has_all() {
            return String::new();
        }
        self.held.push_str(piece);
        match self.form {
            ToolForm::Hermes => self.take_marked(),
            ToolForm::Llama => self.take_whole(),
        }
    }

    /// Whether no call may follow those that have come.
    pub fn has_all(&self) -> bool {
        self.calls.len() >= self.most
    }

    /// What was held back and is no call, where nothing follows.
    pub fn finish(&mut self) -> String {
        let rest = std::mem::take(&mut self.held);
        if self.has_all() {
            return String::new();
        }
        let whole = match self.form {
            // the end of the last one may be missing
            ToolForm::Hermes => rest.trim_start().strip_prefix(OPEN).and_then(one).map(|call| vec![call]),
            ToolForm::Llama if self.is_text => None,
            ToolForm::Llama => several(&rest),
        };
        match whole {
            Some(calls) => {
                self.calls.extend(calls);
                self.calls.truncate(self.most);
                String::new()
            }
            None if self.calls.is_empty() || !rest.trim().is_empty() => rest,
            None => String::new(),
        }
    }

    pub fn calls(&self) -> &[ToolCall] {
        &self.calls
    }

    fn take_marked(&mut self) -> String {
        let mut out = String::new();
        while !self.has_all() {
            let Some(begin) = self.held.find(OPEN) else { break };
            let inside = begin + OPEN.len();
            let Some(length) = self.held[inside..].find(CLOSE) else {
                if self.held.len() - begin > MOST_BYTES {
                    out.push_str(&std::mem::take(&mut self.held));
                }
                break;
            };
            let end = inside + length + CLOSE.len();
            let before = &self.held[..begin];
            match one(&self.held[inside..inside + length]) {
                Some(call) => {
                    // blanks in front of a call only part it from others
                    out.push_str(before.trim_end());
                    self.calls.push(call);
                }
                None => out.push_str(&self.held[..end]),
            }
            self.held.drain(..end);
        }
        if self.has_all() {
            self.held.clear();
            return out;
        }
        out.push_str(&self.let_out_before_mark());
        out
    }

    /// What comes before the place where a call begins, or may begin.
    fn let_out_before_mark(&mut self) -> String {
        let begin = self.held.find(OPEN).unwrap_or_else(|| self.held.len() - overlap(&self.held, OPEN));
        let before = &self.held[..begin];
        // blanks may belong to what follows
        let kept = before.trim_end().len();
        if kept == 0 {
            return String::new();
        }
        let rest = self.held.split_off(kept);
        std::mem::replace(&mut self.held, rest)
    }

    fn take_whole(&mut self) -> String {
        if !self.is_text {
            let begun = self.held.trim_start();
            let begun = begun.strip_prefix(PYTHON_TAG).map_or(begun, str::trim_start);
            let may_be_call = begun.is_empty() || begun.starts_with('{') || PYTHON_TAG.starts_with(begun);
            self.is_text = !may_be_call || self.held.len() > MOST_BYTES;
        }
        if self.is_text { std::mem::take(&mut self.held) } else { String::new() }
    }
}

#[derive(Deserialize)]
struct Written<'a> {
    name: String,
    #[serde(borrow, alias = "parameters")]
    arguments: Option<&'a RawValue>,
}

fn one(text: &str) -> Option<ToolCall> {
    call(serde_json::from_str(text.trim()).ok()?)
}

/// Objects, with nothing but semicolons and blanks between them.
fn several(text: &str) -> Option<Vec<ToolCall>> {
    let text = text.trim();
    let mut rest = text.strip_prefix(PYTHON_TAG).unwrap_or(text).trim();
    let mut calls = Vec::new();
    while !rest.is_empty() && calls.len() < MOST_CALLS {
        let mut objects = serde_json::Deserializer::from_str(rest).into_iter::<Written<'_>>();
        calls.push(call(objects.next()?.ok()?)?);
        rest = rest[objects.byte_offset()..].trim_start_matches(|c: char| c == ';' || c.is_whitespace());
    }
    (rest.is_empty() && !calls.is_empty()).then_some(calls)
}

fn call(written: Written<'_>) -> Option<ToolCall> {
    let Written { name, arguments } = written;
    let arguments = arguments.map_or("{}", RawValue::get);
    // some write the object as a text of JSON
    let text: Option<String> = serde_json::from_str(arguments).ok();
    (!name.is_empty()).then(|| ToolCall { name, arguments: text.unwrap_or_else(|| arguments.to_owned()) })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn all(form: ToolForm, several: bool, pieces: &[&str]) -> (String, Vec<(String, String)>) {
        let mut stream = ToolStream::new(form, several);
        let mut text: String = pieces.iter().map(|piece| stream.take(piece)).collect();
        text.push_str(&stream.finish());
        let calls = stream.calls().iter().map(|call| (call.name.clone(), call.arguments.clone()));
        (text, calls.collect())
    }

    fn call(name: &str, arguments: &str) -> (String, String) {
        (name.to_owned(), arguments.to_owned())
    }

    const F: &str = "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1}}\n</tool_call>";
    const G: &str = "<tool_call>{\"name\": \"g\", \"arguments\": \"{}\"}</tool_call>";

    #[test]
    fn marked_calls_are_taken_out_of_the_text() {
        let both = format!("I look. {F}\n{G}\n");
        let (text, calls) = all(ToolForm::Hermes, true, &[&both]);
        assert_eq!((&*text, calls), ("I look.", vec![call("f", "{\"a\": 1}"), call("g", "{}")]));
        assert_eq!(all(ToolForm::Hermes, false, &[&both]).1, [call("f", "{\"a\": 1}")]);
    }

    #[test]
    fn what_only_looks_like_a_call_is_text() {
        for text in ["<tool_call>nothing</tool_call>.", "a < b <tool", "<tool_call>", "  ", "a \n"] {
            assert_eq!(all(ToolForm::Hermes, true, &[text]), (text.to_owned(), vec![]));
        }
        for text in ["{\"a\": 1}", "{\"name\": \"f\"} and more", "hello {", "{", "<|python"] {
            assert_eq!(all(ToolForm::Llama, true, &[text]), (text.to_owned(), vec![]));
        }
    }

    #[test]
    fn the_end_of_the_last_call_may_be_missing() {
        let cut = F.strip_suffix("</tool_call>").expect("its end");
        assert_eq!(all(ToolForm::Hermes, true, &[cut]), (String::new(), vec![call("f", "{\"a\": 1}")]));
    }

    #[test]
    fn objects_alone_are_calls() {
        let one = "{\"name\": \"f\", \"parameters\": {\"a\": \"}\"}}";
        let f = call("f", "{\"a\": \"}\"}");
        assert_eq!(all(ToolForm::Llama, true, &[one]), (String::new(), vec![f.clone()]));
        let two = format!("<|python_tag|>{one}; {{\"name\": \"g\"}}\n");
        assert_eq!(all(ToolForm::Llama, true, &[&two]), (String::new(), vec![f.clone(), call("g", "{}")]));
        assert_eq!(all(ToolForm::Llama, false, &[&two]).1, [f]);
    }

    #[test]
    fn text_is_let_out_at_once() {
        let mut stream = ToolStream::new(ToolForm::Hermes, true);
        assert_eq!(
            ["Hello", " wor", "ld<", "b>"].map(|piece| stream.take(piece)),
            ["Hello", " wor", "ld", "<b>"]
        );
        let mut stream = ToolStream::new(ToolForm::Llama, true);
        assert_eq!(["He", "llo"].map(|piece| stream.take(piece)), ["He", "llo"]);
    }

    #[test]
    fn what_never_ends_is_let_out() {
        let mut stream = ToolStream::new(ToolForm::Hermes, true);
        let _ = stream.take(OPEN);
        let long = "x".repeat(MOST_BYTES);
        assert_eq!(stream.take(&long).len(), OPEN.len() + MOST_BYTES);
    }

    proptest! {
        #[test]
        fn pieces_give_what_the_whole_gives(
            parts in prop::collection::vec(prop_oneof![
                Just(F), Just(G), Just(" "), Just("\n"), Just("ä"), Just("<tool"), Just("{\"name\": \"f\"}"), Just(";")
            ], 0..6),
            cuts in prop::collection::vec(1usize..9, 0..200),
            several: bool,
            hermes: bool,
        ) {
            let form = if hermes { ToolForm::Hermes } else { ToolForm::Llama };
            let whole = parts.concat();
            let mut pieces = Vec::new();
            let mut rest = &*whole;
            for cut in cuts {
                let at = (cut.min(rest.len())..=rest.len()).find(|&at| rest.is_char_boundary(at)).unwrap_or_default();
                let (piece, behind) = rest.split_at(at);
                pieces.push(piece);
                rest = behind;
            }
            pieces.push(rest);
            prop_assert_eq!(all(form, several, &pieces), all(form, several, &[&whole]));
        }
    }
}
