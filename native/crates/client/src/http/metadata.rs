//! What a client reads of a server's and a model's metadata.

use kushi_oip::json::{Fault, Scanner, Span, read};

use crate::inputs::MAX_INPUTS;

/// From `GET /v2`: whether the server knows the binary tensor extension.
pub(super) fn takes_binary(json: &[u8]) -> Result<bool, String> {
    let mut takes = false;
    elements(json, "extensions", |scanner| {
        let span = scanner.skip()?;
        takes |= json[span] == *b"\"binary_tensor_data\"";
        Ok(())
    })?;
    Ok(takes)
}

/// From `GET /v2/models/NAME`: the inputs in the model's order.
pub(super) fn input_names(json: &[u8]) -> Result<Vec<String>, String> {
    let mut names: Vec<Option<Span>> = Vec::new();
    elements(json, "inputs", |scanner| {
        let mut name = None;
        if scanner.is_object() {
            scanner.object(|scanner, key| {
                let span = scanner.skip()?;
                if key.is("name") {
                    name.get_or_insert(span);
                }
                Ok(())
            })?;
        } else {
            scanner.skip()?;
        }
        if names.len() <= MAX_INPUTS {
            names.push(name);
        }
        Ok(())
    })?;
    if names.len() > MAX_INPUTS {
        return Err(format!("the metadata lists more than {MAX_INPUTS} inputs"));
    }
    let text = |name: Option<Span>| match name.map(|span| read::value(&json[span])) {
        Some(read::Value::String(raw)) => Ok(read::text(raw).into_owned()),
        _ => Err("the metadata has an input without a name".to_owned()),
    };
    names.into_iter().map(text).collect()
}

/// Runs `element` on each element of the list that an object has under `member`; it must consume it.
fn elements(
    json: &[u8],
    member: &str,
    mut element: impl FnMut(&mut Scanner<'_>) -> Result<(), Fault>,
) -> Result<(), String> {
    let mut is_object = false;
    let scanned = Scanner::new(json).document(|scanner| {
        is_object = scanner.is_object();
        if !is_object {
            return scanner.skip().map(drop);
        }
        scanner.object(|scanner, key| {
            if key.is(member) && scanner.is_array() {
                return scanner.array(&mut element);
            }
            scanner.skip().map(drop)
        })
    });
    match scanned {
        Ok(()) if is_object => Ok(()),
        Ok(()) => Err("the metadata is no JSON object".to_owned()),
        Err(fault) => Err(format!("the metadata is no JSON: {}", fault.what())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_extension_and_the_names() {
        let server = br#"{"name":"x","extensions":["a","binary_tensor_data"]}"#;
        assert_eq!(takes_binary(server), Ok(true));
        assert_eq!(takes_binary(br#"{"extensions":"binary_tensor_data"}"#), Ok(false));
        assert_eq!(takes_binary(b"{}"), Ok(false));
        let model =
            br#"{"outputs":[{"name":"O"}],"inputs":[{"datatype":"FP32","name":"A"},{"name":"\u0042"}]}"#;
        assert_eq!(input_names(model), Ok(vec!["A".to_owned(), "B".to_owned()]));
        assert_eq!(input_names(b"{}"), Ok(vec![]));
    }

    #[test]
    fn what_is_no_metadata_is_refused() {
        for (json, text) in [
            (&b"<html>"[..], "the metadata is no JSON: invalid value at byte 0"),
            (b"[]", "the metadata is no JSON object"),
            (br#"{"inputs":[{}]}"#, "the metadata has an input without a name"),
            (br#"{"inputs":[7]}"#, "the metadata has an input without a name"),
        ] {
            assert_eq!(input_names(json), Err(text.to_owned()));
        }
        let many = format!(r#"{{"inputs":[{}]}}"#, vec![r#"{"name":"A"}"#; 5000].join(","));
        assert_eq!(input_names(many.as_bytes()), Err("the metadata lists more than 1024 inputs".to_owned()));
    }
}
