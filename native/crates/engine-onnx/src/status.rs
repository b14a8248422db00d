//! The answer of a C function: nothing, or a status that has to be read once and released.

use std::ffi::CStr;

use kushi_core::{Error, ErrorKind};
use ort::sys::OrtStatusPtr;

/// ONNX Runtime's codes of what an operator says of its inputs: `FAIL`, `INVALID_ARGUMENT`,
/// `RUNTIME_EXCEPTION` and `NOT_IMPLEMENTED`.
const OF_OPERATORS: [i32; 4] = [1, 2, 6, 9];
/// In the text, where an accelerator fails for other reasons than data. Memory of the host is never the
/// reason: a system out of it ends the process, and an allocation that fails was asked for by data.
const OF_DEVICES: [&str; 6] = [
    "out of memory",
    "Failed to allocate memory",
    "smaller than requested bytes",
    "CUDA failure",
    "CUDNN failure",
    "CUBLAS failure",
];

/// What ONNX Runtime says went wrong.
#[derive(Debug)]
pub(crate) struct OrtFailure {
    code: i32,
    text: String,
}

impl OrtFailure {
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// Whether the data of a request may be the reason, in a session that may have an accelerator.
    pub(crate) fn may_be_of_data(&self, accelerated: bool) -> bool {
        let of_device = || OF_DEVICES.iter().any(|word| self.text.contains(word));
        OF_OPERATORS.contains(&self.code) && !(accelerated && of_device())
    }
}

impl From<OrtFailure> for Error {
    /// Triton's text.
    fn from(failure: OrtFailure) -> Self {
        let OrtFailure { code, text } = failure;
        Self::new(ErrorKind::EngineFailed, format!("onnx runtime error {code}: {text}"))
    }
}

/// Takes a status over.
#[inline]
pub(crate) fn check(status: OrtStatusPtr) -> Result<(), OrtFailure> {
    if status.0.is_null() { Ok(()) } else { Err(read(status)) }
}

#[cold]
fn read(status: OrtStatusPtr) -> OrtFailure {
    let api = ort::api();
    // SAFETY: the status is not null, is owned here, and is not used after its release; its message
    // is a C string that lives as long as the status.
    unsafe {
        let code = (api.GetErrorCode)(status.0) as i32;
        let text = CStr::from_ptr((api.GetErrorMessage)(status.0)).to_string_lossy().into_owned();
        (api.ReleaseStatus)(status.0);
        OrtFailure { code, text }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_is_not_to_blame_for_what_a_device_lacks() {
        for (code, text, on_cpu, on_accelerator) in [
            (2, "indices element out of data bounds", true, true),
            (6, "Failed to allocate memory for requested buffer of size 4611686018427387904", true, false),
            (1, "CUDA failure 700: an illegal memory access was encountered", true, false),
            (11, "the execution provider is gone", false, false),
            (7, "Protobuf parsing failed", false, false),
        ] {
            let failure = OrtFailure { code, text: text.into() };
            let got = [false, true].map(|accelerated| failure.may_be_of_data(accelerated));
            assert_eq!(got, [on_cpu, on_accelerator], "{text}");
        }
    }
}
