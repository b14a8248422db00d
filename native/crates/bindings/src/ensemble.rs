//! An ensemble, as the control plane hands it over.

use kushi_server::StepSpec;
use pyo3::prelude::*;

use crate::documents::parse;
use crate::errors::raise;

#[pyclass(frozen, module = "kushi_native")]
pub(crate) struct Ensemble {
    pub(crate) steps: Vec<StepSpec>,
}

#[pymethods]
impl Ensemble {
    #[new]
    fn new(py: Python<'_>, steps_json: &str) -> PyResult<Self> {
        let steps = parse("the steps of an ensemble", steps_json).map_err(|error| raise(py, &error, None))?;
        Ok(Self { steps })
    }
}
