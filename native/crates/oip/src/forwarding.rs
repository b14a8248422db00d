//! Headers that reach the model as parameters of the request.

use http::header::{HeaderName, HeaderValue};
use kushi_core::{Error, ErrorKind, Parameter};
use regex::bytes::{Regex, RegexBuilder};

/// Names that mean something else as parameters.
const RESERVED: [&str; 7] =
    ["sequence_id", "sequence_start", "sequence_end", "priority", "timeout", "headers", "binary_data_output"];
const MAX_PATTERN_BYTES: usize = 1 << 20;

/// Matches names of headers, in lower case, anywhere in them and without regard to case, as Triton does.
pub struct Forwarding(Regex);

impl Forwarding {
    pub fn new(pattern: &str) -> Result<Self, Error> {
        let regex = RegexBuilder::new(pattern)
            .case_insensitive(true)
            .unicode(false)
            .size_limit(MAX_PATTERN_BYTES)
            .build();
        regex.map(Self).map_err(|error| {
            let text = error.to_string();
            let reason = text.lines().last().unwrap_or_default().trim_start_matches("error: ");
            let text = format!("header forward pattern '{pattern}' is no regular expression: {reason}");
            Error::new(ErrorKind::ConfigInvalid, text)
        })
    }

    /// Fails for a name that is not for clients to give.
    pub fn parameters<'a>(
        &self,
        headers: impl IntoIterator<Item = (&'a HeaderName, &'a HeaderValue)>,
    ) -> Result<Vec<(String, Parameter)>, Error> {
        let matching = headers.into_iter().filter(|(name, _)| self.0.is_match(name.as_str().as_bytes()));
        let parameter = |(name, value): (&HeaderName, &HeaderValue)| {
            let name = name.as_str();
            if RESERVED.contains(&name) || name.starts_with("triton_") {
                let text = format!("Header '{name}' is reserved for Triton usage and cannot be forwarded.");
                return Err(Error::invalid(text));
            }
            let value = String::from_utf8_lossy(value.as_bytes()).into_owned();
            Ok((name.to_owned(), Parameter::String(value)))
        };
        matching.map(parameter).collect()
    }
}
