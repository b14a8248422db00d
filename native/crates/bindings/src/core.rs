//! The registry and the doors, driven by Python's control plane.

use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use kushi_core::{Engine, Error, ErrorKind, ModelSpec, Runner, RunnerOptions};
use kushi_doors::{Server, ServerOptions};
use kushi_engine_onnx::{OnnxEngine, OnnxSession};
use pyo3::prelude::*;
use serde::Deserialize;

use crate::errors::raise;
use crate::logging::{self, LogOptions};
use crate::onnx::OnnxModel;
use crate::scheduling::give_way;

/// How long a replaced or removed model may take to finish what it began.
const RETIRE_PATIENCE: Duration = Duration::from_secs(30);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Options {
    io_threads: Option<usize>,
    server_name: String,
    server_version: String,
    extensions: Vec<String>,
    strict_readiness: bool,
    http: HttpOptions,
    metrics: MetricsOptions,
    log: LogOptions,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct HttpOptions {
    max_input_bytes: usize,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct MetricsOptions {
    cpu: bool,
    interval_ms: u64,
}

#[pyclass(frozen, module = "kushi_native")]
pub(crate) struct Core {
    server: Server,
}

#[pymethods]
impl Core {
    #[new]
    fn new(py: Python<'_>, options_json: &str) -> PyResult<Self> {
        let options: Options = parse("the options", options_json).map_err(|error| raise(py, &error, None))?;
        logging::init(options.log);
        let cores = || thread::available_parallelism().map_or(1, usize::from);
        let options = ServerOptions {
            io_threads: options.io_threads.unwrap_or_else(cores),
            server_name: options.server_name,
            server_version: options.server_version,
            extensions: options.extensions,
            strict_readiness: options.strict_readiness,
            max_input_bytes: options.http.max_input_bytes,
            cpu_metrics: options.metrics.cpu,
            metrics_interval: Duration::from_millis(options.metrics.interval_ms),
        };
        let server = py.detach(|| Server::start(&options)).map_err(|error| raise(py, &error, None))?;
        Ok(Self { server })
    }

    /// Starts a runner for each version and puts them in the place of what the model had. A version
    /// has one session for all its instances, or one for each.
    #[allow(clippy::needless_pass_by_value, reason = "arguments come out of Python as values")]
    fn load(&self, py: Python<'_>, name: &str, versions: Vec<(String, Vec<Py<OnnxModel>>)>) -> PyResult<()> {
        let sessions =
            |models: &[Py<OnnxModel>]| models.iter().map(|model| model.get().session.clone()).collect();
        let versions: Vec<(&str, Vec<Arc<OnnxSession>>)> =
            versions.iter().map(|(spec, models)| (spec.as_str(), sessions(models))).collect();
        let load = || {
            let mut runners = Vec::new();
            for (spec, sessions) in versions {
                // The threads of those that did start would keep them for ever.
                let runner = self.start(name, spec, sessions).inspect_err(|_| retire(&runners))?;
                runners.push(runner);
            }
            retire(&self.server.registry().publish(name, runners));
            Ok(())
        };
        py.detach(load).map_err(|error| raise(py, &error, Some(name)))
    }

    #[pyo3(signature = (name, version, reason))]
    fn fail(&self, name: &str, version: Option<u64>, reason: &str) {
        self.server.registry().fail(name, version, reason);
    }

    fn unload(&self, py: Python<'_>, name: &str) {
        py.detach(|| retire(&self.server.registry().remove(name)));
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

    fn serve_metrics(&self, py: Python<'_>, address: &str, port: u16) -> PyResult<u16> {
        py.detach(|| self.server.serve_metrics(address, port)).map_err(|error| raise(py, &error, None))
    }

    fn set_started(&self) {
        self.server.set_started();
    }

    fn drain(&self, py: Python<'_>, timeout_s: f64) -> usize {
        let patience = Duration::try_from_secs_f64(timeout_s).unwrap_or_default();
        py.detach(|| self.server.drain(patience))
    }

    fn close(&self, py: Python<'_>) {
        py.detach(|| self.server.close());
    }

    fn statistics(&self) -> String {
        String::from_utf8_lossy(&self.server.statistics()).into_owned()
    }
}

impl Core {
    fn start(&self, name: &str, spec: &str, sessions: Vec<Arc<OnnxSession>>) -> Result<Arc<Runner>, Error> {
        let spec: ModelSpec = parse(&format!("the specification of model '{name}'"), spec)?;
        let engine = |session| Ok(Arc::new(OnnxEngine::new(session, &spec)?) as Arc<dyn Engine>);
        let mut engines = sessions.into_iter().map(engine).collect::<Result<Vec<_>, Error>>()?;
        if let [shared] = &engines[..] {
            engines = vec![shared.clone(); spec.instances];
        }
        let options = RunnerOptions {
            drivers: Some(self.server.drivers()),
            thread_start: give_way,
            ..RunnerOptions::default()
        };
        Runner::start(spec, engines, options)
    }
}

fn parse<'a, T: Deserialize<'a>>(what: &str, json: &'a str) -> Result<T, Error> {
    serde_json::from_str(json)
        .map_err(|error| Error::new(ErrorKind::ConfigInvalid, format!("{what} cannot be read: {error}")))
}

fn retire(runners: &[Arc<Runner>]) {
    for runner in runners {
        if !runner.retire(RETIRE_PATIENCE) {
            log::warn!("model '{}' did not finish in time and was left behind", runner.spec().name);
        }
    }
}
