//! What comes with a question about the repository, and with an order to load or unload.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kushi_core::{Error, ErrorKind};
use kushi_dataplane::Overrides;

use crate::document::{Json, unreadable};
use kushi_oip::json::read::Value;

/// What nobody needs more of.
pub const MOST_FILES: usize = 1000;
/// How the names of files begin that take the place of a model's directory.
pub const FILE: &str = "file:";

/// The parameter of a load that changes nothing but how requests find the model's versions.
pub const VERSIONS: &str = "kushi.versions";

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

/// What is to take the place of parts of the repository.
pub fn overrides(body: &[u8]) -> Result<Overrides, Error> {
    overrides_of(Json::parse(body)?)
}

pub(super) fn overrides_of(document: Json<'_>) -> Result<Overrides, Error> {
    let mut overrides = Overrides::default();
    let Some(parameters) = document.member("parameters") else { return Ok(overrides) };
    if parameters.value() != Value::Object {
        return Err(unreadable("attempt to get members for non-object"));
    }
    let mut fault = None;
    parameters.each(|name, value| {
        if let Err(error) = add(&mut overrides, name, value) {
            fault.get_or_insert(error);
        }
    });
    fault.map_or(Ok(overrides), Err)
}

fn add(overrides: &mut Overrides, name: &str, value: Json<'_>) -> Result<(), Error> {
    if !matches!(value.value(), Value::String(_)) {
        return Err(unreadable("attempt to access JSON non-string as string"));
    }
    if name == "config" {
        overrides.config = Some(value.text()?.into_owned());
    } else if name == VERSIONS {
        overrides.versions = Some(value.text()?.into_owned());
    } else if let Some(path) = name.strip_prefix(FILE) {
        if overrides.files.len() >= MOST_FILES {
            return Err(Error::invalid(format!("at most {MOST_FILES} files can be loaded at a time")));
        }
        let decoded = STANDARD.decode(&*value.text()?);
        let text = || format!("Unable to decode base64 content of '{name}'");
        overrides.files.push((path.into(), decoded.map_err(|_| Error::invalid(text()))?));
    } else {
        return Err(unreadable("unexpected error on creating Triton parameter"));
    }
    Ok(())
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
        assert_eq!(overrides(b""), Ok(Overrides::default()));
        assert_eq!(overrides(br#"{"parameters":{}}"#), Ok(Overrides::default()));
        assert_eq!(unload_dependents(b""), Ok(false));
        assert_eq!(unload_dependents(br#"{"parameters":{"unload_dependents":true}}"#), Ok(true));
    }

    #[test]
    fn a_load_may_bring_a_configuration_and_files() {
        let body = br#"{"parameters":{"file:1/model.onnx":"AQID","config":"{\"backend\": \"onnxruntime\"}","file:a":""}}"#;
        let files = vec![("1/model.onnx".into(), vec![1, 2, 3]), ("a".into(), vec![])];
        let config = Some(r#"{"backend": "onnxruntime"}"#.into());
        assert_eq!(overrides(body), Ok(Overrides { config, files, versions: None }));
        let versions = Some(r#"{"weights":{"1":1}}"#.into());
        let body = br#"{"parameters":{"kushi.versions":"{\"weights\":{\"1\":1}}"}}"#;
        assert_eq!(overrides(body), Ok(Overrides { versions, ..Overrides::default() }));
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
            assert_eq!(wrong(overrides(body)), Some(unreadable(text)));
        }
        let text = "Unable to decode base64 content of 'file:1/m'";
        let body = br#"{"parameters":{"file:1/m":"a"}}"#;
        assert_eq!(wrong(overrides(body)), Some((ErrorKind::InvalidInput, text.into())));
        let text = "Unable to parse 'unload_dependents': attempt to access JSON non-boolean as boolean";
        let body = br#"{"parameters":{"unload_dependents":"yes"}}"#;
        assert_eq!(wrong(unload_dependents(body)), Some(unreadable(text)));
    }
}
