//! What a client may ask for in one request.

use kushi_oip::json::USUAL_DEPTH;

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
