//! What connections may take of the server's time, places and memory.

use std::time::Duration;

/// A server that drains waits no longer for a body, or for a client that takes nothing of its answer.
const DRAIN_PATIENCE: Duration = Duration::from_secs(10);

#[derive(Clone, Debug)]
pub struct Limits {
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
    /// Those of a server that drains.
    pub(crate) fn in_a_drain(&self) -> Self {
        Self { body_timeout: self.body_timeout.min(DRAIN_PATIENCE), ..self.clone() }
    }

    /// What has to come of a body within its timeout.
    pub(crate) fn least_body_bytes(&self) -> usize {
        let seconds = usize::try_from(self.body_timeout.as_secs()).unwrap_or(usize::MAX);
        self.min_body_rate.saturating_mul(seconds).max(1)
    }
}
