//! `Inference-Header-Content-Length`: where the JSON of a request ends, and the bytes of its tensors begin.

use hyper::header::HeaderValue;
use kushi_core::Error;
use kushi_oip::leading_integer;

use crate::limits::MAX_BODY_BYTES;

const NAME: &str = "Inference-Header-Content-Length";

/// As the head tells it; `None`: all of the body is JSON. 0: there is none, the body is one tensor.
#[derive(Clone, Copy)]
pub(crate) struct JsonLength(Option<i32>);

impl JsonLength {
    /// That of a compressed body is not the length it counts in.
    pub(crate) fn read(
        value: Option<&HeaderValue>,
        body_length: Option<u64>,
        compressed: bool,
    ) -> Result<Self, Error> {
        if let Some(length) = body_length.filter(|&length| length > MAX_BODY_BYTES as u64) {
            return Err(out_of_range("Content-Length", length));
        }
        let Some(value) = value else { return Ok(Self(None)) };
        let text = String::from_utf8_lossy(value.as_bytes());
        let length = leading_integer(&text)
            .ok_or_else(|| Error::invalid(format!("Unable to parse {NAME}, got: {text}")))?;
        let length = i32::try_from(length).map_err(|_| out_of_range(NAME, &text))?;
        match body_length.filter(|_| !compressed) {
            Some(body_length) if !(0..=body_length as i64).contains(&i64::from(length)) => {
                Err(outside(body_length, text))
            }
            _ => Ok(Self(Some(length))),
        }
    }

    /// As long as the body is not there.
    pub(crate) fn announced(self) -> Option<usize> {
        self.0.and_then(|length| length.try_into().ok())
    }

    /// In a body that is there as it is meant.
    pub(crate) fn within(self, body_length: usize) -> Result<usize, Error> {
        match self.0 {
            None => Ok(body_length),
            Some(length) => match usize::try_from(length) {
                Ok(length) if length <= body_length => Ok(length),
                _ => Err(outside(body_length as u64, length)),
            },
        }
    }
}

fn outside(body_length: u64, got: impl std::fmt::Display) -> Error {
    Error::invalid(format!("inference header size should be in range (0, {body_length}), got: {got}"))
}

fn out_of_range(header: &str, got: impl std::fmt::Display) -> Error {
    Error::invalid(format!(
        "Unable to parse {header}, value is out of range [ {}, {} ], got: {got}",
        i32::MIN,
        i32::MAX
    ))
}
