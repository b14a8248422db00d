//! What Python hands over to be served: one variant for each kind of engine.

use std::sync::Arc;

use kushi_core::{Engine, Error, ErrorKind, ModelSpec, Runner, RunnerOptions};
use kushi_engine_onnx::OnnxEngine;
use kushi_server::Server;
use pyo3::prelude::*;

use crate::ensemble::Ensemble;
use crate::onnx::OnnxModel;
use crate::python_engine::PythonModel;
use crate::worker::WorkerModel;

#[derive(FromPyObject)]
pub(crate) enum Loaded {
    Onnx(Py<OnnxModel>),
    Python(Py<PythonModel>),
    Worker(Py<WorkerModel>),
    Ensemble(Py<Ensemble>),
}

impl Loaded {
    /// The engine that it makes under this specification.
    fn engine(&self, server: &Arc<Server>, spec: &ModelSpec) -> Result<Arc<dyn Engine>, Error> {
        match self {
            Self::Onnx(model) => Ok(Arc::new(OnnxEngine::new(model.get().session.clone(), spec)?)),
            Self::Python(model) => model.get().make(spec),
            Self::Worker(model) => model.get().engine(server),
            Self::Ensemble(_) => {
                let text = format!("ensemble '{}' is loaded once, and nothing beside it", spec.name);
                Err(Error::new(ErrorKind::ConfigInvalid, text))
            }
        }
    }
}

/// Starts a version.
pub(crate) fn start(
    server: &Arc<Server>,
    loaded: &[Loaded],
    spec: ModelSpec,
    options: RunnerOptions,
) -> Result<Arc<Runner>, Error> {
    match loaded {
        [Loaded::Ensemble(ensemble)] => server.start_ensemble(spec, &ensemble.get().steps, options),
        _ => {
            server.forget_ring(&spec.name);
            let engines = engines(server, loaded, &spec)?;
            Runner::start(spec, engines, options)
        }
    }
}

/// One engine for each instance: where there is one in all, it is shared by all.
fn engines(server: &Arc<Server>, loaded: &[Loaded], spec: &ModelSpec) -> Result<Vec<Arc<dyn Engine>>, Error> {
    let engines = loaded.iter().map(|loaded| loaded.engine(server, spec)).collect::<Result<Vec<_>, _>>()?;
    Ok(match &engines[..] {
        [shared] => vec![shared.clone(); spec.instances],
        _ => engines,
    })
}
