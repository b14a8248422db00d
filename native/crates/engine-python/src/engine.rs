//! Executes the core's batches by a Python object.

use std::sync::Arc;

use kushi_core::{Batch, Capability, Engine, Error, ErrorKind, ModelSpec, Scratch, Slot, Tensor};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyList;
use smallvec::SmallVec;

use crate::exit;
use crate::outputs;
use crate::parameters;
use crate::raised::described;

/// By position in the specification; `None` for an output that nobody wants.
pub(crate) type Outputs = SmallVec<[Option<Tensor>; 4]>;

/// The object has a method `execute(inputs, wanted)` and an attribute `concurrent`, and may have `takes_parameters`;
/// what they mean is written on `runners.backends.PythonEngine`.
pub struct PythonEngine {
    execute: Option<Py<PyAny>>,
    concurrent: bool,
    takes_parameters: bool,
    spec: Arc<ModelSpec>,
}

impl PythonEngine {
    /// `spec` is the model's that the engine is for.
    pub fn new(object: &Bound<'_, PyAny>, spec: Arc<ModelSpec>) -> PyResult<Self> {
        let py = object.py();
        let execute = object.getattr(intern!(py, "execute"))?;
        let concurrent = object.getattr(intern!(py, "concurrent"))?.extract()?;
        let takes_parameters = object.getattr_opt(intern!(py, "takes_parameters"))?;
        let takes_parameters = takes_parameters.map_or(Ok(false), |takes| takes.extract())?;
        exit::watch(py)?;
        Ok(Self { execute: Some(execute.unbind()), concurrent, takes_parameters, spec })
    }

    fn run(
        &self,
        py: Python<'_>,
        scratch: &mut Scratch,
        batch: &mut Batch,
        wanted: &[bool],
    ) -> Result<Outputs, Error> {
        let (spec, rows) = (&*self.spec, batch.rows());
        let parameters = self.takes_parameters.then(|| parameters::of_batch(py, batch));
        let outputs = kushi_arrays::lend(py, batch, scratch, |inputs| {
            // The references to the inputs, and an exception's to its frames, go before the loan is looked at.
            let call = || {
                let Some(execute) = &self.execute else { return Ok(py.None().into_bound(py)) };
                let (inputs, wanted) = (PyList::new(py, inputs)?, PyList::new(py, wanted)?);
                match parameters {
                    Some(parameters) => execute.bind(py).call1((inputs, wanted, parameters?)),
                    None => execute.bind(py).call1((inputs, wanted)),
                }
            };
            let answer = call();
            match answer {
                Ok(answer) => outputs::read(&answer, spec, rows, wanted),
                Err(error) => Err(described(py, &error, &spec.name)),
            }
        });
        outputs.unwrap_or_else(|fault| Err(outputs::refused(py, fault, &spec.name, "an input")))
    }
}

impl Engine for PythonEngine {
    fn capability(&self) -> Capability {
        Capability { concurrent: self.concurrent, inline: false, decoupled: false }
    }

    fn execute(&self, slot: &mut Slot, mut batch: Batch) {
        let wanted: SmallVec<[bool; 8]> =
            (0..self.spec.outputs.len()).map(|index| batch.wants(index)).collect();
        let inside = exit::enter();
        let result = inside
            .as_ref()
            .and_then(|_| Python::try_attach(|py| self.run(py, &mut slot.scratch, &mut batch, &wanted)));
        drop(inside);
        batch.computed();
        match result {
            Some(Ok(outputs)) => batch.scatter(&outputs),
            Some(Err(error)) => batch.fail(&error),
            None => {
                batch.fail(&Error::new(ErrorKind::ShuttingDown, "the Python interpreter is shutting down"));
            }
        }
    }
}

impl Drop for PythonEngine {
    /// The object goes on the thread that drops the engine, which is the control plane's. When Python is going
    /// already, its reference stays with it.
    fn drop(&mut self) {
        let execute = self.execute.take();
        if let Some(_inside) = exit::enter() {
            Python::try_attach(|_| drop(execute));
        }
    }
}
