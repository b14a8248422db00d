//! A model that is executed in a process of its own, as the control plane hands it over.

use std::io;
use std::os::fd::IntoRawFd;
use std::sync::{Arc, Weak};
use std::time::Duration;

use kushi_client::{Draft, InferCall, WantedOutput};
use kushi_core::{Engine, Error, ErrorKind, Reply};
use kushi_dataplane::MetricHolder;
use kushi_engine_python::exit;
use kushi_engine_worker::{
    Begun, Call, Host, InProcess, Launch, MetricChange, Metrics, Worker, WorkerEngine, WorkerOptions,
};
use kushi_server::{Asker, Server};
use pyo3::prelude::*;

use crate::documents::parse;
use crate::errors::raise;
use crate::submission::{Beside, submit_child};

/// So many processes are started at the same time: each imports what its model needs.
const MOST_AT_ONCE: usize = 8;

/// Kills all processes of workers with what they have started: for a server that ends at once.
#[pyfunction]
pub(crate) fn kill_workers() {
    kushi_engine_worker::kill_all();
}

/// One instance, whose process is started with the version.
#[pyclass(frozen, module = "kushi_native")]
pub(crate) struct WorkerModel {
    options: WorkerOptions,
    is_given_up: Py<PyAny>,
}

#[pymethods]
impl WorkerModel {
    /// Where `is_given_up` says so, its process ends before it is ready. `thread`, where it is given, is called with two
    /// descriptors instead of starting a process: the worker's socket, and what is to be closed when the worker has
    /// ended. It starts a thread for it.
    #[new]
    #[pyo3(signature = (options_json, is_given_up, thread = None))]
    fn new(
        py: Python<'_>,
        options_json: &str,
        is_given_up: Py<PyAny>,
        thread: Option<Py<PyAny>>,
    ) -> PyResult<Self> {
        let options: Result<WorkerOptions, _> = parse("the options of a worker", options_json);
        let mut options = options.map_err(|error| raise(py, &error, None))?;
        options.launch.thread = thread.map(in_process);
        Ok(Self { options, is_given_up })
    }

    /// The configuration as a model completes it, in a process that is there for nothing else, and ends where
    /// `is_given_up` says so.
    #[staticmethod]
    #[allow(clippy::needless_pass_by_value, reason = "arguments come out of Python as values")]
    fn complete(
        py: Python<'_>,
        launch_json: &str,
        order_json: &str,
        seconds: f64,
        is_given_up: Py<PyAny>,
    ) -> PyResult<String> {
        let is_given_up = || says_yes(&is_given_up);
        let complete = || {
            let launch: Launch = parse("the launch of a worker", launch_json)?;
            let patience = Duration::from_secs_f64(seconds);
            kushi_engine_worker::complete(&launch, order_json, patience, &is_given_up)
        };
        exit::detached(py, complete).map_err(|error| raise(py, &error, None))
    }
}

/// Where it cannot be asked, nobody waits.
fn says_yes(is_given_up: &Py<PyAny>) -> bool {
    let said = exit::attached(|py| is_given_up.call0(py).and_then(|said| said.is_truthy(py)));
    said.is_none_or(|said| said.unwrap_or(true))
}

fn in_process(thread: Py<PyAny>) -> InProcess {
    InProcess(Arc::new(move |socket, ending| {
        let started = exit::attached(|py| {
            let descriptors = (socket.into_raw_fd(), ending.into_raw_fd());
            thread.call1(py, descriptors).map(drop).map_err(|error| io::Error::other(error.to_string()))
        });
        started.unwrap_or_else(|| Err(io::Error::other("the Python interpreter is shutting down")))
    }))
}

/// Waits until all of them are ready, or until nobody waits for them.
pub(crate) fn start_workers(
    server: &Arc<Server>,
    models: &[&WorkerModel],
) -> Result<Vec<Arc<dyn Engine>>, Error> {
    let host: Arc<dyn Host> = Arc::new(Callees(Arc::downgrade(server)));
    let mut started = Started(Vec::with_capacity(models.len()));
    for models in models.chunks(MOST_AT_ONCE) {
        let first = started.0.len();
        for model in models {
            started.0.push(Worker::start(model.options.clone(), host.clone())?);
        }
        for (model, worker) in models.iter().zip(&started.0[first..]) {
            if !worker.wait_until_ready(&|| says_yes(&model.is_given_up))? {
                return Err(Error::new(ErrorKind::ModelUnavailable, "the load was given up"));
            }
        }
    }
    let workers = std::mem::take(&mut started.0);
    Ok(workers.into_iter().map(|worker| Arc::new(WorkerEngine::new(worker)) as Arc<dyn Engine>).collect())
}

/// Workers that go together, side by side, where not all of them become ready.
struct Started(Vec<Worker>);

impl Drop for Started {
    fn drop(&mut self) {
        self.0.iter().for_each(Worker::give_up);
    }
}

/// The text in the body of a failure.
fn error_of(body: &[u8]) -> Option<String> {
    let body: serde_json::Value = serde_json::from_slice(body).ok()?;
    body.get("error")?.as_str().map(str::to_owned)
}

/// The server, for the models that it runs in processes of their own.
struct Callees(Weak<Server>);

impl Callees {
    fn server(&self) -> Result<Arc<Server>, Error> {
        self.0.upgrade().ok_or_else(|| Error::new(ErrorKind::ShuttingDown, "the engine is closed"))
    }
}

impl Host for Callees {
    fn metrics(&self, model: &str) -> Result<Arc<dyn Metrics>, Error> {
        Ok(Arc::new(OwnMetrics(self.server()?.metric_holder(model))))
    }

    fn begin(&self, call: Call, reply: &dyn Fn() -> Reply) -> Result<Begun, Error> {
        let server = self.server()?;
        // One that is not there is no part of a ring.
        let inference = server.find(&call.model, &call.version, &call.parameters)?;
        if inference.spec().decoupled && !call.decoupled {
            let text = format!(
                "Model {} is using the decoupled. The current BLS request call doesn't support models using the \
                 decoupled transaction policy. Please use 'decoupled=True' argument to the 'exec' or 'async_exec' calls \
                 for decoupled models.'",
                call.model
            );
            return Err(Error::new(ErrorKind::Unsupported, text));
        }
        server.enter_ring(&call.caller, &call.model)?;
        let draft = |(name, tensor)| Draft { name: Some(name), tensor };
        let wanted = |name| WantedOutput { name, classes: 0 };
        let infer = InferCall {
            model: call.model,
            version: call.version,
            id: call.id,
            inputs: call.inputs.into_iter().map(draft).collect(),
            outputs: call.wanted.into_iter().map(wanted).collect(),
            parameters: call.parameters,
            priority: call.priority,
            timeout_us: call.timeout_us,
            ..InferCall::default()
        };
        let beside =
            Beside { deadline: call.deadline, context: call.context, sequence: call.sequence, streams: true };
        let submitted = submit_child(&server, infer, beside, reply)?;
        Ok(Begun { spec: submitted.spec, ticket: submitted.ticket, lease: submitted.lease })
    }

    fn perform(
        &self,
        verb: String,
        arguments: String,
        on_answer: Box<dyn FnOnce(Result<String, String>) + Send>,
    ) {
        let server = self.server();
        // An order to load a model takes as long as that does.
        let work = move || {
            on_answer(server.map_err(|error| error.message.into_owned()).and_then(|server| {
                let answer = server.call(Asker::Model, &verb, arguments.as_bytes());
                let text = String::from_utf8_lossy(&answer.body).into_owned();
                if answer.status == 200 { Ok(text) } else { Err(error_of(&answer.body).unwrap_or(text)) }
            }));
        };
        if let Err(error) = std::thread::Builder::new().name("kushi-asked".into()).spawn(work) {
            log::error!("cannot start a thread for what a model asks: {error}");
        }
    }
}

/// Those of one instance.
struct OwnMetrics(MetricHolder);

impl Metrics for OwnMetrics {
    fn family(&self, name: &str, description: &str, kind: &str) -> Result<u64, Error> {
        self.0.family(name, description, kind.parse()?)
    }

    fn metric(
        &self,
        family: u64,
        labels: Vec<(String, String)>,
        buckets: Option<&[f64]>,
    ) -> Result<u64, Error> {
        self.0.metric(family, labels, buckets)
    }

    fn change(&self, metric: u64, change: MetricChange) -> bool {
        let change = match change {
            MetricChange::Increment(by) => kushi_dataplane::MetricChange::Increment(by),
            MetricChange::Set(to) => kushi_dataplane::MetricChange::Set(to),
            MetricChange::Observe(value) => kushi_dataplane::MetricChange::Observe(value),
        };
        self.0.change(metric, change)
    }

    fn value(&self, metric: u64) -> Option<f64> {
        self.0.value(metric)
    }

    fn release(&self, number: u64) {
        self.0.release(number);
    }

    fn process_ended(&self) {
        self.0.process_ended();
    }
}
