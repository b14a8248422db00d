//! A generative model, as the control plane hands it over.

use std::sync::Arc;
use std::time::Duration;

use kushi_core::{Error, ModelSpec, Runner, RunnerOptions};
use kushi_engine_generative::{GenerativeEngine, GenerativeOptions, token_spec};
use kushi_server::Server;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;

use crate::documents::parse;
use crate::errors::raise;
use crate::worker::{WorkerModel, start_workers};

#[pyclass(frozen, module = "kushi_native")]
pub(crate) struct GenerativeModel {
    tokens: Py<WorkerModel>,
    tokenizer: PyBackedBytes,
    options: GenerativeOptions,
}

#[pymethods]
impl GenerativeModel {
    /// `tokens`: what makes tokens of tokens. `tokenizer`: the content of a `tokenizer.json`.
    #[new]
    fn new(
        py: Python<'_>,
        tokens: Py<WorkerModel>,
        tokenizer: PyBackedBytes,
        options_json: &str,
    ) -> PyResult<Self> {
        let options = parse("the options of a generative model", options_json);
        let options = options.map_err(|error| raise(py, &error, None))?;
        Ok(Self { tokens, tokenizer, options })
    }
}

impl GenerativeModel {
    /// Starts a version: as many requests run at the same time as it has instances.
    pub(crate) fn start(
        &self,
        server: &Arc<Server>,
        mut spec: ModelSpec,
        options: RunnerOptions,
    ) -> Result<Arc<Runner>, Error> {
        let workers = start_workers(server, &[self.tokens.get()])?;
        let inner = RunnerOptions { thread_start: options.thread_start, ..RunnerOptions::default() };
        let tokens = Runner::start(token_spec(&spec), workers, inner)?;
        spec.instances = self.options.most_running;
        let made = GenerativeEngine::new(&spec, tokens.clone(), &self.tokenizer, self.options.clone());
        let engine = made.inspect_err(|_| {
            tokens.retire(Duration::ZERO);
        })?;
        let engines = vec![Arc::new(engine) as _; spec.instances];
        Runner::start(spec, engines, options)
    }
}
