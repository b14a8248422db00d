//! Executes the core's batches by a Python object.

use std::sync::Arc;

use kushi_arrays::Joined;
use kushi_core::{Batch, Capability, Engine, Error, ModelSpec, Slot, Tensor};
use pyo3::exceptions::PyValueError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyList;
use smallvec::SmallVec;

use crate::exit;
use crate::late::{BegunBatch, Waiter};
use crate::outputs;
use crate::parameters;
use crate::raised::{described, may_be_of_data};

/// By position in the specification; `None` for an output that nobody wants.
pub(crate) type Outputs = SmallVec<[Option<Tensor>; 4]>;
/// By position as well.
pub(crate) type Wanted = SmallVec<[bool; 8]>;

#[expect(clippy::large_enum_variant, reason = "there is one for each batch, on the stack")]
enum EngineAnswer<'a> {
    Now(Outputs),
    /// And what is to be waited for.
    Later(&'a Waiter, Py<PyAny>),
}

/// The object has a method `execute(inputs, wanted)` and an attribute `concurrent`, and may have `takes_parameters`,
/// `keeps_state` and `answers_later`; what they mean is written on `runners.backends.PythonEngine`.
pub struct PythonEngine {
    execute: Option<Py<PyAny>>,
    /// Where it answers later.
    waiter: Option<Waiter>,
    concurrent: bool,
    takes_parameters: bool,
    keeps_state: bool,
    spec: Arc<ModelSpec>,
}

impl PythonEngine {
    /// `spec` is the model's that the engine is for.
    pub fn new(object: &Bound<'_, PyAny>, spec: Arc<ModelSpec>) -> PyResult<Self> {
        let py = object.py();
        let execute = object.getattr(intern!(py, "execute"))?;
        let concurrent = object.getattr(intern!(py, "concurrent"))?.extract()?;
        let flag = |flag: Option<Bound<'_, PyAny>>| flag.map_or(Ok(false), |flag| flag.extract());
        let takes_parameters = flag(object.getattr_opt(intern!(py, "takes_parameters"))?)?;
        let keeps_state = flag(object.getattr_opt(intern!(py, "keeps_state"))?)?;
        let answers_later = flag(object.getattr_opt(intern!(py, "answers_later"))?)?;
        if answers_later && concurrent {
            return Err(PyValueError::new_err("an engine that answers later cannot be concurrent"));
        }
        exit::watch(py)?;
        let waiter = answers_later.then(|| Waiter::start(spec.clone())).transpose()?;
        Ok(Self { execute: Some(execute.unbind()), waiter, concurrent, takes_parameters, keeps_state, spec })
    }

    fn run(
        &self,
        py: Python<'_>,
        inputs: Joined<'_>,
        wanted: &[bool],
        of_data: &mut bool,
    ) -> Result<EngineAnswer<'_>, Error> {
        let (spec, rows) = (&*self.spec, inputs.batch().rows());
        let parameters = self.takes_parameters.then(|| parameters::of_batch(py, inputs.batch()));
        let outputs = inputs.lend(py, |inputs| {
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
                Ok(answer) => match &self.waiter {
                    Some(waiter) => Ok(EngineAnswer::Later(waiter, answer.unbind())),
                    None => {
                        outputs::read(&answer, spec, rows, wanted).map(EngineAnswer::Now).inspect_err(|_| {
                            // Their number of rows may follow from the data of one request.
                            *of_data = !self.keeps_state;
                        })
                    }
                },
                Err(error) => {
                    *of_data = !self.keeps_state && may_be_of_data(py, &error);
                    Err(described(py, &error, &spec.name))
                }
            }
        });
        outputs.unwrap_or_else(|fault| Err(outputs::refused(py, fault, &spec.name, "an input")))
    }
}

impl Engine for PythonEngine {
    fn capability(&self) -> Capability {
        Capability { concurrent: self.concurrent, inline: false, keeps_slots: false }
    }

    fn execute(&self, slot: &mut Slot, mut batch: Batch) {
        let wanted: Wanted = (0..self.spec.outputs.len()).map(|index| batch.wants(index)).collect();
        let mut of_data = false;
        let result = match Joined::new(&mut batch, &mut slot.scratch) {
            Ok(inputs) => exit::attached(|py| self.run(py, inputs, &wanted, &mut of_data)),
            Err(error) => {
                of_data = !self.keeps_state;
                Some(Err(error))
            }
        };
        let computed = match result {
            Some(Ok(EngineAnswer::Later(waiter, later))) => {
                return waiter.hand_over(BegunBatch { batch, wanted, later });
            }
            Some(Ok(EngineAnswer::Now(outputs))) => Ok(outputs),
            Some(Err(error)) => Err(error),
            None => Err(exit::gone()),
        };
        batch.computed();
        match computed {
            Ok(outputs) if self.keeps_state => batch.scatter(&outputs),
            Ok(outputs) => slot.scatter(batch, &outputs),
            Err(error) if of_data => slot.fail(batch, &error),
            Err(error) => batch.fail(&error),
        }
    }
}

impl Drop for PythonEngine {
    /// The object goes on the thread that drops the engine, which is the control plane's. When Python is going
    /// already, its reference stays with it.
    fn drop(&mut self) {
        let execute = self.execute.take();
        exit::attached(|_| drop(execute));
    }
}
