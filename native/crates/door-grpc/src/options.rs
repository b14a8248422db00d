//! What the operator says of the gRPC doors.

use std::time::Duration;

use kushi_net::TlsFiles;
use kushi_oip::Restriction;

#[derive(Clone, Default)]
pub struct GrpcOptions {
    pub limits: GrpcLimits,
    pub keep_alive: KeepAlive,
    /// A regular expression: metadata with such names becomes parameters of its requests.
    pub header_forward_pattern: Option<String>,
    /// Which methods ask for a token.
    pub restrictions: Vec<Restriction>,
    /// For what listens on TCP; `None`: plain.
    pub tls: Option<TlsFiles>,
    /// Of zlib, for answers to clients that take compressed ones; `None`: answers are plain.
    pub compression_level: Option<u32>,
}

#[derive(Clone, Debug)]
pub struct GrpcLimits {
    pub max_message_bytes: usize,
    /// Calls of one connection that may be open at a time.
    pub max_streams: u32,
}

impl Default for GrpcLimits {
    /// As much as Triton takes; calls beyond wait at their client.
    fn default() -> Self {
        Self { max_message_bytes: i32::MAX as usize, max_streams: 1024 }
    }
}

/// When clients are asked whether they are there, how often they may ask, and how long connections last.
#[derive(Clone, Copy, Debug)]
pub struct KeepAlive {
    /// A client that says nothing for so long is asked.
    pub time: Duration,
    /// For its answer.
    pub timeout: Duration,
    /// Pings are in order on a connection without calls, in both directions.
    pub permit_without_calls: bool,
    /// Asked between two answers to calls; 0: any number.
    pub max_pings_without_data: u32,
    /// Between two pings of a client, if no call was answered in between.
    pub min_ping_interval: Duration,
    /// Pings that come too early before the connection is closed; 0: any number.
    pub max_ping_strikes: u32,
    /// Connections are told to leave after so long.
    pub max_connection_age: Option<Duration>,
    /// Then calls have so long to end.
    pub max_connection_age_grace: Option<Duration>,
}

impl Default for KeepAlive {
    /// As Triton has it.
    fn default() -> Self {
        Self {
            time: Duration::from_secs(2 * 60 * 60),
            timeout: Duration::from_secs(20),
            permit_without_calls: false,
            max_pings_without_data: 2,
            min_ping_interval: Duration::from_secs(5 * 60),
            max_ping_strikes: 2,
            max_connection_age: None,
            max_connection_age_grace: None,
        }
    }
}
