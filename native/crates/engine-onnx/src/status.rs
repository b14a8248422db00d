//! The answer of a C function: nothing, or a status that has to be read once and released.

use std::ffi::CStr;

use kushi_core::{Error, ErrorKind};
use ort::sys::OrtStatusPtr;

/// What ONNX Runtime says went wrong.
#[derive(Debug)]
pub(crate) struct Failure {
    code: i32,
    text: String,
}

impl Failure {
    pub(crate) fn text(&self) -> &str {
        &self.text
    }
}

impl From<Failure> for Error {
    /// Triton's text.
    fn from(failure: Failure) -> Self {
        let Failure { code, text } = failure;
        Self::new(ErrorKind::EngineFailed, format!("onnx runtime error {code}: {text}"))
    }
}

/// Takes a status over.
#[inline]
pub(crate) fn check(status: OrtStatusPtr) -> Result<(), Failure> {
    if status.0.is_null() { Ok(()) } else { Err(read(status)) }
}

#[cold]
fn read(status: OrtStatusPtr) -> Failure {
    let api = ort::api();
    // SAFETY: the status is not null, is owned here, and is not used after its release; its message
    // is a C string that lives as long as the status.
    unsafe {
        let code = (api.GetErrorCode)(status.0) as i32;
        let text = CStr::from_ptr((api.GetErrorMessage)(status.0)).to_string_lossy().into_owned();
        (api.ReleaseStatus)(status.0);
        Failure { code, text }
    }
}
