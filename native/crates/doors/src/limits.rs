//! What clients may ask of the doors before they are refused.

use std::time::Duration;

use kushi_oip::json::USUAL_DEPTH;

#[derive(Clone, Debug)]
pub struct Limits {
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
    /// From the first byte of a head to its last; for a TLS handshake, too.
    pub head_timeout: Duration,
    /// Without progress of a body that is awaited, or of an answer that the client does not read.
    pub body_timeout: Duration,
    /// Bytes per second, over that time: less of a body is no progress.
    pub min_body_rate: usize,
    /// Between two requests.
    pub idle_timeout: Duration,
    /// Of each door.
    pub max_connections: usize,
    /// Bodies and answers of all requests that are being served.
    pub max_inflight_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_input_bytes: 64 << 20,
            max_chunks: 65_536,
            max_head_bytes: 64 << 10,
            max_headers: 100,
            max_json_depth: USUAL_DEPTH,
            max_tensors: 1024,
            head_timeout: Duration::from_secs(10),
            body_timeout: Duration::from_secs(30),
            min_body_rate: 500,
            idle_timeout: Duration::from_secs(75),
            max_connections: 16_384,
            max_inflight_bytes: 1 << 30,
        }
    }
}

impl Limits {
    /// What has to come of a body within its timeout.
    pub(crate) fn least_body_bytes(&self) -> usize {
        let seconds = usize::try_from(self.body_timeout.as_secs()).unwrap_or(usize::MAX);
        self.min_body_rate.saturating_mul(seconds).max(1)
    }
}
