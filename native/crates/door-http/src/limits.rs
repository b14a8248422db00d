//! What a client may ask for in one request.

use kushi_core::Error;
use kushi_oip::json::USUAL_DEPTH;

/// Bodies are read through a buffer of this, piece by piece; it bounds the head of a request too.
pub(crate) const READ_BUFFER_BYTES: usize = 64 << 10;
/// The largest body that Triton takes.
pub(crate) const MAX_BODY_BYTES: usize = i32::MAX as usize;
/// Memory that takes long to give back.
pub(crate) const LARGE_BODY: usize = 1 << 20;
/// JSON that is longer is read aside, where no other connection waits for it.
pub(crate) const LONG_JSON: usize = 256 << 10;
/// Longer JSON is written aside, by the bytes of its tensors: each becomes several characters.
pub(crate) const LONG_ANSWER: usize = 64 << 10;
/// Of one request; each costs many times its bytes in JSON.
pub(crate) const MAX_PARAMETERS: usize = 1024;

#[derive(Clone, Debug)]
pub struct HttpLimits {
    /// For the body of a request, and for each tensor that its JSON holds.
    pub max_input_bytes: usize,
    /// Of a body that comes in chunks.
    pub max_chunks: usize,
    /// Request line and headers.
    pub max_head_bytes: usize,
    pub max_headers: usize,
    pub max_json_depth: u32,
    /// Inputs and requested outputs of one request, together.
    pub max_tensors: usize,
}

impl Default for HttpLimits {
    fn default() -> Self {
        Self {
            max_input_bytes: 64 << 20,
            max_chunks: 65_536,
            max_head_bytes: 64 << 10,
            max_headers: 100,
            max_json_depth: USUAL_DEPTH,
            max_tensors: 1024,
        }
    }
}

pub(crate) fn json_too_large(bytes: usize, max: usize) -> Error {
    Error::invalid(format!(
        "request JSON size of {bytes} bytes exceeds the maximum allowed input size of {max} bytes. Use \
         --http-max-input-size to increase the limit."
    ))
}
