//! What the control plane hands over as JSON.

use kushi_core::{Error, ErrorKind};
use serde::Deserialize;

/// `what` it is, for the text of the error.
pub(crate) fn parse<'a, T: Deserialize<'a>>(what: &str, json: &'a str) -> Result<T, Error> {
    serde_json::from_str(json)
        .map_err(|error| Error::new(ErrorKind::ConfigInvalid, format!("{what} cannot be read: {error}")))
}
