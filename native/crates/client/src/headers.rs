//! Headers that a client sends with every request, such as tokens; their values are shown nowhere.

use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use kushi_core::Error;

/// What frames a message, or is said by the client itself.
const OWN: [HeaderName; 9] = [
    header::CONNECTION,
    header::CONTENT_ENCODING,
    header::CONTENT_LENGTH,
    header::CONTENT_TYPE,
    header::EXPECT,
    header::HOST,
    header::TE,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
];

pub(crate) fn parse(given: &[(String, String)]) -> Result<HeaderMap, Error> {
    let mut headers = HeaderMap::with_capacity(given.len());
    for (name, value) in given {
        let parsed = HeaderName::from_bytes(name.as_bytes())
            .map_err(|_| Error::invalid(format!("'{name}' is no name of an HTTP header")))?;
        if OWN.contains(&parsed) || parsed.as_str().starts_with("grpc-") {
            return Err(Error::invalid(format!("the header '{name}' is the client's own to send")));
        }
        let mut value = HeaderValue::from_str(value).map_err(|_| {
            let text = format!("the value of the header '{name}' cannot be sent: expected printable ASCII");
            Error::invalid(text)
        })?;
        value.set_sensitive(true);
        headers.append(parsed, value);
    }
    Ok(headers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_error_shows_a_value() {
        for (name, text) in [
            ("a b", "'a b' is no name of an HTTP header"),
            ("Host", "the header 'Host' is the client's own to send"),
            ("grpc-timeout", "the header 'grpc-timeout' is the client's own to send"),
            ("x", "the value of the header 'x' cannot be sent: expected printable ASCII"),
        ] {
            let error = parse(&[(name.to_owned(), "hunter2\n".to_owned())]).unwrap_err();
            assert_eq!(error.message, text);
        }
        let headers = parse(&[("Authorization".to_owned(), "Bearer hunter2".to_owned())]).unwrap();
        assert!(!format!("{headers:?}").contains("hunter2"));
    }
}
