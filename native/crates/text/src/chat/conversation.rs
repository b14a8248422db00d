//! What a chat is made of, as clients of OpenAI write it.

use indexmap::IndexMap;
use minijinja::Value;
use minijinja::value::ValueKind;
use serde::Deserialize;

const MOST_MESSAGES: usize = 4096;
const MOST_TOOLS: usize = 256;
/// What a template knows by itself.
const OWN_NAMES: [&str; 4] = ["messages", "tools", "documents", "add_generation_prompt"];

/// Messages, and how they are to be answered.
#[derive(Clone, Debug)]
pub struct Conversation {
    pub(super) messages: Value,
    /// None where it offers none.
    pub(super) tools: Value,
    pub(super) begins_answer: bool,
    /// What else the template is told, by name.
    pub(super) named: Vec<(String, Value)>,
    several_calls: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Members {
    messages: Vec<Value>,
    tools: Option<Vec<Value>>,
    tool_choice: Option<Value>,
    parallel_tool_calls: Option<bool>,
    add_generation_prompt: Option<bool>,
    chat_template_kwargs: Option<Value>,
}

impl Conversation {
    /// From a JSON object.
    pub fn read(json: &str) -> Result<Self, String> {
        let members: Members =
            serde_json::from_str(json).map_err(|error| format!("the chat cannot be read: {error}"))?;
        let Members { messages, tools, tool_choice, parallel_tool_calls, .. } = members;
        if messages.is_empty() {
            return Err("'messages' is empty, expected at least one message".to_owned());
        }
        if messages.len() > MOST_MESSAGES {
            let count = messages.len();
            return Err(format!("there are {count} messages, expected at most {MOST_MESSAGES}"));
        }
        let messages: Vec<Value> = messages
            .iter()
            .enumerate()
            .map(|(at, message)| read_message(at, message))
            .collect::<Result<_, _>>()?;
        let tools = tools.unwrap_or_default();
        check_tools(&tools)?;
        let offers = offers_tools(tool_choice.as_ref())? && !tools.is_empty();
        Ok(Self {
            messages: messages.into(),
            tools: if offers { tools.into() } else { Value::from(()) },
            begins_answer: members.add_generation_prompt.unwrap_or(true),
            named: named(members.chat_template_kwargs)?,
            several_calls: parallel_tool_calls.unwrap_or(true),
        })
    }

    pub fn offers_tools(&self) -> bool {
        !self.tools.is_none()
    }

    /// Whether an answer may call more than one tool.
    pub fn allows_several_calls(&self) -> bool {
        self.several_calls
    }
}

fn read_message(at: usize, message: &Value) -> Result<Value, String> {
    let place = format!("messages[{at}]");
    if message.kind() != ValueKind::Map {
        return Err(format!("{place} is no object"));
    }
    if member(message, "role").as_str().is_none_or(str::is_empty) {
        return Err(format!("{place} has no 'role'"));
    }
    let mut read = IndexMap::new();
    for name in message.try_iter().map_err(|error| error.to_string())? {
        let value = message.get_item(&name).unwrap_or_default();
        let value = match name.as_str() {
            Some("content") => content(&place, &value)?,
            Some("tool_calls") if !value.is_none() => calls(&place, &value)?,
            _ => value,
        };
        read.insert(name, value);
    }
    Ok(Value::from_object(read))
}

/// A text stands for parts that are texts.
fn content(place: &str, content: &Value) -> Result<Value, String> {
    match content.kind() {
        ValueKind::String | ValueKind::None | ValueKind::Undefined => Ok(content.clone()),
        ValueKind::Seq => {
            let mut texts = Vec::new();
            for part in content.try_iter().map_err(|error| error.to_string())? {
                let kind = member(&part, "type");
                let kind = kind.as_str().unwrap_or_default();
                if !matches!(kind, "text" | "input_text") {
                    return Err(format!(
                        "{place} has a part of the type '{kind}': the model takes texts alone"
                    ));
                }
                let text = member(&part, "text");
                texts.push(
                    text.as_str().ok_or_else(|| format!("{place} has a part without a text"))?.to_owned(),
                );
            }
            Ok(texts.join("\n").into())
        }
        _ => Err(format!("the content of {place} is neither a text nor a list of parts")),
    }
}

/// Clients write arguments as a text of JSON, and templates want what it says.
fn calls(place: &str, calls: &Value) -> Result<Value, String> {
    if calls.kind() != ValueKind::Seq {
        return Err(format!("the tool calls of {place} are no list"));
    }
    let calls = calls.try_iter().map_err(|error| error.to_string())?;
    Ok(calls.map(|call| with(&call, "function", |function| with(function, "arguments", parsed))).collect())
}

fn parsed(arguments: &Value) -> Value {
    let object =
        |text| serde_json::from_str::<Value>(text).ok().filter(|value| value.kind() == ValueKind::Map);
    arguments.as_str().and_then(object).unwrap_or_else(|| arguments.clone())
}

/// The same object with another value under this name, if it has one.
fn with(object: &Value, name: &str, change: impl Fn(&Value) -> Value) -> Value {
    let (ValueKind::Map, Ok(names)) = (object.kind(), object.try_iter()) else { return object.clone() };
    let pair = |key: Value| {
        let value = object.get_item(&key).unwrap_or_default();
        let value = if key.as_str() == Some(name) { change(&value) } else { value };
        (key, value)
    };
    Value::from_object(names.map(pair).collect::<IndexMap<_, _>>())
}

fn check_tools(tools: &[Value]) -> Result<(), String> {
    if tools.len() > MOST_TOOLS {
        return Err(format!("there are {} tools, expected at most {MOST_TOOLS}", tools.len()));
    }
    for (at, tool) in tools.iter().enumerate() {
        let kind = member(tool, "type");
        if kind.as_str() != Some("function") {
            return Err(format!("tools[{at}] is of the type {kind}, expected 'function'"));
        }
        let function = member(tool, "function");
        if member(&function, "name").as_str().is_none_or(str::is_empty) {
            return Err(format!("tools[{at}] has no name"));
        }
        if member(&function, "strict").is_true() {
            return Err(format!("tools[{at}] is 'strict': the engine holds no answer to a schema"));
        }
    }
    Ok(())
}

fn offers_tools(choice: Option<&Value>) -> Result<bool, String> {
    match choice {
        None => Ok(true),
        Some(choice) if choice.is_none() => Ok(true),
        Some(choice) => match choice.as_str() {
            Some("auto") => Ok(true),
            Some("none") => Ok(false),
            _ => Err(format!(
                "'tool_choice' is {choice}, expected 'auto' or 'none': the engine cannot be made to call a tool"
            )),
        },
    }
}

fn named(of: Option<Value>) -> Result<Vec<(String, Value)>, String> {
    let Some(of) = of.filter(|of| !of.is_none()) else { return Ok(Vec::new()) };
    if of.kind() != ValueKind::Map {
        return Err("'chat_template_kwargs' is no object".to_owned());
    }
    let names = of.try_iter().map_err(|error| error.to_string())?;
    let pair = |name: Value| {
        let text = name.as_str().unwrap_or_default().to_owned();
        if OWN_NAMES.contains(&&*text) {
            return Err(format!("'chat_template_kwargs' has '{text}', which is said elsewhere"));
        }
        Ok((text, of.get_item(&name).unwrap_or_default()))
    };
    names.map(pair).collect()
}

/// Nothing where it is no object, or has none of this name.
fn member(object: &Value, name: &str) -> Value {
    if object.kind() == ValueKind::Map { object.get_attr(name).unwrap_or_default() } else { Value::UNDEFINED }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fault(json: &str) -> String {
        Conversation::read(json).expect_err(json)
    }

    #[test]
    fn parts_that_are_texts_become_one() {
        let parts = r#"[{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]"#;
        let read =
            Conversation::read(&format!(r#"{{"messages": [{{"role": "user", "content": {parts}}}]}}"#));
        let messages = read.expect("a chat").messages;
        assert_eq!(messages.to_string(), r"[{'role': 'user', 'content': 'a\nb'}]");
    }

    #[test]
    fn arguments_of_calls_become_what_they_say() {
        let call = r#"{"id": "1", "type": "function", "function": {"name": "f", "arguments": "{\"b\": 1, \"a\": 2}"}}"#;
        let json =
            format!(r#"{{"messages": [{{"role": "assistant", "content": null, "tool_calls": [{call}]}}]}}"#);
        let messages = Conversation::read(&json).expect("a chat").messages.to_string();
        assert!(
            messages.ends_with("'function': {'name': 'f', 'arguments': {'b': 1, 'a': 2}}}]}]"),
            "{messages}"
        );
    }

    #[test]
    fn tools_are_offered_unless_none_is_to_be_called() {
        let tools = r#""tools": [{"type": "function", "function": {"name": "f"}}]"#;
        for (choice, offered) in
            [("", true), (r#", "tool_choice": "auto""#, true), (r#", "tool_choice": "none""#, false)]
        {
            let json = format!(r#"{{"messages": [{{"role": "user", "content": "a"}}], {tools}{choice}}}"#);
            assert_eq!(Conversation::read(&json).expect("a chat").offers_tools(), offered);
        }
    }

    #[test]
    fn what_is_no_chat_is_refused_by_what_is_wrong() {
        let user = r#""messages": [{"role": "user", "content": "a"}]"#;
        for (json, expected) in [
            (r#"{"messages": []}"#.to_owned(), "'messages' is empty"),
            (r#"{"messages": ["a"]}"#.to_owned(), "messages[0] is no object"),
            (r#"{"messages": [{"content": "a"}]}"#.to_owned(), "messages[0] has no 'role'"),
            (r#"{"messages": [{"role": "user", "content": 1}]}"#.to_owned(), "neither a text nor a list"),
            (
                r#"{"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}"#.to_owned(),
                "a part of the type 'image_url'",
            ),
            (format!(r#"{{{user}, "tools": [{{"type": "retrieval"}}]}}"#), "tools[0] is of the type"),
            (format!(r#"{{{user}, "tools": [{{"type": "function"}}]}}"#), "tools[0] has no name"),
            (format!(r#"{{{user}, "tool_choice": "required"}}"#), "'tool_choice' is required"),
            (format!(r#"{{{user}, "chat_template_kwargs": {{"messages": 1}}}}"#), "which is said elsewhere"),
            (format!(r#"{{{user}, "x": 1}}"#), "unknown field `x`"),
            ("[".repeat(10_000), "cannot be read"),
        ] {
            let text = fault(&json);
            assert!(text.contains(expected), "{json}: {text}");
        }
    }
}
