//! What is asked of a model, whatever the words were: texts, parameters, and what the answer is to look like.

use kushi_core::{Error, ErrorKind, ModelSpec, Parameter, TextAnswer, Texts as OfModel};

use super::given::{Collected, Strings, Texts};
use super::numbers::Numbers;

/// Parameters of requests that models of texts know.
pub(super) const PROMPT: &str = "prompt_name";
pub(super) const ACTIVATION: &str = "activation";
pub(super) const NONE: &str = "none";
pub(super) const NORMALIZE: &str = "normalize";
/// A token is about as much work as so many bytes of JSON.
const BYTES_OF_A_TOKEN: usize = 128;

/// What is asked of a model.
#[derive(Debug)]
pub(super) struct Asked {
    /// By its name; `None`: the only one that there is.
    pub(super) model: Option<String>,
    pub(super) texts: Texts,
    /// What each of the texts is held against.
    pub(super) query: Option<String>,
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
    pub(super) fn answer(&self) -> TextAnswer {
        match self {
            Self::Vectors { .. } => TextAnswer::Vectors,
            Self::Ranks { .. } | Self::Classes { .. } => TextAnswer::Scores,
        }
    }
}

/// What a model gives.
pub(super) fn called(answer: TextAnswer) -> &'static str {
    match answer {
        TextAnswer::Vectors => "vectors",
        TextAnswer::Scores => "scores",
        TextAnswer::Texts => "texts",
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
            let (given, expected) = (model.facts().answer, self.form.answer());
            if given != expected {
                let [given, expected] = [given, expected].map(called);
                return Err(Error::invalid(format!(
                    "model '{name}' gives {given}, expected one that gives {expected}"
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
