//! What comes with a question about the repository, and with an order to load or unload.

use kushi_core::{Error, ErrorKind};

use crate::document::{Json, unreadable};
use kushi_oip::json::read::Value;

/// The refusal of a question that names a repository.
pub fn repository_named() -> Error {
    Error::new(ErrorKind::Unsupported, "'repository_name' specification is not supported")
}

/// Whether the index is to have ready models alone.
pub fn ready_only(body: &[u8]) -> Result<bool, Error> {
    ready_only_of(Json::parse(body)?)
}

pub(super) fn ready_only_of(document: Json<'_>) -> Result<bool, Error> {
    match document.member("ready").map(Json::value) {
        None => Ok(false),
        Some(Value::Bool(ready)) => Ok(ready),
        Some(_) => Err(Error::invalid("Invalid value for 'ready': expected a boolean")),
    }
}

/// The names of what is to replace parts of the repository.
pub fn load_parameters(body: &[u8]) -> Result<Vec<String>, Error> {
    load_parameters_of(Json::parse(body)?)
}

pub(super) fn load_parameters_of(document: Json<'_>) -> Result<Vec<String>, Error> {
    let Some(parameters) = document.member("parameters") else { return Ok(Vec::new()) };
    if parameters.value() != Value::Object {
        return Err(unreadable("attempt to get members for non-object"));
    }
    let mut names = Vec::new();
    let mut fault = None;
    parameters.each(|name, value| {
        let text = if !matches!(value.value(), Value::String(_)) {
            "attempt to access JSON non-string as string"
        } else if name != "config" && !name.starts_with("file:") {
            "unexpected error on creating Triton parameter"
        } else {
            return names.push(name.to_owned());
        };
        fault.get_or_insert(text);
    });
    fault.map_or(Ok(names), |text| Err(unreadable(text)))
}

/// Whether the models of an ensemble shall go with it.
pub fn unload_dependents(body: &[u8]) -> Result<bool, Error> {
    unload_dependents_of(Json::parse(body)?)
}

pub(super) fn unload_dependents_of(document: Json<'_>) -> Result<bool, Error> {
    let parameters = document.member("parameters");
    match parameters.and_then(|parameters| parameters.member("unload_dependents")).map(Json::value) {
        None => Ok(false),
        Some(Value::Bool(with)) => Ok(with),
        Some(_) => {
            let text = "Unable to parse 'unload_dependents': attempt to access JSON non-boolean as boolean";
            Err(unreadable(text))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wrong<T>(read: Result<T, Error>) -> Option<(ErrorKind, String)> {
        read.err().map(|error| (error.kind, error.to_string()))
    }

    fn unreadable(text: &str) -> (ErrorKind, String) {
        (ErrorKind::UnreadableInput, text.into())
    }

    #[test]
    fn a_body_may_be_left_out() {
        assert_eq!(ready_only(b""), Ok(false));
        assert_eq!(ready_only(b"[]"), Ok(false));
        assert_eq!(ready_only(br#"{"ready":true,"ready":false,"more":1}"#), Ok(true));
        assert_eq!(load_parameters(b""), Ok(vec![]));
        assert_eq!(load_parameters(br#"{"parameters":{}}"#), Ok(vec![]));
        assert_eq!(unload_dependents(b""), Ok(false));
        assert_eq!(unload_dependents(br#"{"parameters":{"unload_dependents":true}}"#), Ok(true));
    }

    #[test]
    fn what_cannot_be_read_is_refused_in_the_words_of_triton() {
        let text = "Invalid value for 'ready': expected a boolean";
        assert_eq!(wrong(ready_only(br#"{"ready":1}"#)), Some((ErrorKind::InvalidInput, text.into())));
        let text = "failed to parse the request JSON buffer: The document is empty. at 1";
        assert_eq!(wrong(ready_only(b" ")), Some(unreadable(text)));
        let deep = [b"[".repeat(200), b"]".repeat(200)].concat();
        let text = "JSON nesting depth exceeds maximum allowed limit (100)";
        assert_eq!(wrong(ready_only(&deep)), Some((ErrorKind::InvalidInput, text.into())));
        for (body, text) in [
            (&br#"{"parameters":5}"#[..], "attempt to get members for non-object"),
            (br#"{"parameters":{"config":5}}"#, "attempt to access JSON non-string as string"),
            (br#"{"parameters":{"config":"","x":""}}"#, "unexpected error on creating Triton parameter"),
        ] {
            assert_eq!(wrong(load_parameters(body)), Some(unreadable(text)));
        }
        let text = "Unable to parse 'unload_dependents': attempt to access JSON non-boolean as boolean";
        let body = br#"{"parameters":{"unload_dependents":"yes"}}"#;
        assert_eq!(wrong(unload_dependents(body)), Some(unreadable(text)));
    }
}
