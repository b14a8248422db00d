//! Headers that requests and answers have in common.

/// How long the client will wait, from the moment its request arrives.
pub(crate) const TIMEOUT: &str = "kushi-timeout-us";
/// Asks for the answer header of the same name: queue, input, inference, output.
pub(crate) const TIMINGS: &str = "kushi-timings";
/// Where the JSON of a body ends.
pub(crate) const JSON_LENGTH: &str = "inference-header-content-length";
