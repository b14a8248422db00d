//! The registry and the doors, driven by Python's control plane.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use kushi_core::{ConfigTexts, Error, ModelSpec, RateLimiter, Runner, RunnerOptions};
use kushi_engine_python::exit;
use kushi_server::{Asker, Description, Server};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};

use crate::calls::Arguments;
use crate::documents::parse;
use crate::errors::{About, guarded, raise};
use crate::infer;
use crate::loaded::{Loaded, start};
use crate::logging;
use crate::options::Options;
use crate::orders::Orders;
use crate::process::{Own, close_at_exit};
use crate::result::PyResultMapping;
use crate::scheduling::give_way;
use crate::started::StartedVersion;
use crate::stream::{self, Stream};
use crate::turns::{SIGNAL_PATIENCE, in_turns};

#[pyclass(frozen, module = "kushi_native")]
pub(crate) struct Core {
    server: Own<Arc<Server>>,
    limiter: Option<Arc<RateLimiter>>,
}

#[pymethods]
impl Core {
    #[new]
    fn new(py: Python<'_>, options_json: &str) -> PyResult<Self> {
        let mut options: Options =
            parse("the options", options_json).map_err(|error| raise(py, &error, None))?;
        let limiter = options.rate_limit.take().map(|counts| Arc::new(RateLimiter::new(counts)));
        let (log, options) = options.into_parts().map_err(|error| raise(py, &error, None))?;
        if let Some(log) = log {
            logging::init(log);
        }
        kushi_engine_onnx::survive_divisions();
        let server =
            exit::detached(py, || Server::start(&options)).map_err(|error| raise(py, &error, None))?;
        let server = Arc::new(server);
        close_at_exit(&server);
        Ok(Self { server: Own::new(server), limiter })
    }

    /// Starts a runner for one version, which has one loaded model for all its instances, or one for each.
    #[allow(clippy::needless_pass_by_value, reason = "arguments come out of Python as values")]
    fn start(&self, py: Python<'_>, name: &str, spec: &str, loaded: Vec<Loaded>) -> PyResult<StartedVersion> {
        // What the model has loaded may have taken the signal.
        kushi_engine_onnx::survive_divisions();
        let started = exit::detached(py, || self.start_runner(name, spec, &loaded));
        started.map(StartedVersion::new).map_err(|error| raise(py, &error, Some(name)))
    }

    /// Puts these versions in the place of what the model had but for the versions that are `kept`; the others finish
    /// what they began. `routes`: in JSON, how requests find a version.
    #[allow(clippy::needless_pass_by_value, reason = "arguments come out of Python as values")]
    #[pyo3(signature = (name, versions, kept=Vec::new(), routes=None))]
    fn publish(
        &self,
        py: Python<'_>,
        name: &str,
        versions: Vec<Py<StartedVersion>>,
        kept: Vec<u64>,
        routes: Option<&str>,
    ) -> PyResult<()> {
        let publish = || {
            let routes = routes.map(|routes| parse("the routes of versions", routes)).transpose()?;
            let runners = versions.iter().map(|version| version.get().publish());
            self.server.publish(name, runners.collect::<Result<_, _>>()?, &kept, routes)
        };
        exit::detached(py, publish).map_err(|error| raise(py, &error, Some(name)))
    }

    /// What clients are told of a version that stays as it is, where its configuration has become another one.
    #[pyo3(signature = (name, version, json, message))]
    fn restate(&self, name: &str, version: u64, json: String, message: Vec<u8>) {
        self.server.restate(name, version, ConfigTexts { json, message });
    }

    /// How a version that stays as it is schedules its requests from now on.
    fn reschedule(&self, py: Python<'_>, name: &str, version: u64, scheduling: &str) -> PyResult<()> {
        let reschedule = || {
            let scheduling = parse(&format!("the queue of model '{name}'"), scheduling)?;
            self.server.reschedule(name, version, scheduling);
            Ok(())
        };
        exit::detached(py, reschedule).map_err(|error| raise(py, &error, Some(name)))
    }

    /// How many instances a version that stays as it is has from now on.
    fn resize(&self, py: Python<'_>, name: &str, version: u64, instances: usize) -> PyResult<()> {
        let resize = || self.server.resize(name, version, instances);
        exit::detached(py, resize).map_err(|error| raise(py, &error, Some(name)))
    }

    /// Names a version that is on its way.
    fn announce(&self, name: &str, version: u64) {
        self.server.registry().announce(name, version);
    }

    #[pyo3(signature = (name, version, reason))]
    fn fail(&self, name: &str, version: Option<u64>, reason: &str) {
        self.server.registry().fail(name, version, reason);
    }

    /// What the index says of a model that serves; an empty note takes it back.
    fn note(&self, name: &str, note: &str) {
        self.server.registry().note(name, note);
    }

    /// A version that was unloaded comes back, once its models are as it needs them.
    fn suspend(&self, name: &str, version: u64, reason: &str) {
        self.server.registry().suspend(name, version, reason);
    }

    /// What was announced and has neither come nor failed does not come.
    fn withdraw(&self, name: &str) {
        self.server.registry().withdraw(name);
    }

    /// The model finishes what it began.
    fn unload(&self, py: Python<'_>, name: &str) {
        exit::detached(py, || self.server.unload(name));
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
            let answer = exit::detached(py, || self.server.call(Asker::Client, verb, arguments));
            Ok((answer.status, answer.kind, PyBytes::new(py, &answer.body)))
        })
    }

    #[pyo3(
        signature = (*arguments),
        text_signature = "($self, model, inputs, model_version, outputs, parameters, deadline, priority, request_id, /)"
    )]
    fn infer<'py>(&self, py: Python<'py>, arguments: &Bound<'py, PyTuple>) -> PyResult<PyResultMapping> {
        let arguments = Arguments::of(arguments)?;
        infer::infer(py, &self.server, self.server.process(), &arguments)
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
        infer::async_infer(py, &self.server, self.server.process(), &arguments)
    }

    #[pyo3(
        signature = (*arguments),
        text_signature = "($self, model, inputs, model_version, outputs, parameters, deadline, priority, request_id, /)"
    )]
    fn stream<'py>(&self, py: Python<'py>, arguments: &Bound<'py, PyTuple>) -> PyResult<Stream> {
        let arguments = Arguments::of(arguments)?;
        stream::begin(py, &self.server, self.server.process(), &arguments)
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
        exit::detached(py, || self.server.serve_http(address, port, reuse_port))
            .map_err(|error| raise(py, &error, None))
    }

    #[allow(clippy::needless_pass_by_value, reason = "arguments come out of Python as values")]
    fn serve_http_unix(&self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        exit::detached(py, || self.server.serve_http_unix(&path)).map_err(|error| raise(py, &error, None))
    }

    #[allow(clippy::needless_pass_by_value, reason = "arguments come out of Python as values")]
    fn serve_local(&self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        exit::detached(py, || self.server.serve_local(&path)).map_err(|error| raise(py, &error, None))
    }

    fn serve_grpc(&self, py: Python<'_>, address: &str, port: u16, reuse_port: bool) -> PyResult<u16> {
        exit::detached(py, || self.server.serve_grpc(address, port, reuse_port))
            .map_err(|error| raise(py, &error, None))
    }

    #[allow(clippy::needless_pass_by_value, reason = "arguments come out of Python as values")]
    fn serve_grpc_unix(&self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        exit::detached(py, || self.server.serve_grpc_unix(&path)).map_err(|error| raise(py, &error, None))
    }

    #[allow(clippy::needless_pass_by_value, reason = "arguments come out of Python as values")]
    fn serve_grpc_handover(&self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        exit::detached(py, || self.server.serve_grpc_handover(&path)).map_err(|error| raise(py, &error, None))
    }

    /// Tells clients of gRPC that ask: the name, the descriptor and the definitions of each file, and the services.
    fn describe_grpc(&self, files: Vec<(String, Vec<u8>, Vec<String>)>, services: Vec<String>) {
        self.server.describe_grpc(Description::new(files, services));
    }

    fn serve_metrics(&self, py: Python<'_>, address: &str, port: u16, tls: bool) -> PyResult<u16> {
        exit::detached(py, || self.server.serve_metrics(address, port, tls))
            .map_err(|error| raise(py, &error, None))
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
        exit::detached(py, || self.server.end_runs());
    }

    fn close(&self, py: Python<'_>) {
        exit::detached(py, || self.server.close());
    }
}

impl Core {
    fn start_runner(&self, name: &str, spec: &str, loaded: &[Loaded]) -> Result<Arc<Runner>, Error> {
        let spec: ModelSpec = parse(&format!("the specification of model '{name}'"), spec)?;
        let options = RunnerOptions {
            drivers: Some(self.server.drivers()),
            observer: self.server.observer(&spec),
            thread_start: give_way,
            limiter: self.limiter.clone(),
            ..RunnerOptions::default()
        };
        if options.limiter.is_none() && !spec.rates.is_empty() {
            log::warn!(
                "model '{name}': field 'instance_group.rate_limiter' has no effect without --rate-limit=execution_count"
            );
        }
        start(&self.server, loaded, spec, options)
    }
}

/// Threads that are joined here may need the interpreter.
impl Drop for Core {
    fn drop(&mut self) {
        exit::detached_at_drop(|| self.server.close());
    }
}

/// Every route of the HTTP door: method, path with names in braces, and the category that it belongs to.
#[pyfunction]
pub(crate) fn routes() -> Vec<(&'static str, &'static str, &'static str)> {
    kushi_server::routes()
}
