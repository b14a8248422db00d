//! Which requests ask for a token: a header that must have the value that the operator chose.
//!
//! The values are compared in constant time, and shown nowhere. What a rule names is a category of
//! requests.

use http::HeaderMap;
use http::header::HeaderName;
use kushi_core::{Error, ErrorKind};
use subtle::ConstantTimeEq;

use crate::category::Category;

/// One rule, as the operator wrote it.
#[derive(Clone)]
pub struct Restriction {
    /// Names of categories.
    pub apis: Vec<String>,
    pub header: String,
    pub value: String,
}

/// What its door calls that which a rule names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Restricted {
    /// Over HTTP.
    #[default]
    Api,
    /// Over gRPC, where the name of the header has a prefix.
    Protocol,
}

/// At most one token for each category.
#[derive(Default)]
pub struct Restrictions {
    what: Restricted,
    tokens: [Option<Token>; Category::ALL.len()],
}

struct Token {
    header: HeaderName,
    /// The header as the operator wrote it, for the refusal.
    shown: String,
    value: Vec<u8>,
}

impl Restricted {
    fn name(self) -> &'static str {
        match self {
            Self::Api => "API",
            Self::Protocol => "protocol",
        }
    }

    fn prefix(self) -> &'static str {
        match self {
            Self::Api => "",
            Self::Protocol => "triton-grpc-protocol-",
        }
    }
}

impl Restrictions {
    pub fn new(what: Restricted, rules: &[Restriction]) -> Result<Self, Error> {
        let wrong = |text| Error::new(ErrorKind::ConfigInvalid, text);
        let noun = what.name().to_ascii_lowercase();
        let mut restrictions = Self { what, ..Self::default() };
        for rule in rules {
            let shown = format!("{}{}", what.prefix(), rule.header);
            let header = HeaderName::from_bytes(shown.as_bytes())
                .map_err(|_| wrong(format!("'{}' is no name of an HTTP header", rule.header)))?;
            if rule.value.is_empty() {
                return Err(wrong(format!("the value that the header '{}' must have is empty", rule.header)));
            }
            for api in &rule.apis {
                let category = Category::ALL.into_iter().find(|category| category.name() == api);
                let category = category.ok_or_else(|| {
                    let known = Category::ALL.map(Category::name).join(", ");
                    wrong(format!("unknown restricted {noun} '{api}', expected one of {known}"))
                })?;
                let place = &mut restrictions.tokens[category as usize];
                if place.is_some() {
                    return Err(wrong(format!(
                        "restricted {noun} '{api}' can not be specified in multiple config groups"
                    )));
                }
                let (header, shown) = (header.clone(), shown.clone());
                *place = Some(Token { header, shown, value: rule.value.clone().into_bytes() });
            }
        }
        Ok(restrictions)
    }

    /// Whether a request of `category` with these headers is let in.
    pub fn check(&self, category: Category, headers: &HeaderMap) -> Result<(), Error> {
        let Some(token) = &self.tokens[category as usize] else { return Ok(()) };
        match headers.get(&token.header) {
            Some(given) if given.as_bytes().ct_eq(&token.value).into() => Ok(()),
            _ => {
                let text =
                    format!("This {} is restricted, expecting header '{}'", self.what.name(), token.shown);
                Err(Error::new(ErrorKind::AccessDenied, text))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use http::header::HeaderValue;

    use super::*;

    fn rule(apis: &[&str], header: &str, value: &str) -> Restriction {
        let apis = apis.iter().map(|&api| api.to_owned()).collect();
        Restriction { apis, header: header.to_owned(), value: value.to_owned() }
    }

    fn refused(rules: &[Restriction]) -> String {
        Restrictions::new(Restricted::Api, rules)
            .err()
            .map(|error| error.message.into_owned())
            .unwrap_or_default()
    }

    #[test]
    fn a_category_asks_for_its_own_token_and_the_others_for_none() {
        let rules = [rule(&["health", "statistics"], "X-Key", "s3cret"), rule(&["inference"], "other", "2")];
        let restrictions = Restrictions::new(Restricted::Api, &rules).unwrap();
        let mut headers = HeaderMap::new();
        let check = |category, headers: &HeaderMap| {
            restrictions.check(category, headers).map_err(|error| error.message.into_owned())
        };
        let refusal = Err("This API is restricted, expecting header 'X-Key'".to_owned());
        assert_eq!(check(Category::Health, &headers), refusal);
        assert_eq!(check(Category::Metadata, &headers), Ok(()));
        for wrong in ["", "s3cre", "s3cret ", "S3CRET", "s3cret2"] {
            headers.insert("x-key", HeaderValue::from_static(wrong));
            assert_eq!(check(Category::Statistics, &headers), refusal, "{wrong:?}");
        }
        headers.insert("x-key", HeaderValue::from_static("s3cret"));
        assert_eq!(check(Category::Statistics, &headers), Ok(()));
        assert!(check(Category::Inference, &headers).is_err());
    }

    #[test]
    fn over_grpc_the_header_has_a_prefix() {
        let rules = [rule(&["inference"], "Key", "s3cret")];
        let restrictions = Restrictions::new(Restricted::Protocol, &rules).unwrap();
        let mut headers = HeaderMap::new();
        headers.insert("key", HeaderValue::from_static("s3cret"));
        let refusal = restrictions.check(Category::Inference, &headers).map_err(|error| error.message);
        let text = "This protocol is restricted, expecting header 'triton-grpc-protocol-Key'";
        assert_eq!(refusal, Err(text.into()));
        headers.insert("triton-grpc-protocol-key", HeaderValue::from_static("s3cret"));
        assert_eq!(restrictions.check(Category::Inference, &headers), Ok(()));
    }

    #[test]
    fn what_cannot_be_a_rule_is_refused_without_its_value() {
        let text = refused(&[rule(&["nothing"], "k", "v")]);
        assert!(
            text.starts_with("unknown restricted api 'nothing', expected one of health, metadata, "),
            "{text}"
        );
        let twice = [rule(&["health"], "k", "v"), rule(&["trace", "health"], "l", "w")];
        let text = "restricted api 'health' can not be specified in multiple config groups";
        assert_eq!(refused(&twice), text);
        assert_eq!(refused(&[rule(&["health"], "a b", "v")]), "'a b' is no name of an HTTP header");
        let text = "the value that the header 'k' must have is empty";
        assert_eq!(refused(&[rule(&["health"], "k", "")]), text);
    }
}
