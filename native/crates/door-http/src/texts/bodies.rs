//! What bodies ask, each in the words of those who made its route up.
//!
//! A member that is not known is refused, and so is one that asks for what is not done: nothing is taken and ignored.

use kushi_core::{Error, Parameter};
use serde::Deserialize;
use serde::de::{DeserializeOwned, IgnoredAny};

use super::ask::{ACTIVATION, Asked, Cut, Form, NONE, NORMALIZE, PROMPT};
use super::given::{Given, Strings, Texts};
use crate::route::TextRoute;

/// What OpenAI calls embeddings.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Embeddings {
    model: Option<String>,
    input: Given,
    encoding_format: Option<Encoding>,
    dimensions: Option<usize>,
    prompt_name: Option<String>,
    /// Whoever asks in the end: nothing depends on it.
    #[serde(rename = "user")]
    _user: Option<IgnoredAny>,
}

#[derive(Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
enum Encoding {
    Float,
    Base64,
}

/// The same of text-embeddings-inference.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Embed {
    model: Option<String>,
    inputs: Given,
    dimensions: Option<usize>,
    normalize: Option<bool>,
    prompt_name: Option<String>,
    truncate: Option<bool>,
}

/// Of Cohere, Jina and vLLM with `documents`; of text-embeddings-inference with `texts`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Rerank {
    model: Option<String>,
    query: String,
    documents: Option<Strings>,
    texts: Option<Strings>,
    top_n: Option<usize>,
    return_documents: Option<bool>,
    return_text: Option<bool>,
    raw_scores: Option<bool>,
    truncate: Option<bool>,
}

/// Of vLLM with `input`; of text-embeddings-inference with `inputs`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Classify {
    model: Option<String>,
    input: Option<Given>,
    inputs: Option<Given>,
    raw_scores: Option<bool>,
    truncate: Option<bool>,
}

pub(super) fn read(route: TextRoute, body: &[u8]) -> Result<Asked, Error> {
    match route {
        TextRoute::Embeddings => json(body).and_then(embeddings),
        TextRoute::Embed => json(body).and_then(embed),
        TextRoute::Rerank => json(body).and_then(rerank),
        TextRoute::Classify => json(body).and_then(classify),
        TextRoute::ChatCompletions | TextRoute::Completions | TextRoute::Tokenize => {
            Err(Error::invalid("it asks for no numbers"))
        }
    }
}

pub(super) fn json<T: DeserializeOwned>(body: &[u8]) -> Result<T, Error> {
    // It would take a list of its members, too.
    if body.trim_ascii_start().first() == Some(&b'[') {
        return Err(Error::invalid("the body cannot be read: it is a list, expected an object"));
    }
    serde_json::from_slice(body).map_err(|error| Error::invalid(format!("the body cannot be read: {error}")))
}

fn embeddings(body: Embeddings) -> Result<Asked, Error> {
    let Embeddings { model, input, encoding_format, dimensions, prompt_name, .. } = body;
    let base64 = encoding_format == Some(Encoding::Base64);
    let form = Form::Vectors { base64, cut: cut(dimensions)?, plain: false };
    let parameters = named(PROMPT, prompt_name).collect();
    Ok(Asked { model, texts: input.texts, query: None, parameters, form })
}

fn embed(body: Embed) -> Result<Asked, Error> {
    let Embed { model, inputs, dimensions, normalize, prompt_name, truncate } = body;
    check_truncates(truncate)?;
    let form = Form::Vectors { base64: false, cut: cut(dimensions)?, plain: true };
    let activation = normalize.map(|wanted| if wanted { NORMALIZE } else { NONE }.to_owned());
    let parameters = named(PROMPT, prompt_name).chain(named(ACTIVATION, activation)).collect();
    Ok(Asked { model, texts: inputs.texts, query: None, parameters, form })
}

fn rerank(body: Rerank) -> Result<Asked, Error> {
    let Rerank { model, query, documents, texts, top_n, return_documents, return_text, raw_scores, truncate } =
        body;
    check_truncates(truncate)?;
    let plain = texts.is_some();
    let texts = one_of(documents, "documents", texts, "texts")?;
    // As vLLM says that all are wanted.
    let most = top_n.filter(|&most| most > 0);
    let with_texts = return_documents.or(return_text).unwrap_or_default();
    let form = Form::Ranks { most, with_texts, plain };
    let (texts, parameters) = (Texts::Strings(texts), raw(raw_scores));
    Ok(Asked { model, texts, query: Some(query), parameters, form })
}

fn classify(body: Classify) -> Result<Asked, Error> {
    let Classify { model, input, inputs, raw_scores, truncate } = body;
    check_truncates(truncate)?;
    let plain = inputs.is_some();
    let given = one_of(input, "input", inputs, "inputs")?;
    let form = Form::Classes { plain, is_single: given.is_single };
    Ok(Asked { model, texts: given.texts, query: None, parameters: raw(raw_scores), form })
}

/// Of two names for the same.
fn one_of<T>(one: Option<T>, name: &str, other: Option<T>, other_name: &str) -> Result<T, Error> {
    match (one, other) {
        (Some(given), None) | (None, Some(given)) => Ok(given),
        (None, None) => Err(Error::invalid(format!("'{name}' is missing"))),
        (Some(_), Some(_)) => {
            Err(Error::invalid(format!("'{name}' and '{other_name}' are the same, expected one")))
        }
    }
}

fn cut(dimensions: Option<usize>) -> Result<Option<Cut>, Error> {
    match dimensions {
        Some(0) => Err(Error::invalid("'dimensions' is 0, expected at least 1")),
        dimensions => Ok(dimensions.map(|dimensions| Cut { dimensions, normalize: false })),
    }
}

fn raw(raw_scores: Option<bool>) -> Vec<(String, Parameter)> {
    named(ACTIVATION, raw_scores.filter(|&raw| raw).map(|_| NONE.to_owned())).collect()
}

fn named(name: &str, value: Option<String>) -> impl Iterator<Item = (String, Parameter)> {
    value.map(|value| (name.to_owned(), Parameter::String(value))).into_iter()
}

/// How models read texts is theirs.
fn check_truncates(truncate: Option<bool>) -> Result<(), Error> {
    if truncate == Some(false) {
        let text =
            "'truncate' is false: of a text no more is looked at than its model takes, whatever is asked";
        return Err(Error::invalid(text));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn asked(route: TextRoute, body: &str) -> Asked {
        read(route, body.as_bytes()).expect(body)
    }

    fn fault(route: TextRoute, body: &str) -> String {
        read(route, body.as_bytes()).expect_err(body).message.into_owned()
    }

    fn parameter(name: &str, value: &str) -> (String, Parameter) {
        (name.to_owned(), Parameter::String(value.to_owned()))
    }

    #[test]
    fn embeddings_of_openai() {
        let body = r#"{"model": "m", "input": ["a", "b"], "encoding_format": "base64", "dimensions": 8, "user": "u"}"#;
        let asked = asked(TextRoute::Embeddings, body);
        let cut = Some(Cut { dimensions: 8, normalize: false });
        assert_eq!((asked.model.as_deref(), asked.count()), (Some("m"), 2));
        assert_eq!(asked.form, Form::Vectors { base64: true, cut, plain: false });
    }

    #[test]
    fn embeddings_of_text_embeddings_inference() {
        let body = r#"{"inputs": "a", "normalize": false, "truncate": true, "prompt_name": "query"}"#;
        let asked = asked(TextRoute::Embed, body);
        assert_eq!(asked.form, Form::Vectors { base64: false, cut: None, plain: true });
        assert_eq!(asked.parameters, [parameter(PROMPT, "query"), parameter(ACTIVATION, NONE)]);
    }

    #[test]
    fn documents_are_ranked_in_two_shapes() {
        let body = r#"{"model": "m", "query": "q", "documents": ["a", {"text": "b"}], "top_n": 1, "return_documents": true}"#;
        let cohere = asked(TextRoute::Rerank, body);
        assert_eq!(cohere.form, Form::Ranks { most: Some(1), with_texts: true, plain: false });
        assert_eq!((cohere.query.as_deref(), cohere.count()), (Some("q"), 2));
        let plain = asked(TextRoute::Rerank, r#"{"query": "q", "texts": ["a"], "raw_scores": true}"#);
        assert_eq!(plain.form, Form::Ranks { most: None, with_texts: false, plain: true });
        assert_eq!(plain.parameters, [parameter(ACTIVATION, NONE)]);
    }

    #[test]
    fn nothing_is_taken_and_ignored() {
        for (route, body, expected) in [
            (TextRoute::Embeddings, r#"{"input": "a", "seed": 1}"#, "unknown field `seed`"),
            (TextRoute::Embeddings, r#"{"model": "m"}"#, "missing field `input`"),
            (TextRoute::Embeddings, r#"{"input": "a", "encoding_format": "int8"}"#, "unknown variant `int8`"),
            (TextRoute::Embeddings, r#"{"input": "a", "dimensions": 0}"#, "expected at least 1"),
            (TextRoute::Embeddings, r#"{"input": "a", "input": "b"}"#, "duplicate field `input`"),
            (TextRoute::Embeddings, r#"{"input": "a"} x"#, "trailing characters"),
            (TextRoute::Embed, r#"{"inputs": "a", "truncate": false}"#, "'truncate' is false"),
            (TextRoute::Rerank, r#"{"query": "q"}"#, "'documents' is missing"),
            (TextRoute::Rerank, r#"{"query": "q", "documents": [], "texts": []}"#, "are the same"),
            (TextRoute::Rerank, r#"{"query": "q", "documents": [[1]]}"#, "expected texts, got tokens"),
            (TextRoute::Rerank, r#"["m", "q", []]"#, "it is a list"),
            (TextRoute::Classify, r#"{"input": "a", "inputs": "a"}"#, "are the same"),
        ] {
            let text = fault(route, body);
            assert!(text.contains(expected), "{body}: {text}");
        }
    }

    const ROUTES: [TextRoute; 4] =
        [TextRoute::Embeddings, TextRoute::Embed, TextRoute::Rerank, TextRoute::Classify];
    const VALID: &str = r#"{"model":"m","input":["a\u00e9",{"text":""}],"inputs":[[1,2],[]],"query":"q","documents":["d"],"texts":"t"}"#;

    proptest! {
        #[test]
        fn any_bytes_are_answered(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            for route in ROUTES {
                let _ = read(route, &bytes);
            }
        }

        #[test]
        fn any_change_of_a_valid_document_is_answered(at in 0..VALID.len(), byte: u8) {
            let mut bytes = VALID.as_bytes().to_vec();
            bytes[at] = byte;
            for route in ROUTES {
                let _ = read(route, &bytes);
            }
        }
    }
}
