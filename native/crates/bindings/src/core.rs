//! The registry and the doors, driven by Python's control plane.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use kushi_core::{Error, ErrorKind, ModelSpec, Runner, RunnerOptions};
use kushi_server::{
    Asker, DataPlaneOptions, Description, HttpLimits, KeepAlive, Limits, Restriction, Server, ServerMetadata,
    ServerOptions, TlsFiles,
};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};
use serde::Deserialize;

use crate::calls::Arguments;
use crate::errors::{About, guarded, raise};
use crate::infer;
use crate::loaded::{Loaded, start};
use crate::logging::{self, LogOptions};
use crate::orders::Orders;
use crate::process::{Process, close_at_exit, usable_cores};
use crate::result::PyResultMapping;
use crate::scheduling::give_way;
use crate::started::StartedVersion;
use crate::stream::{self, Stream};
use crate::tracing::Tracing;
use crate::turns::{SIGNAL_PATIENCE, in_turns};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Options {
    io_threads: Option<usize>,
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
    log: LogOptions,
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
    interval_ms: u64,
    counter_latencies: bool,
    histogram_latencies: bool,
    /// Of summaries of latencies; `None`: there are none.
    summary_quantiles: Option<Vec<f64>>,
}

impl Options {
    fn into_parts(self) -> Result<(LogOptions, ServerOptions), Error> {
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
            machine_metrics: self.metrics.cpu.then(|| Duration::from_millis(self.metrics.interval_ms)),
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
            },
            grpc: self.grpc.into(),
            give_way,
        };
        Ok((self.log, server))
    }
}

#[pyclass(frozen, module = "kushi_native")]
pub(crate) struct Core {
    pub(crate) server: Arc<Server>,
    pub(crate) process: Process,
}

#[pymethods]
impl Core {
    #[new]
    fn new(py: Python<'_>, options_json: &str) -> PyResult<Self> {
        let options: Options = parse("the options", options_json).map_err(|error| raise(py, &error, None))?;
        let (log, options) = options.into_parts().map_err(|error| raise(py, &error, None))?;
        logging::init(log);
        let server = py.detach(|| Server::start(&options)).map_err(|error| raise(py, &error, None))?;
        let server = Arc::new(server);
        close_at_exit(&server);
        Ok(Self { server, process: Process::current() })
    }

    /// Starts a runner for one version, which has one loaded model for all its instances, or one for each.
    #[allow(clippy::needless_pass_by_value, reason = "arguments come out of Python as values")]
    fn start(&self, py: Python<'_>, name: &str, spec: &str, loaded: Vec<Loaded>) -> PyResult<StartedVersion> {
        let started = py.detach(|| self.start_runner(name, spec, &loaded));
        started.map(StartedVersion::new).map_err(|error| raise(py, &error, Some(name)))
    }

    /// Puts these versions in the place of what the model had, which finishes what it began.
    #[allow(clippy::needless_pass_by_value, reason = "arguments come out of Python as values")]
    fn publish(&self, py: Python<'_>, name: &str, versions: Vec<Py<StartedVersion>>) -> PyResult<()> {
        let publish = || {
            let runners = versions.iter().map(|version| version.get().publish());
            self.server.publish(name, runners.collect::<Result<_, _>>()?)
        };
        py.detach(publish).map_err(|error| raise(py, &error, Some(name)))
    }

    /// Names a version that is on its way.
    fn announce(&self, name: &str, version: u64) {
        self.server.registry().announce(name, version);
    }

    #[pyo3(signature = (name, version, reason))]
    fn fail(&self, name: &str, version: Option<u64>, reason: &str) {
        self.server.registry().fail(name, version, reason);
    }

    /// What was announced and has neither come nor failed does not come.
    fn withdraw(&self, name: &str) {
        self.server.registry().withdraw(name);
    }

    /// The model finishes what it began.
    fn unload(&self, py: Python<'_>, name: &str) {
        py.detach(|| self.server.unload(name));
    }

    /// What the doors ask of the control plane.
    fn orders(&self) -> Orders {
        Orders(self.server.orders())
    }

    /// Anything but inference: status, name of the error's kind or nothing, body.
    #[pyo3(signature = (verb, arguments, /))]
    fn call<'py>(
        &self,
        py: Python<'py>,
        verb: &str,
        arguments: &[u8],
    ) -> PyResult<(u32, String, Bound<'py, PyBytes>)> {
        guarded(py, About::default, || {
            let answer = py.detach(|| self.server.call(Asker::Client, verb, arguments));
            Ok((answer.status, answer.kind, PyBytes::new(py, &answer.body)))
        })
    }

    #[pyo3(
        signature = (*arguments),
        text_signature = "($self, model, inputs, model_version, outputs, parameters, deadline, priority, request_id, /)"
    )]
    fn infer<'py>(&self, py: Python<'py>, arguments: &Bound<'py, PyTuple>) -> PyResult<PyResultMapping> {
        let arguments = Arguments::of(arguments)?;
        infer::infer(py, &self.server, self.process, &arguments)
    }

    #[pyo3(
        signature = (*arguments),
        text_signature = "($self, model, inputs, model_version, outputs, parameters, deadline, priority, request_id, /)"
    )]
    fn async_infer<'py>(
        &self,
        py: Python<'py>,
        arguments: &Bound<'py, PyTuple>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let arguments = Arguments::of(arguments)?;
        infer::async_infer(py, &self.server, self.process, &arguments)
    }

    #[pyo3(
        signature = (*arguments),
        text_signature = "($self, model, inputs, model_version, outputs, parameters, deadline, priority, request_id, /)"
    )]
    fn stream<'py>(&self, py: Python<'py>, arguments: &Bound<'py, PyTuple>) -> PyResult<Stream> {
        let arguments = Arguments::of(arguments)?;
        stream::begin(py, &self.server, self.process, &arguments)
    }

    /// name, version, state, reason
    fn index(&self) -> Vec<(String, String, &'static str, String)> {
        let rows = self.server.registry().rows().into_iter();
        rows.map(|row| {
            let version = row.version.map(|version| version.to_string()).unwrap_or_default();
            (row.model, version, row.state.index_name(), row.reason)
        })
        .collect()
    }

    fn serve_http(&self, py: Python<'_>, address: &str, port: u16, reuse_port: bool) -> PyResult<u16> {
        py.detach(|| self.server.serve_http(address, port, reuse_port))
            .map_err(|error| raise(py, &error, None))
    }

    #[allow(clippy::needless_pass_by_value, reason = "arguments come out of Python as values")]
    fn serve_http_unix(&self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        py.detach(|| self.server.serve_http_unix(&path)).map_err(|error| raise(py, &error, None))
    }

    #[allow(clippy::needless_pass_by_value, reason = "arguments come out of Python as values")]
    fn serve_local(&self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        py.detach(|| self.server.serve_local(&path)).map_err(|error| raise(py, &error, None))
    }

    fn serve_grpc(&self, py: Python<'_>, address: &str, port: u16, reuse_port: bool) -> PyResult<u16> {
        py.detach(|| self.server.serve_grpc(address, port, reuse_port))
            .map_err(|error| raise(py, &error, None))
    }

    #[allow(clippy::needless_pass_by_value, reason = "arguments come out of Python as values")]
    fn serve_grpc_unix(&self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        py.detach(|| self.server.serve_grpc_unix(&path)).map_err(|error| raise(py, &error, None))
    }

    #[allow(clippy::needless_pass_by_value, reason = "arguments come out of Python as values")]
    fn serve_grpc_handover(&self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        py.detach(|| self.server.serve_grpc_handover(&path)).map_err(|error| raise(py, &error, None))
    }

    /// Tells clients of gRPC that ask: the name, the descriptor and the definitions of each file, and the services.
    fn describe_grpc(&self, files: Vec<(String, Vec<u8>, Vec<String>)>, services: Vec<String>) {
        self.server.describe_grpc(Description::new(files, services));
    }

    fn serve_metrics(&self, py: Python<'_>, address: &str, port: u16) -> PyResult<u16> {
        py.detach(|| self.server.serve_metrics(address, port)).map_err(|error| raise(py, &error, None))
    }

    fn set_started(&self) {
        self.server.set_started();
    }

    /// An infinite time is none that ends.
    fn drain(&self, py: Python<'_>, timeout_s: f64) -> PyResult<usize> {
        let begun = Instant::now();
        let longest = if timeout_s > 0.0 { Duration::MAX } else { Duration::ZERO };
        let patience = Duration::try_from_secs_f64(timeout_s).unwrap_or(longest);
        let turn = || {
            let rest = patience.saturating_sub(begun.elapsed());
            let left = self.server.drain(rest.min(SIGNAL_PATIENCE));
            (left == 0 || rest <= SIGNAL_PATIENCE).then_some(left)
        };
        guarded(py, About::default, || in_turns(py, turn))
    }

    fn end_runs(&self, py: Python<'_>) {
        py.detach(|| self.server.end_runs());
    }

    fn close(&self, py: Python<'_>) {
        py.detach(|| self.server.close());
    }
}

impl Core {
    fn start_runner(&self, name: &str, spec: &str, loaded: &[Loaded]) -> Result<Arc<Runner>, Error> {
        let spec: ModelSpec = parse(&format!("the specification of model '{name}'"), spec)?;
        let options = RunnerOptions {
            drivers: Some(self.server.drivers()),
            observer: self.server.observer(&spec),
            thread_start: give_way,
            ..RunnerOptions::default()
        };
        start(&self.server, loaded, spec, options)
    }
}

/// Threads that are joined here may need the interpreter.
impl Drop for Core {
    fn drop(&mut self) {
        let closed = Python::try_attach(|py| py.detach(|| self.server.close()));
        if closed.is_none() {
            self.server.close();
        }
    }
}

pub(crate) fn parse<'a, T: Deserialize<'a>>(what: &str, json: &'a str) -> Result<T, Error> {
    serde_json::from_str(json)
        .map_err(|error| Error::new(ErrorKind::ConfigInvalid, format!("{what} cannot be read: {error}")))
}

fn restrictions(rules: Vec<Rule>) -> Vec<Restriction> {
    rules.into_iter().map(|(apis, header, value)| Restriction { apis, header, value }).collect()
}

fn tls((certificate, key, client_authorities): Certificate) -> TlsFiles {
    TlsFiles { certificate, key, client_authorities }
}

/// Every route of the HTTP door: method, path with names in braces, and the category that it belongs to.
#[pyfunction]
pub(crate) fn routes() -> Vec<(&'static str, &'static str, &'static str)> {
    kushi_server::routes()
}
