//! Members of a request's JSON as values, and in RapidJSON's words what they are not.

use std::borrow::Cow;

use kushi_core::{Error, ErrorKind};
use kushi_oip::json::Span;
use kushi_oip::json::read::{self, Value};

pub(crate) fn text<'a>(json: &'a [u8], span: Option<&Span>, member: &str) -> Result<Cow<'a, str>, Error> {
    let span = span.ok_or_else(|| missing(member))?;
    match read::value(&json[span.clone()]) {
        Value::String(raw) => Ok(read::text(raw)),
        _ => Err(unreadable(format!(
            "Unable to parse '{member}': attempt to access JSON non-string as string"
        ))),
    }
}

pub(crate) const NOT_UNSIGNED: &str = "attempt to access JSON non-unsigned-integer as unsigned-integer";

pub(crate) fn unsigned(value: Value<'_>, member: &str) -> Result<u64, Error> {
    number(value).ok_or_else(|| unreadable(format!("Unable to parse '{member}': {NOT_UNSIGNED}")))
}

pub(crate) fn number(value: Value<'_>) -> Option<u64> {
    match value {
        Value::Number(number) => read::unsigned(number),
        _ => None,
    }
}

pub(crate) fn boolean(value: Value<'_>, member: &str) -> Result<bool, Error> {
    match value {
        Value::Bool(value) => Ok(value),
        _ => Err(unreadable(format!(
            "Unable to parse '{member}': attempt to access JSON non-boolean as boolean"
        ))),
    }
}

pub(crate) fn missing(member: &str) -> Error {
    unreadable(format!("Unable to parse '{member}': attempt to access non-existing object member '{member}'"))
}

pub(crate) fn unreadable(text: impl Into<Cow<'static, str>>) -> Error {
    Error::new(ErrorKind::UnreadableInput, text)
}
