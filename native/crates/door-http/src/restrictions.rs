//! Which routes ask for a token: a header that must have the value that the operator chose.
//!
//! The values are compared in constant time, and shown nowhere. What a rule names is a category of
//! routes; that every route has one is the compiler's to see.

use hyper::HeaderMap;
use hyper::header::HeaderName;
use kushi_core::{Error, ErrorKind};
use subtle::ConstantTimeEq;

use crate::route::Category;

/// One rule, as the operator wrote it.
pub struct Restriction {
    /// Names of categories.
    pub apis: Vec<String>,
    pub header: String,
    pub value: String,
}

/// At most one token for each category.
#[derive(Default)]
pub(crate) struct Restrictions([Option<Token>; Category::ALL.len()]);

struct Token {
    header: HeaderName,
    /// The header as the operator wrote it, for the refusal.
    shown: String,
    value: Vec<u8>,
}

impl Restrictions {
    pub(crate) fn new(rules: &[Restriction]) -> Result<Self, Error> {
        let wrong = |text| Error::new(ErrorKind::ConfigInvalid, text);
        let mut restrictions = Self::default();
        for rule in rules {
            let header = HeaderName::from_bytes(rule.header.as_bytes())
                .map_err(|_| wrong(format!("'{}' is no name of an HTTP header", rule.header)))?;
            if rule.value.is_empty() {
                return Err(wrong(format!("the value that the header '{}' must have is empty", rule.header)));
            }
            for api in &rule.apis {
                let category = Category::ALL.into_iter().find(|category| category.name() == api);
                let category = category.ok_or_else(|| {
                    let known = Category::ALL.map(Category::name).join(", ");
                    wrong(format!("unknown restricted api '{api}', expected one of {known}"))
                })?;
                let place = &mut restrictions.0[category as usize];
                if place.is_some() {
                    return Err(wrong(format!(
                        "restricted api '{api}' can not be specified in multiple config groups"
                    )));
                }
                let (header, shown) = (header.clone(), rule.header.clone());
                *place = Some(Token { header, shown, value: rule.value.clone().into_bytes() });
            }
        }
        Ok(restrictions)
    }

    /// Whether a request with these headers may ask for the routes of `category`.
    pub(crate) fn check(&self, category: Category, headers: &HeaderMap) -> Result<(), Error> {
        let Some(token) = &self.0[category as usize] else { return Ok(()) };
        match headers.get(&token.header) {
            Some(given) if given.as_bytes().ct_eq(&token.value).into() => Ok(()),
            _ => {
                let text = format!("This API is restricted, expecting header '{}'", token.shown);
                Err(Error::new(ErrorKind::AccessDenied, text))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use hyper::header::HeaderValue;

    use super::*;

    fn rule(apis: &[&str], header: &str, value: &str) -> Restriction {
        let apis = apis.iter().map(|&api| api.to_owned()).collect();
        Restriction { apis, header: header.to_owned(), value: value.to_owned() }
    }

    fn refused(rules: &[Restriction]) -> String {
        Restrictions::new(rules).err().map(|error| error.message.into_owned()).unwrap_or_default()
    }

    #[test]
    fn a_category_asks_for_its_own_token_and_the_others_for_none() {
        let rules = [rule(&["health", "statistics"], "X-Key", "s3cret"), rule(&["inference"], "other", "2")];
        let restrictions = Restrictions::new(&rules).unwrap();
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
