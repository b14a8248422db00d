//! Chat templates: Jinja, as the library transformers has it.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io;

use minijinja::syntax::SyntaxConfig;
use minijinja::value::Kwargs;
use minijinja::{Environment, Error, ErrorKind, Value};

use super::Conversation;
use super::python_json;

const NAME: &str = "chat_template";
/// So many steps a template may take.
const FUEL: u64 = 500_000;
const MOST_RECURSION: usize = 64;

/// A template, read once.
pub struct ChatTemplate {
    environment: Environment<'static>,
    /// The special tokens that it may name, each with its text.
    special: Vec<(String, String)>,
}

impl ChatTemplate {
    pub fn new(source: &str, special: Vec<(String, String)>) -> Result<Self, String> {
        let mut environment = Environment::new();
        environment.set_syntax(syntax().map_err(|error| said(&error))?);
        environment.set_fuel(Some(FUEL));
        environment.set_recursion_limit(MOST_RECURSION);
        environment.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
        environment
            .add_filter("tojson", |value: Value, options: Kwargs| python_json::filter(&value, &options));
        environment.add_function("raise_exception", raise);
        environment.add_function("strftime_now", now);
        environment.add_template_owned(NAME, without_marks(source)).map_err(|error| said(&error))?;
        Ok(Self { environment, special })
    }

    /// The prompt. Fails where it is longer than `most` bytes, and where the template does.
    pub fn render(&self, conversation: &Conversation, most: usize) -> Result<String, String> {
        let template = self.environment.get_template(NAME).map_err(|error| said(&error))?;
        let special = self.special.iter().map(|(name, text)| (name.clone(), Value::from(text.clone())));
        let own = [
            ("messages", conversation.messages.clone()),
            ("tools", conversation.tools.clone()),
            ("documents", Value::from(())),
            ("add_generation_prompt", conversation.begins_answer.into()),
        ];
        let own = own.map(|(name, value)| (name.to_owned(), value));
        let named = special.chain(conversation.named.iter().cloned()).chain(own);
        let context = Value::from_object(named.collect::<BTreeMap<String, Value>>());
        let mut out = Bounded { text: Vec::new(), most };
        let made = template.render_captured_to(context, &mut out).map(drop);
        if out.text.len() > most {
            return Err(format!("the chat makes a prompt of more than {most} bytes"));
        }
        made.map_err(|error| said(&error))?;
        String::from_utf8(out.text).map_err(|error| error.to_string())
    }
}

fn syntax() -> Result<SyntaxConfig, Error> {
    SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build()
}

/// Takes no more than there may be.
struct Bounded {
    text: Vec<u8>,
    most: usize,
}

impl io::Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.text.len() <= self.most {
            self.text.extend_from_slice(bytes);
        }
        if self.text.len() > self.most {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Templates that models were trained with mark what their answers were: here it changes nothing.
fn without_marks(source: &str) -> String {
    let mut out = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(begin) = rest.find("{%") {
        let (before, tag) = rest.split_at(begin);
        out.push_str(before);
        let Some(end) = tag.find("%}") else {
            rest = tag;
            break;
        };
        let (tag, behind) = tag.split_at(end + 2);
        match tag.trim_matches(['{', '}', '%', '-', '+']).trim() {
            "generation" => out.push_str(&tag.replacen("generation", "if true", 1)),
            "endgeneration" => out.push_str(&tag.replacen("endgeneration", "endif", 1)),
            _ => out.push_str(tag),
        }
        rest = behind;
    }
    out.push_str(rest);
    out
}

fn raise(text: &str) -> Result<Value, Error> {
    Err(Error::new(ErrorKind::InvalidOperation, text.to_owned()))
}

fn now(format: &str) -> Result<String, Error> {
    let mut out = String::new();
    write!(out, "{}", chrono::Utc::now().format(format))
        .map_err(|_| Error::new(ErrorKind::InvalidOperation, format!("'{format}' is no form of a date")))?;
    Ok(out)
}

/// Without where in the template it was, unless it is the template's own fault.
fn said(error: &Error) -> String {
    match (error.kind(), error.detail()) {
        (ErrorKind::OutOfFuel, _) => "the chat takes the template too many steps".to_owned(),
        (ErrorKind::InvalidOperation, Some(detail)) => format!("the chat template refuses it: {detail}"),
        _ => format!("the chat template fails: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHATML: &str = "{% for message in messages %}
{{ '<|im_start|>' + message['role'] + '\\n' + message.content | trim + '<|im_end|>' + '\\n' }}{% endfor %}
{% if add_generation_prompt %}
{{ '<|im_start|>assistant\\n' }}{% endif %}";

    fn conversation(json: &str) -> Conversation {
        Conversation::read(json).expect(json)
    }

    fn rendered(source: &str, json: &str) -> Result<String, String> {
        let special = vec![("bos_token".to_owned(), "<s>".to_owned())];
        ChatTemplate::new(source, special).and_then(|template| template.render(&conversation(json), 10_000))
    }

    const HELLO: &str = r#"{"messages": [{"role": "user", "content": " hello "}]}"#;

    #[test]
    fn a_chat_becomes_what_the_template_says() {
        let expected = "<|im_start|>user\nhello<|im_end|>\n<|im_start|>assistant\n";
        assert_eq!(rendered(CHATML, HELLO).as_deref(), Ok(expected));
        let without = HELLO.replace("]}", r#"], "add_generation_prompt": false}"#);
        assert_eq!(rendered(CHATML, &without).as_deref(), Ok("<|im_start|>user\nhello<|im_end|>\n"));
    }

    #[test]
    fn what_templates_are_made_with_is_there() {
        for (source, expected) in [
            ("{{ bos_token }}{{ messages[0].content.strip().upper() }}", "<s>HELLO"),
            ("{% if tools %}t{% else %}n{% endif %}{{ tools is none }}", "nTrue"),
            ("{% if 'Hello'.startswith('He') and messages[-1]['role'] == 'user' %}y{% endif %}", "y"),
            (
                "{% set ns = namespace(a=1) %}{% for m in messages %}{% set ns.a = ns.a + 1 %}{% endfor %}{{ ns.a }}",
                "2",
            ),
            ("{% generation %}a{%- endgeneration -%} b", "ab"),
            ("{% for i in [1, 2, 3] %}{% if i == 2 %}{% continue %}{% endif %}{{ i }}{% endfor %}", "13"),
            ("{{ strftime_now('%Y') | length }}", "4"),
            ("{% for k, v in {'a': 1, 'b': 2}.items() %}{{ k }}{{ v }}{% endfor %}", "a1b2"),
            ("{{ [1, 2] | tojson }}{{ 'ä\"' | tojson }}", r#"[1, 2]"ä\"""#),
            ("{{ {'b': [1.0, true, none], 'a': {}} | tojson }}", r#"{"b": [1.0, true, null], "a": {}}"#),
            ("{{ {'b': [1], 'a': []} | tojson(indent=2) }}", "{\n  \"b\": [\n    1\n  ],\n  \"a\": []\n}"),
            (
                "{{ {'b': 1, 'a': 'ä'} | tojson(sort_keys=true, ensure_ascii=true) }}",
                r#"{"a": "\u00e4", "b": 1}"#,
            ),
            ("{{ {'b': 1, 'a': 2} | tojson(separators=(',', ':')) }}", r#"{"b":1,"a":2}"#),
            ("{{ nobody }}x", "x"),
        ] {
            assert_eq!(rendered(source, HELLO).as_deref(), Ok(expected), "{source}");
        }
    }

    #[test]
    fn what_goes_wrong_is_said() {
        for (source, expected) in [
            ("{{ raise_exception('only users') }}", "the chat template refuses it: only users"),
            (
                "{% for i in range(10000) %}{% for k in range(10000) %}{% endfor %}{% endfor %}",
                "too many steps",
            ),
            ("{% for i in range(10000) %}0123456789{% endfor %}", "more than 10000 bytes"),
            ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "the chat template"),
            ("{% if %}", "the chat template fails"),
            ("{{ strftime_now('%Q') }}", "no form of a date"),
        ] {
            let text = rendered(source, HELLO).expect_err(source);
            assert!(text.contains(expected), "{source}: {text}");
        }
    }

    #[test]
    fn a_request_may_tell_the_template_more() {
        let json = HELLO.replace("]}", r#"], "chat_template_kwargs": {"enable_thinking": false}}"#);
        let source = "{{ enable_thinking is defined and enable_thinking is false }}";
        assert_eq!(rendered(source, &json).as_deref(), Ok("True"));
        assert_eq!(rendered(source, HELLO).as_deref(), Ok("False"));
    }
}
