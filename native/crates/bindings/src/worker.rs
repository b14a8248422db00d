//! A model that is executed in a process of its own, as the control plane hands it over.

use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use kushi_client::{Draft, InferCall, WantedOutput};
use kushi_core::{Engine, Error, ErrorKind, Reply};
use kushi_engine_worker::{Begun, Call, Host, Launch, Worker, WorkerEngine, WorkerOptions};
use kushi_server::Server;
use pyo3::prelude::*;

use crate::core::parse;
use crate::errors::raise;
use crate::locks::lock;
use crate::submission::submit_child;

/// One instance. It ends with the engine that it makes, or with this object where it makes none.
#[pyclass(frozen, module = "kushi_native")]
pub(crate) struct WorkerModel {
    worker: Mutex<Option<Worker>>,
}

#[pymethods]
impl WorkerModel {
    /// Waits until the model is ready.
    #[new]
    fn new(py: Python<'_>, options_json: &str) -> PyResult<Self> {
        let start = || {
            let options: WorkerOptions = parse("the options of a worker", options_json)?;
            Worker::start(options)
        };
        let worker = py.detach(start).map_err(|error| raise(py, &error, None))?;
        Ok(Self { worker: Mutex::new(Some(worker)) })
    }

    /// The configuration as a model completes it, in a process that is there for nothing else.
    #[staticmethod]
    fn complete(py: Python<'_>, launch_json: &str, order_json: &str, seconds: f64) -> PyResult<String> {
        let complete = || {
            let launch: Launch = parse("the launch of a worker", launch_json)?;
            kushi_engine_worker::complete(&launch, order_json, Duration::from_secs_f64(seconds))
        };
        py.detach(complete).map_err(|error| raise(py, &error, None))
    }
}

impl WorkerModel {
    pub(crate) fn engine(&self, server: &Arc<Server>) -> Result<Arc<dyn Engine>, Error> {
        let worker = lock(&self.worker).take();
        let worker =
            worker.ok_or_else(|| Error::new(ErrorKind::Internal, "a worker serves one instance only"))?;
        Ok(Arc::new(WorkerEngine::new(worker, Arc::new(Callees(Arc::downgrade(server))))))
    }
}

/// Waits for its process, which needs no interpreter of ours.
impl Drop for WorkerModel {
    fn drop(&mut self) {
        if let Some(worker) = lock(&self.worker).take() {
            let mut worker = Some(worker);
            Python::try_attach(|py| py.detach(|| drop(worker.take())));
            drop(worker);
        }
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
    fn begin(&self, call: Call, reply: &dyn Fn() -> Reply) -> Result<Begun, Error> {
        let server = self.server()?;
        // One that is not there is no part of a ring.
        server.find(&call.model, &call.version)?;
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
            ..InferCall::default()
        };
        let submitted = submit_child(&server, infer, call.deadline, &call.context, reply)?;
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
                let answer = server.call(&verb, arguments.as_bytes());
                let text = String::from_utf8_lossy(&answer.body).into_owned();
                if answer.status == 200 { Ok(text) } else { Err(error_of(&answer.body).unwrap_or(text)) }
            }));
        };
        if let Err(error) = std::thread::Builder::new().name("kushi-asked".into()).spawn(work) {
            log::error!("cannot start a thread for what a model asks: {error}");
        }
    }
}
