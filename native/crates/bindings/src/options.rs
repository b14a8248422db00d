//! The options of a core as Python states them, and as the server takes them.

use std::path::PathBuf;
use std::time::Duration;

use kushi_core::{Error, ResourceCount};
use kushi_server::{
    DataPlaneOptions, GpuOptions, HttpLimits, KeepAlive, Limits, Restriction, ServerMetadata, ServerOptions,
    TlsFiles,
};
use serde::Deserialize;

use crate::logging::{self, LogOptions};
use crate::memory::give_memory_back;
use crate::process::usable_cores;
use crate::scheduling::give_way;
use crate::tracing::Tracing;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Options {
    io_threads: Option<usize>,
    /// How often there is each resource, where it is stated; `None`: nothing waits for resources.
    pub(crate) rate_limit: Option<Vec<ResourceCount>>,
    server_name: String,
    server_version: String,
    extensions: Vec<String>,
    strict_readiness: bool,
    repositories: Vec<PathBuf>,
    explicit_control: bool,
    allow_client_regions: bool,
    http: HttpOptions,
    grpc: GrpcOptions,
    metrics: MetricsOptions,
    trace: Tracing,
    /// `None`: that of the process stays as it is.
    log: Option<LogOptions>,
}

/// The APIs, the header and its value.
type Rule = (Vec<String>, String, String);

/// The certificate, its key, and the authorities of clients.
type Certificate = (PathBuf, PathBuf, Option<PathBuf>);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct HttpOptions {
    max_input_bytes: usize,
    restrictions: Vec<Rule>,
    tls: Option<Certificate>,
    header_forward_pattern: Option<String>,
    max_chunks: usize,
    max_head_bytes: usize,
    max_headers: usize,
    max_json_depth: u32,
    max_tensors: usize,
    head_timeout_seconds: u64,
    body_timeout_seconds: u64,
    min_body_rate: usize,
    idle_timeout_seconds: u64,
    max_connections: usize,
    max_inflight_bytes: usize,
    playground: bool,
}

impl HttpOptions {
    fn limits(&self) -> Limits {
        Limits {
            head_timeout: Duration::from_secs(self.head_timeout_seconds),
            body_timeout: Duration::from_secs(self.body_timeout_seconds),
            min_body_rate: self.min_body_rate,
            idle_timeout: Duration::from_secs(self.idle_timeout_seconds),
            max_connections: self.max_connections,
            max_inflight_bytes: self.max_inflight_bytes,
        }
    }

    fn http_limits(&self) -> HttpLimits {
        HttpLimits {
            max_input_bytes: self.max_input_bytes,
            max_chunks: self.max_chunks,
            max_head_bytes: self.max_head_bytes,
            max_headers: self.max_headers,
            max_json_depth: self.max_json_depth,
            max_tensors: self.max_tensors,
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct GrpcOptions {
    restrictions: Vec<Rule>,
    tls: Option<Certificate>,
    header_forward_pattern: Option<String>,
    compression: Compression,
    keepalive_time_ms: u64,
    keepalive_timeout_ms: u64,
    keepalive_permit_without_calls: bool,
    max_pings_without_data: u32,
    min_ping_interval_ms: u64,
    max_ping_strikes: u32,
    /// 0: they may last.
    max_connection_age_ms: u64,
    max_connection_age_grace_ms: u64,
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum Compression {
    None,
    Low,
    Medium,
    High,
}

impl Compression {
    /// Of zlib.
    fn level(&self) -> Option<u32> {
        match self {
            Self::None => None,
            Self::Low => Some(1),
            Self::Medium => Some(5),
            Self::High => Some(9),
        }
    }
}

impl From<GrpcOptions> for kushi_server::GrpcOptions {
    fn from(options: GrpcOptions) -> Self {
        let end = |milliseconds: u64| (milliseconds > 0).then(|| Duration::from_millis(milliseconds));
        Self {
            keep_alive: KeepAlive {
                time: Duration::from_millis(options.keepalive_time_ms),
                timeout: Duration::from_millis(options.keepalive_timeout_ms),
                permit_without_calls: options.keepalive_permit_without_calls,
                max_pings_without_data: options.max_pings_without_data,
                min_ping_interval: Duration::from_millis(options.min_ping_interval_ms),
                max_ping_strikes: options.max_ping_strikes,
                max_connection_age: end(options.max_connection_age_ms),
                max_connection_age_grace: end(options.max_connection_age_grace_ms),
            },
            header_forward_pattern: options.header_forward_pattern,
            restrictions: restrictions(options.restrictions),
            tls: options.tls.map(tls),
            compression_level: options.compression.level(),
            ..Self::default()
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct MetricsOptions {
    cpu: bool,
    gpus: Option<Gpus>,
    interval_ms: u64,
    counter_latencies: bool,
    histogram_latencies: bool,
    /// Of summaries of latencies; `None`: there are none.
    summary_quantiles: Option<Vec<f64>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Gpus {
    /// Which, as CUDA reads it; `None`: all.
    visible: Option<String>,
}

impl Options {
    pub(crate) fn into_parts(self) -> Result<(Option<LogOptions>, ServerOptions), Error> {
        let interval = Duration::from_millis(self.metrics.interval_ms);
        let plane = DataPlaneOptions {
            metadata: ServerMetadata {
                name: self.server_name,
                version: self.server_version,
                extensions: self.extensions,
            },
            strict_readiness: self.strict_readiness,
            repositories: self.repositories,
            explicit_control: self.explicit_control,
            allow_client_regions: self.allow_client_regions,
            log: logging::switch(),
            traces: self.trace.options()?,
            machine_metrics: self.metrics.cpu.then_some(interval),
            gpu_metrics: self.metrics.gpus.map(|gpus| GpuOptions { interval, visible: gpus.visible }),
            metrics: kushi_dataplane::MetricsOptions {
                counters: self.metrics.counter_latencies,
                histograms: self.metrics.histogram_latencies,
                quantiles: self.metrics.summary_quantiles,
            },
        };
        let server = ServerOptions {
            io_threads: self.io_threads.unwrap_or_else(usable_cores),
            plane,
            limits: self.http.limits(),
            http: kushi_server::HttpOptions {
                limits: self.http.http_limits(),
                header_forward_pattern: self.http.header_forward_pattern,
                restrictions: restrictions(self.http.restrictions),
                tls: self.http.tls.map(tls),
                playground: self.http.playground,
            },
            grpc: self.grpc.into(),
            give_way,
            give_memory_back,
        };
        Ok((self.log, server))
    }
}

fn restrictions(rules: Vec<Rule>) -> Vec<Restriction> {
    rules.into_iter().map(|(apis, header, value)| Restriction { apis, header, value }).collect()
}

fn tls((certificate, key, client_authorities): Certificate) -> TlsFiles {
    TlsFiles { certificate, key, client_authorities }
}
