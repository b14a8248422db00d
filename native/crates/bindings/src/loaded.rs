//! What Python hands over to be served: one variant for each kind of engine.

use std::sync::Arc;

use kushi_core::{Engine, Error, ModelSpec};
use kushi_engine_onnx::OnnxEngine;
use pyo3::prelude::*;

use crate::onnx::OnnxModel;
use crate::python_engine::PythonModel;

#[derive(FromPyObject)]
pub(crate) enum Loaded {
    Onnx(Py<OnnxModel>),
    Python(Py<PythonModel>),
}

impl Loaded {
    /// The engine that it makes under this specification.
    pub(crate) fn engine(&self, spec: &ModelSpec) -> Result<Arc<dyn Engine>, Error> {
        match self {
            Self::Onnx(model) => Ok(Arc::new(OnnxEngine::new(model.get().session.clone(), spec)?)),
            Self::Python(model) => model.get().make(spec),
        }
    }
}

/// One engine for each instance: where there is one in all, it is shared by all.
pub(crate) fn engines(loaded: &[Loaded], spec: &ModelSpec) -> Result<Vec<Arc<dyn Engine>>, Error> {
    let engines = loaded.iter().map(|loaded| loaded.engine(spec)).collect::<Result<Vec<_>, _>>()?;
    Ok(match &engines[..] {
        [shared] => vec![shared.clone(); spec.instances],
        _ => engines,
    })
}
