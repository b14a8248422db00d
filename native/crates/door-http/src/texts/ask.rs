//! What bodies ask, each in the words of those who made its route up.
//!
//! A member that is not known is refused, and so is one that asks for what is not done: nothing is taken and ignored.

use kushi_core::{Error, ErrorKind, ModelSpec, Parameter, Texts as OfModel};
use serde::Deserialize;
use serde::de::{DeserializeOwned, IgnoredAny};

use super::given::{Collected, Given, Strings, Texts};
use super::model::Kind;
use super::numbers::Numbers;
use crate::route::TextRoute;

/// Parameters of requests that models of texts know.
const PROMPT: &str = "prompt_name";
const ACTIVATION: &str = "activation";
const NONE: &str = "none";
const NORMALIZE: &str = "normalize";
/// A token is about as much work as so many bytes of JSON.
const BYTES_OF_A_TOKEN: usize = 128;

/// What is asked of a model.
#[derive(Debug)]
pub(super) struct Asked {
    /// By its name; `None`: the only one that there is.
    pub(super) model: Option<String>,
    texts: Texts,
    /// The other one of each pair, or the one that all have.
    query: Option<String>,
    pub(super) parameters: Vec<(String, Parameter)>,
    pub(super) form: Form,
}

/// What the answer is to look like.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Form {
    Vectors { base64: bool, cut: Option<Cut>, plain: bool },
    Ranks { most: Option<usize>, with_texts: bool, plain: bool },
    Classes { plain: bool, is_single: bool },
}

/// Vectors of fewer numbers than the model gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cut {
    pub(super) dimensions: usize,
    /// Their length becomes 1 again.
    pub(super) normalize: bool,
}

impl Form {
    pub(super) fn kind(&self) -> Kind {
        match self {
            Self::Vectors { .. } => Kind::Vectors,
            Self::Ranks { .. } | Self::Classes { .. } => Kind::Scores,
        }
    }
}

impl Asked {
    pub(super) fn count(&self) -> usize {
        match &self.texts {
            Texts::Strings(strings) => strings.len(),
            Texts::Tokens(tokens) => tokens.len(),
        }
    }

    /// As they are once the model has been found.
    pub(super) fn strings(&self) -> Option<&Strings> {
        match &self.texts {
            Texts::Strings(strings) => Some(strings),
            Texts::Tokens(_) => None,
        }
    }

    /// What each of the texts is held against.
    pub(super) fn query(&self) -> Option<&str> {
        self.query.as_deref()
    }

    /// What it holds.
    pub(super) fn bytes(&self) -> usize {
        match &self.texts {
            Texts::Strings(strings) => strings.bytes(),
            Texts::Tokens(tokens) => tokens.iter().map(|tokens| tokens.len() * size_of::<u32>()).sum(),
        }
    }

    /// How long [`Self::for_model`] takes, as if it read so many bytes of JSON.
    pub(super) fn bytes_to_decode(&self) -> usize {
        match &self.texts {
            Texts::Strings(_) => 0,
            Texts::Tokens(tokens) => {
                tokens.iter().map(|tokens| tokens.len() + 1).sum::<usize>() * BYTES_OF_A_TOKEN
            }
        }
    }

    /// Of a request of so many texts.
    pub(super) fn bytes_to_copy(&self, texts: usize) -> usize {
        self.query.as_ref().map_or(0, |query| query.len().saturating_mul(texts))
    }

    /// Fails where the model of this name does something else by all that it tells of texts.
    pub(super) fn check_model(&self, name: &str, model: Option<&dyn OfModel>) -> Result<(), Error> {
        if let Some(model) = model {
            let (given, other) = match (model.facts().scores, self.form.kind()) {
                (true, Kind::Vectors) => ("scores", "vectors"),
                (false, Kind::Scores) => ("vectors", "scores"),
                _ => ("", ""),
            };
            if !other.is_empty() {
                return Err(Error::invalid(format!(
                    "model '{name}' gives {given}, expected one that gives {other}"
                )));
            }
        } else if let Some((parameter, _)) = self.parameters.first() {
            let text =
                format!("model '{name}' is no model of texts by its tokenizer: it knows no '{parameter}'");
            return Err(Error::invalid(text));
        }
        Ok(())
    }

    /// The same for the model of this name, which may not do all that is asked, and gives so many numbers, if that is
    /// known. Tokens become texts. Fails where it has more bytes than `most`.
    pub(super) fn for_model(
        mut self,
        name: &str,
        model: Option<&dyn OfModel>,
        width: Option<usize>,
        most: usize,
    ) -> Result<Self, Error> {
        let normalize = self.normalizes(model);
        if let Form::Vectors { cut: Some(cut), .. } = &mut self.form {
            check_dimensions(name, cut.dimensions, model, width)?;
            cut.normalize = normalize;
        }
        if let Texts::Tokens(tokens) = &self.texts {
            self.texts = Texts::Strings(decode(name, tokens, model, most)?);
        }
        self.check_size(most)?;
        Ok(self)
    }

    fn normalizes(&self, model: Option<&dyn OfModel>) -> bool {
        let asked = self.parameters.iter().find(|(name, _)| name == ACTIVATION);
        match asked {
            Some((_, value)) => *value == Parameter::String(NORMALIZE.to_owned()),
            None => model.is_some_and(|model| model.facts().normalized),
        }
    }

    /// What requests of it hold: each text is sent beside what it is held against.
    pub(super) fn bytes_of_requests(&self) -> usize {
        let query = self.query.as_ref().map_or(0, |query| query.len() + size_of::<u32>());
        self.bytes().saturating_add(query.saturating_mul(self.count()))
    }

    fn check_size(&self, most: usize) -> Result<(), Error> {
        let bytes = self.bytes_of_requests();
        if bytes <= most {
            return Ok(());
        }
        Err(Error::invalid(format!(
            "the texts, each with the query, are {bytes} bytes, which exceeds the maximum allowed input size of {most} \
             bytes. Use --http-max-input-size to increase the limit."
        )))
    }

    /// Fails where the model has not answered what is asked.
    pub(super) fn check_numbers(&self, spec: &ModelSpec, numbers: &Numbers) -> Result<(), Error> {
        let width = numbers.width();
        if matches!(self.form, Form::Ranks { .. }) && width != 1 && self.count() > 0 {
            let text =
                format!("model '{}' answers {width} scores to a text, and ranks are made of one", spec.name);
            return Err(Error::new(ErrorKind::EngineFailed, text));
        }
        Ok(())
    }
}

fn check_dimensions(
    name: &str,
    dimensions: usize,
    model: Option<&dyn OfModel>,
    width: Option<usize>,
) -> Result<(), Error> {
    if width == Some(dimensions) {
        return Ok(());
    }
    let known = model.and_then(|model| model.facts().dimensions.as_ref());
    let text = match known {
        None => format!("vectors of model '{name}' cannot be cut: nothing says that it was made for that"),
        Some(known) if known.is_empty() || known.contains(&dimensions) => return Ok(()),
        Some(known) => {
            let known: Vec<String> = known.iter().map(usize::to_string).collect();
            format!("vectors of model '{name}' can be cut to {}, not to {dimensions}", known.join(", "))
        }
    };
    Err(Error::invalid(text))
}

fn decode(
    name: &str,
    tokens: &[Vec<u32>],
    model: Option<&dyn OfModel>,
    most: usize,
) -> Result<Strings, Error> {
    let model = model.ok_or_else(|| {
        Error::invalid(format!("model '{name}' has no tokenizer of its own: it takes texts, and no tokens"))
    })?;
    let longest = model.facts().longest;
    let mut strings = Collected::default();
    for tokens in tokens {
        if tokens.len() > longest {
            let count = tokens.len();
            return Err(Error::invalid(format!("a text has {count} tokens, model '{name}' takes {longest}")));
        }
        strings.push(&if tokens.is_empty() { String::new() } else { model.text_of(tokens)? });
        if strings.bytes() > most {
            let text =
                format!("the texts of these tokens exceed the maximum allowed input size of {most} bytes");
            return Err(Error::invalid(text));
        }
    }
    Ok(strings.all())
}

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
        TextRoute::Tokenize => Err(Error::invalid("it asks for no model")),
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
        assert_eq!((cohere.query(), cohere.count()), (Some("q"), 2));
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
