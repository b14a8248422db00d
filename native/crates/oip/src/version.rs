//! Versions as clients write them.

use kushi_core::Error;

/// An empty text is no version: the latest.
pub fn version_number(text: &str) -> Result<Option<u64>, Error> {
    if text.is_empty() {
        return Ok(None);
    }
    match text.parse::<i64>() {
        Ok(number) => number.try_into().map(Some).map_err(|_| {
            Error::invalid(format!(
                "invalid model version specified '{text}' , version should be an integral value > 0"
            ))
        }),
        Err(_) => Err(Error::invalid(format!(
            "failed to get model version from specified version string '{text}' (details: stol), version should be \
             an integral value > 0"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_a_number_that_is_not_negative() {
        assert_eq!(version_number(""), Ok(None));
        assert_eq!(version_number("7"), Ok(Some(7)));
        for (text, refused) in [
            ("-1", "invalid model version specified '-1' , version should be an integral value > 0"),
            (
                "abc",
                "failed to get model version from specified version string 'abc' (details: stol), version should be \
                 an integral value > 0",
            ),
        ] {
            assert_eq!(version_number(text).map_err(|error| error.to_string()), Err(refused.to_owned()));
        }
    }
}
