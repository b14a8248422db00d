//! Versions as clients write them.

use kushi_core::Error;

/// An empty text is no version: the latest.
pub fn version_number(text: &str) -> Result<Option<u64>, Error> {
    if text.is_empty() {
        return Ok(None);
    }
    match text.parse::<i64>() {
        Ok(number) => Ok(Some(number.unsigned_abs())),
        Err(_) => Err(Error::invalid(format!(
            "failed to get model version from specified version string '{text}' (details: stol), version should be \
             an integral value > 0"
        ))),
    }
}
