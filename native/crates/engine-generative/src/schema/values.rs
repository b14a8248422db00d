//! Values that a schema names: which of them the engine writes as they are.

use std::collections::BTreeSet;

use serde_json::Value;

pub(super) const MOST_CHOICES: usize = 500;
pub(super) const UNREADABLE: &str = "a quote, a backslash or a control character";
/// Larger whole numbers become others.
const MOST_EXACT: u64 = 1 << 53;

/// Whether all values are, where a schema says one or more.
pub(super) fn is_of_types(value: &Value, types: Option<&Value>) -> bool {
    let Some(types) = types else { return true };
    let types: Vec<&str> = match types {
        Value::Array(types) => types.iter().filter_map(Value::as_str).collect(),
        one => one.as_str().into_iter().collect(),
    };
    let is_one = |value: &Value| {
        types.iter().any(|&kind| match value {
            Value::Null => kind == "null",
            Value::Bool(_) => kind == "boolean",
            Value::Number(number) => kind == "number" || (kind == "integer" && number.is_i64()),
            Value::String(_) => kind == "string",
            Value::Array(_) => kind == "array",
            Value::Object(_) => kind == "object",
        })
    };
    match value {
        Value::Array(values) => values.iter().all(is_one),
        one => is_one(one),
    }
}

pub(super) fn is_scalar(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(_) => true,
        Value::Number(number) => {
            number.as_i64().map_or_else(|| number.is_f64(), |number| number.unsigned_abs() <= MOST_EXACT)
        }
        Value::String(text) => is_readable(text),
        Value::Array(_) | Value::Object(_) => false,
    }
}

/// The engine escapes others in a way that it does not read.
pub(super) fn is_readable(text: &str) -> bool {
    !text.chars().any(|character| character.is_control() || matches!(character, '"' | '\\'))
}

/// One that begins another.
pub(super) fn prefixes<'a>(texts: impl Iterator<Item = &'a str>) -> Option<(&'a str, &'a str)> {
    // in their order it stands right before one of those
    let texts: Vec<&str> = texts.collect::<BTreeSet<_>>().into_iter().collect();
    texts.windows(2).map(|pair| (pair[0], pair[1])).find(|(short, long)| long.starts_with(short))
}

pub(super) fn is_list_of_scalars(value: &Value) -> bool {
    let is_short = |list: &&Vec<Value>| (1..=MOST_CHOICES).contains(&list.len());
    value.as_array().filter(is_short).is_some_and(|list| list.iter().all(is_scalar))
}
