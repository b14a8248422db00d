//! Which version of a model somebody asks for.

use crate::Error;

const LONGEST_LABEL: usize = 64;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum AskedVersion {
    /// A request goes where the weights of the model say; without any, and for what is asked about a model: the latest.
    #[default]
    Any,
    Number(u64),
    /// As the model calls one of its versions.
    Label(Box<str>),
}

impl AskedVersion {
    /// As clients write it.
    pub fn read(text: &str) -> Result<Self, Error> {
        if text.is_empty() {
            return Ok(Self::Any);
        }
        match text.parse::<i64>() {
            Ok(number) => number.try_into().map(Self::Number).map_err(|_| {
                Error::invalid(format!(
                    "invalid model version specified '{text}' , version should be an integral value > 0"
                ))
            }),
            Err(_) if Self::is_label(text) => Ok(Self::Label(text.into())),
            Err(_) => Err(Self::no_number(text)),
        }
    }

    /// Whether it may be one: nobody takes it for a number. The same is said in Python, of what a configuration states.
    pub fn is_label(text: &str) -> bool {
        let may_begin = |first: char| first.is_ascii_alphabetic() || first == '_';
        let may_follow = |one: char| one.is_ascii_alphanumeric() || matches!(one, '_' | '-' | '.');
        text.len() <= LONGEST_LABEL && text.starts_with(may_begin) && text.chars().all(may_follow)
    }

    /// In Triton's words: it has no labels.
    pub fn no_number(text: &str) -> Error {
        Error::invalid(format!(
            "failed to get model version from specified version string '{text}' (details: stol), version should be an \
             integral value > 0"
        ))
    }
}

impl From<Option<u64>> for AskedVersion {
    fn from(number: Option<u64>) -> Self {
        number.map_or(Self::Any, Self::Number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_a_number_that_is_not_negative_or_a_label() {
        assert_eq!(AskedVersion::read(""), Ok(AskedVersion::Any));
        assert_eq!(AskedVersion::read("7"), Ok(AskedVersion::Number(7)));
        assert_eq!(AskedVersion::read("canary"), Ok(AskedVersion::Label("canary".into())));
        let refused = |text: &str| AskedVersion::read(text).map_err(|error| error.to_string());
        let below =
            "invalid model version specified '-1' , version should be an integral value > 0".to_owned();
        assert_eq!(refused("-1"), Err(below));
        for text in ["1a", "a b", "-a", ".", "é", &"a".repeat(65)] {
            assert_eq!(refused(text), Err(AskedVersion::no_number(text).to_string()));
        }
    }
}
