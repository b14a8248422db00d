//! A version of a model that was started and is not served yet.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use kushi_core::{Buffer, Error, ErrorKind, InputDraft, ModelSpec, Runner, Shape, WarmUpSample};
use kushi_engine_python::exit;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;

use crate::errors::raise;
use crate::process::Own;

/// name, data type, shape, bytes
type Input = (String, String, Vec<i64>, PyBackedBytes);
/// name, requests in its batch, runs, the inputs of each request
type Sample = (String, usize, usize, Vec<Input>);

/// One that is not published retires when it is dropped: its threads would keep it for ever.
#[pyclass(frozen, module = "kushi_native")]
pub(crate) struct StartedVersion {
    runner: Own<Arc<Runner>>,
    published: AtomicBool,
}

#[pymethods]
impl StartedVersion {
    /// How many instances it may have while it serves; 0: as many as it was started with.
    #[getter]
    fn most_instances(&self) -> usize {
        self.runner.most_instances()
    }

    /// Executes the samples on every instance.
    fn warm_up(&self, py: Python<'_>, samples: Vec<Sample>) -> PyResult<()> {
        let spec = self.runner.spec().clone();
        let work = || {
            let samples = samples.into_iter().map(|sample| bound(&spec, sample));
            self.runner.warm_up(&samples.collect::<Result<Vec<_>, _>>()?)
        };
        exit::detached(py, work).map_err(|error| raise(py, &error, Some(&self.runner.spec().name)))
    }

    /// It will not be served. A warm-up that goes on ends.
    fn retire(&self, py: Python<'_>) {
        exit::detached(py, || self.runner.retire(Duration::ZERO));
    }
}

impl StartedVersion {
    pub(crate) fn new(runner: Arc<Runner>) -> Self {
        Self { runner: Own::new(runner), published: AtomicBool::new(false) }
    }

    /// Whoever publishes it retires it from now on.
    pub(crate) fn publish(&self) -> Result<Arc<Runner>, Error> {
        if self.published.swap(true, Ordering::AcqRel) {
            let text = format!("model '{}' was handed over before", self.runner.spec().name);
            return Err(Error::new(ErrorKind::Internal, text));
        }
        Ok(Arc::clone(&self.runner))
    }
}

/// Its instance threads may need the interpreter.
impl Drop for StartedVersion {
    fn drop(&mut self) {
        if self.published.load(Ordering::Acquire) || !self.runner.process().is_current() {
            return;
        }
        exit::detached_at_drop(|| {
            self.runner.retire(Duration::ZERO);
        });
    }
}

fn bound(spec: &ModelSpec, (name, batch_size, count, inputs): Sample) -> Result<WarmUpSample, Error> {
    let drafts = inputs.into_iter().map(|(name, datatype, shape, data)| InputDraft {
        name: name.into(),
        datatype: datatype.parse().ok(),
        shape: Shape::from_vec(shape),
        data: Buffer::from_owner(data),
    });
    let bound = spec.bind("", drafts.collect(), &[]).map_err(|error| {
        Error::new(ErrorKind::ConfigInvalid, format!("warmup sample '{name}': {}", error.message))
    })?;
    Ok(WarmUpSample { name, batch_size, count, inputs: bound.inputs })
}
