//! What Python hands over to be served: one variant for each kind of engine.

use std::sync::Arc;

use kushi_core::{Engine, Error, ErrorKind, ModelSpec, Runner, RunnerOptions};
use kushi_engine_forest::ForestEngine;
use kushi_engine_onnx::{OnnxEngine, TextEngine};
use kushi_engine_openvino::OpenVinoEngine;
use kushi_server::Server;
use pyo3::prelude::*;

use crate::ensemble::Ensemble;
use crate::forest::PyForestModel;
use crate::generative::GenerativeModel;
use crate::onnx::{OnnxModel, OnnxTexts};
use crate::openvino::OpenVinoCompiled;
use crate::python_engine::PythonModel;
use crate::worker::{WorkerModel, start_workers};

#[derive(FromPyObject)]
pub(crate) enum Loaded {
    Onnx(Py<OnnxModel>),
    Texts(Py<OnnxTexts>),
    OpenVino(Py<OpenVinoCompiled>),
    Forest(Py<PyForestModel>),
    Python(Py<PythonModel>),
    Worker(Py<WorkerModel>),
    Ensemble(Py<Ensemble>),
    Generative(Py<GenerativeModel>),
}

impl Loaded {
    fn worker(&self) -> Option<&WorkerModel> {
        match self {
            Self::Worker(model) => Some(model.get()),
            _ => None,
        }
    }

    /// The engine that it makes under this specification.
    fn engine(&self, spec: &ModelSpec) -> Result<Arc<dyn Engine>, Error> {
        match self {
            Self::Onnx(model) => Ok(Arc::new(OnnxEngine::new(model.get().sessions.clone(), spec)?)),
            Self::Texts(model) => Ok(Arc::new(TextEngine::new(Arc::clone(&model.get().model), spec)?)),
            Self::OpenVino(model) => Ok(Arc::new(OpenVinoEngine::new(Arc::clone(&model.get().model), spec)?)),
            Self::Forest(model) => Ok(Arc::new(ForestEngine::new(Arc::clone(&model.get().model), spec)?)),
            Self::Python(model) => model.get().make(spec),
            Self::Worker(_) | Self::Ensemble(_) | Self::Generative(_) => {
                let text = format!("model '{}' is made of more than one kind of engine", spec.name);
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
        [Loaded::Generative(model)] => {
            server.forget_ring(&spec.name);
            model.get().start(server, spec, options)
        }
        _ => {
            server.forget_ring(&spec.name);
            let engines = engines(server, loaded, &spec)?;
            Runner::start(spec, engines, options)
        }
    }
}

/// One engine for each instance: where there is one in all, it is shared by all.
fn engines(server: &Arc<Server>, loaded: &[Loaded], spec: &ModelSpec) -> Result<Vec<Arc<dyn Engine>>, Error> {
    let workers: Vec<&WorkerModel> = loaded.iter().filter_map(Loaded::worker).collect();
    let engines = if workers.len() == loaded.len() {
        start_workers(server, &workers)?
    } else {
        loaded.iter().map(|loaded| loaded.engine(spec)).collect::<Result<Vec<_>, _>>()?
    };
    Ok(match &engines[..] {
        [shared] => vec![shared.clone(); spec.instances],
        _ => engines,
    })
}
