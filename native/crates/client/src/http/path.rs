//! Paths of the protocol.

use kushi_core::{AskedVersion, Error, ErrorKind};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, PercentEncode, utf8_percent_encode};

/// All but what stands for itself in a segment of a path.
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// A name as it appears in a path.
pub(super) fn segment(name: &str) -> PercentEncode<'_> {
    utf8_percent_encode(name, ENCODED)
}

/// `/v2/models/NAME` or `/v2/models/NAME/versions/VERSION`; an empty version means the latest.
pub(super) fn model(name: &str, version: &str) -> String {
    let mut path = String::with_capacity(64);
    path.push_str("/v2/models/");
    path.extend(segment(name));
    if !version.is_empty() {
        path.push_str("/versions/");
        path.extend(segment(version));
    }
    path
}

/// What a path has in the place of a version's number.
pub(super) fn label(path: &str) -> Option<&str> {
    let mut segments = path.strip_prefix("/v2/models/")?.split('/').skip(1);
    (segments.next()? == "versions").then(|| segments.next())?.filter(|label| AskedVersion::is_label(label))
}

/// Refuses what has no path of its own, in the words of the server.
pub(super) fn check_model(name: &str, version: &str) -> Result<(), Error> {
    if name.is_empty() {
        let text = format!("Request for unknown model: '{name}' is not found");
        return Err(Error::new(ErrorKind::ModelNotFound, text));
    }
    if version.bytes().all(|byte| byte.is_ascii_digit()) || AskedVersion::is_label(version) {
        return Ok(());
    }
    Err(AskedVersion::no_number(version))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_stays_one_segment() {
        assert_eq!(model("a-b_c.1", ""), "/v2/models/a-b_c.1");
        assert_eq!(model("a/b c?é", "7"), "/v2/models/a%2Fb%20c%3F%C3%A9/versions/7");
    }

    #[test]
    fn a_label_stands_where_the_number_of_a_version_would() {
        assert_eq!(label(&model("m", "stable")), Some("stable"));
        assert_eq!(label("/v2/models/m/versions/stable/infer"), Some("stable"));
        for path in ["/v2/models/m/versions/7/infer", "/v2/models/versions/infer", "/v2/models/m", "/v2"] {
            assert_eq!(label(path), None, "{path}");
        }
    }

    #[test]
    fn only_numbers_and_labels_are_versions() {
        assert_eq!(check_model("m", "stable"), Ok(()));
        assert_eq!(check_model("m", "12"), Ok(()));
        assert_eq!(check_model("m", ""), Ok(()));
        assert_eq!(check_model("m", "-1").unwrap_err().kind, ErrorKind::InvalidInput);
        assert_eq!(check_model("", "1").unwrap_err().kind, ErrorKind::ModelNotFound);
    }
}
