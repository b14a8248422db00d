//! What a C function says went wrong.

use std::ffi::CStr;

use kushi_core::{Error, ErrorKind};

use crate::api::{Api, Status};

#[derive(Debug)]
pub(crate) struct OpenVinoFailure(String);

impl OpenVinoFailure {
    pub(crate) fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    pub(crate) fn text(&self) -> &str {
        &self.0
    }
}

impl From<OpenVinoFailure> for Error {
    /// Triton's text.
    fn from(failure: OpenVinoFailure) -> Self {
        Self::new(ErrorKind::EngineFailed, format!("openvino error in running inference : {}", failure.0))
    }
}

impl Api {
    #[inline]
    pub(crate) fn check(&self, status: Status) -> Result<(), OpenVinoFailure> {
        if status == 0 { Ok(()) } else { Err(self.failure(status)) }
    }

    /// The library keeps one text for all threads: of two failures at the same moment, one may get the other's.
    #[cold]
    fn failure(&self, status: Status) -> OpenVinoFailure {
        // SAFETY: answers a copy of the text, which is freed here, or null.
        let text = unsafe {
            let text = (self.ov_get_last_err_msg)();
            if text.is_null() {
                String::new()
            } else {
                let copy = CStr::from_ptr(text).to_string_lossy().into_owned();
                (self.ov_free)(text);
                copy
            }
        };
        let text = readable(&text);
        OpenVinoFailure(if text.is_empty() { format!("status {status}") } else { text })
    }
}

/// In one line, without the places in OpenVINO's own sources.
fn readable(text: &str) -> String {
    let is_place =
        |line: &str| line.starts_with("Exception from ") || line.starts_with("While validating node ");
    let lines = text.lines().map(|line| match line.strip_prefix("Check '") {
        // "Check 'condition' failed at src/…:123:", with the reason behind it or in the next line
        Some(check) => check.split_once("' failed at ").map_or(line, |(_, rest)| {
            rest.split_once(':').and_then(|(_, rest)| rest.split_once(':')).map_or("", |(_, reason)| reason)
        }),
        None => line,
    });
    let lines = lines.map(str::trim).filter(|line| !line.is_empty() && !is_place(line));
    lines.collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use super::readable;

    #[test]
    fn a_text_is_one_line_without_places_in_sources() {
        let raw = "Exception from src/inference/src/cpp/core.cpp:113:\nException from src/inference/src/dev/plugin.cpp:53:\n\
                   Check 'false' failed at src/frontends/common/src/frontend.cpp:54:\nConverting input model\nno such op\n\n";
        assert_eq!(readable(raw), "Converting input model; no such op");
        assert_eq!(readable("Check 'a == b' failed at src/x.cpp:12: too many rows\n"), "too many rows");
        assert_eq!(readable("plain"), "plain");
        assert_eq!(readable(""), "");
    }
}
