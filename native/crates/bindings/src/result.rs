//! What a call answers: a mapping from output names to arrays, with what else the answer says.
//!
//! Results live as long as anything refers to them, whatever became of the engine or the client.

use std::sync::OnceLock;
use std::time::Duration;

use kushi_arrays::Fault;
use kushi_client::Answer;
use kushi_core::{Error, ErrorKind, Tensor, Timings};
use kushi_engine_python::{exit, to_dict};
use pyo3::exceptions::{PyBufferError, PyKeyError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{IntoPyDict, PyDict, PyList, PyTuple};

use crate::errors::{About, raise_about};

/// What a model answered: a read-only mapping from the names of its outputs to NumPy arrays.
///
/// It lives as long as anything refers to it, also after the engine or the client is closed.
#[pyclass(frozen, mapping, module = "kushi_native", name = "Result")]
pub(crate) struct PyResultMapping {
    answer: Answer,
    /// Made when they are asked for, once: what is written to an array is read from it again.
    arrays: Box<[Array]>,
}

/// The array of a tensor, once somebody has asked for it.
///
/// A `PyOnceLock` would give the GIL up before it makes one, and take it again for that.
#[derive(Default)]
struct Array(OnceLock<Py<PyAny>>);

impl Array {
    /// Threads that ask at the same time get the same one.
    fn of<'py>(&self, py: Python<'py>, tensor: &Tensor) -> Result<Bound<'py, PyAny>, Fault> {
        let known = match self.0.get() {
            Some(known) => known,
            None => {
                let made = kushi_arrays::array(py, tensor)?.unbind();
                self.0.get_or_init(|| made)
            }
        };
        Ok(known.bind(py).clone())
    }

    fn clone_ref(&self, py: Python<'_>) -> Self {
        Self(self.0.get().map(|known| known.clone_ref(py).into()).unwrap_or_default())
    }
}

impl From<Answer> for PyResultMapping {
    fn from(answer: Answer) -> Self {
        let arrays = answer.outputs.iter().map(|_| Array::default()).collect();
        Self { answer, arrays }
    }
}

impl PyResultMapping {
    fn position(&self, name: &str) -> Option<usize> {
        self.answer.outputs.iter().position(|(known, _)| known == name)
    }

    fn array<'py>(&self, py: Python<'py>, position: usize) -> PyResult<Bound<'py, PyAny>> {
        let (name, tensor) = &self.answer.outputs[position];
        self.arrays[position].of(py, tensor).map_err(|fault| self.raise(py, name, fault))
    }

    fn raise(&self, py: Python<'_>, name: &str, fault: Fault) -> PyErr {
        let about = About { model: self.answer.model.clone(), request_id: self.answer.id.clone() };
        raise_output(py, name, fault, &about)
    }

    fn all<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let all = PyDict::new(py);
        for (position, name) in self.names().enumerate() {
            all.set_item(name, self.array(py, position)?)?;
        }
        Ok(all)
    }

    fn names(&self) -> impl Iterator<Item = &str> {
        self.answer.outputs.iter().map(|(name, _)| name.as_str())
    }

    fn known(&self, name: &Bound<'_, PyAny>) -> PyResult<usize> {
        if let Some(position) = self.found(name) {
            return Ok(position);
        }
        let names: Vec<String> = self.names().map(|name| format!("'{name}'")).collect();
        let (got, model, names) = (name.repr()?, &self.answer.model, names.join(" or "));
        let text = format!("{got} is no output of this answer of model '{model}', expected {names}");
        Err(PyKeyError::new_err(text))
    }

    fn found(&self, name: &Bound<'_, PyAny>) -> Option<usize> {
        name.extract().ok().and_then(|name| self.position(name))
    }
}

fn raise_output(py: Python<'_>, name: &str, fault: Fault, about: &About) -> PyErr {
    let (why, cause) = match fault {
        Fault::Refused(why) => (why, None),
        Fault::Unreadable(error) => (Fault::unreadable(&error), Some(error)),
        Fault::Raised(error) => return error,
    };
    let error = Error::new(ErrorKind::EngineFailed, format!("output '{name}' {why}"));
    let raised = raise_about(py, &error, about);
    raised.set_cause(py, cause);
    raised
}

#[pymethods]
impl PyResultMapping {
    /// The model that answered.
    #[getter]
    fn model_name(&self) -> &str {
        &self.answer.model
    }

    /// The version that answered.
    #[getter]
    fn model_version(&self) -> &str {
        &self.answer.version
    }

    /// The id that the request was given, or an empty text.
    #[getter]
    fn request_id(&self) -> &str {
        &self.answer.id
    }

    /// The parameters of the answer.
    #[getter]
    fn parameters<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let _inside = exit::enter();
        to_dict(py, &self.answer.parameters)
    }

    /// Where the time went, in the engine; None from servers that do not tell.
    #[getter]
    fn timings(&self) -> Option<PyTimings> {
        self.answer.timings.map(PyTimings)
    }

    fn __getitem__<'py>(&self, py: Python<'py>, name: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let _inside = exit::enter();
        self.array(py, self.known(name)?)
    }

    fn __contains__(&self, name: &Bound<'_, PyAny>) -> bool {
        self.found(name).is_some()
    }

    fn __iter__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let _inside = exit::enter();
        PyTuple::new(py, self.names().collect::<Vec<_>>())?.try_iter().map(Bound::into_any)
    }

    fn __len__(&self) -> usize {
        self.answer.outputs.len()
    }

    /// The names of the outputs.
    fn keys<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let _inside = exit::enter();
        let names = self.names().map(|name| (name, ()));
        names.collect::<Vec<_>>().into_py_dict(py)?.call_method0(intern!(py, "keys"))
    }

    /// The arrays of the outputs.
    fn values<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let _inside = exit::enter();
        self.all(py)?.call_method0(intern!(py, "values"))
    }

    /// The names and arrays of the outputs.
    fn items<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let _inside = exit::enter();
        self.all(py)?.call_method0(intern!(py, "items"))
    }

    /// The array of an output, or the default for no such output.
    #[pyo3(signature = (name, default = None, /))]
    fn get<'py>(
        &self,
        py: Python<'py>,
        name: &Bound<'py, PyAny>,
        default: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let _inside = exit::enter();
        match self.found(name) {
            Some(position) => self.array(py, position).map(Some),
            None => Ok(default),
        }
    }

    /// As tritonclient's: the array, or None for no such output.
    fn as_numpy<'py>(
        &self,
        py: Python<'py>,
        name: &Bound<'py, PyAny>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let _inside = exit::enter();
        self.found(name).map(|position| self.array(py, position)).transpose()
    }

    /// An output for other frameworks: it speaks `DLPack`.
    fn tensor(&self, py: Python<'_>, name: &Bound<'_, PyAny>) -> PyResult<PyTensor> {
        let _inside = exit::enter();
        let position = self.known(name)?;
        let array = self.arrays[position].clone_ref(py);
        let (name, tensor) = self.answer.outputs[position].clone();
        Ok(PyTensor { name, tensor, array })
    }

    /// The description of an output, as tritonclient's HTTP client gives it.
    fn get_output<'py>(
        &self,
        py: Python<'py>,
        name: &Bound<'py, PyAny>,
    ) -> PyResult<Option<Bound<'py, PyDict>>> {
        let _inside = exit::enter();
        self.found(name).map(|position| self.describe(py, position)).transpose()
    }

    /// The answer without its data, as tritonclient's HTTP client gives it.
    fn get_response<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let _inside = exit::enter();
        let response = PyDict::new(py);
        if !self.answer.id.is_empty() {
            response.set_item("id", &self.answer.id)?;
        }
        response.set_item("model_name", &self.answer.model)?;
        response.set_item("model_version", &self.answer.version)?;
        if !self.answer.parameters.is_empty() {
            response.set_item("parameters", self.parameters(py)?)?;
        }
        let outputs = (0..self.arrays.len()).map(|position| self.describe(py, position));
        response.set_item("outputs", PyList::new(py, outputs.collect::<PyResult<Vec<_>>>()?)?)?;
        Ok(response)
    }

    fn __repr__(&self) -> String {
        let outputs = self.answer.outputs.iter();
        let outputs: Vec<String> = outputs
            .map(|(name, tensor)| format!("{name}: {}{:?}", tensor.datatype, tensor.shape.as_slice()))
            .collect();
        format!("<Result of '{}' version {}: {}>", self.answer.model, self.answer.version, outputs.join(", "))
    }
}

impl PyResultMapping {
    fn describe<'py>(&self, py: Python<'py>, position: usize) -> PyResult<Bound<'py, PyDict>> {
        let (name, tensor) = &self.answer.outputs[position];
        let parameters = PyDict::new(py);
        parameters.set_item("binary_data_size", tensor.data.len())?;
        let output = PyDict::new(py);
        output.set_item("name", name)?;
        output.set_item("datatype", tensor.datatype.name())?;
        output.set_item("shape", tensor.shape.as_slice())?;
        output.set_item("parameters", parameters)?;
        Ok(output)
    }
}

/// One tensor of a result, for other frameworks too.
#[pyclass(frozen, module = "kushi_native", name = "Tensor")]
pub(crate) struct PyTensor {
    name: String,
    tensor: Tensor,
    array: Array,
}

impl PyTensor {
    pub(crate) fn tensor(&self) -> &Tensor {
        &self.tensor
    }
}

#[pymethods]
impl PyTensor {
    /// The datatype by its name in the protocol.
    #[getter]
    fn datatype(&self) -> &'static str {
        self.tensor.datatype.name()
    }

    /// The length of each dimension.
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let _inside = exit::enter();
        PyTuple::new(py, self.tensor.shape.as_slice())
    }

    /// The tensor as an array.
    fn numpy<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let _inside = exit::enter();
        let array = self.array.of(py, &self.tensor);
        array.map_err(|fault| raise_output(py, &self.name, fault, &About::default()))
    }

    #[pyo3(signature = (dtype = None, copy = None))]
    fn __array__<'py>(
        &self,
        py: Python<'py>,
        dtype: Option<Bound<'py, PyAny>>,
        copy: Option<bool>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let _inside = exit::enter_from_python(py)?;
        let options = PyDict::new(py);
        options.set_item("dtype", dtype)?;
        options.set_item("copy", copy)?;
        py.import("numpy")?.call_method("array", (self.numpy(py)?,), Some(&options))
    }

    #[pyo3(signature = (*, stream = None, max_version = None, dl_device = None, copy = None))]
    fn __dlpack__<'py>(
        &self,
        py: Python<'py>,
        stream: Option<&Bound<'py, PyAny>>,
        max_version: Option<(u32, u32)>,
        dl_device: Option<(i32, i32)>,
        copy: Option<bool>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let _inside = exit::enter();
        if stream.is_some() {
            return Err(PyBufferError::new_err("stream is given for a tensor in host memory, expected None"));
        }
        if let Some(device) = dl_device.filter(|&device| device != kushi_arrays::CPU) {
            let text =
                format!("dl_device is {device:?}, a tensor in host memory goes to {:?}", kushi_arrays::CPU);
            return Err(PyBufferError::new_err(text));
        }
        let versioned = max_version.is_some_and(|(major, _)| major >= 1);
        kushi_arrays::capsule(py, &self.tensor, versioned, copy)
            .map_err(|fault| raise_output(py, &self.name, fault, &About::default()))
    }

    #[allow(clippy::unused_self, reason = "part of the protocol")]
    fn __dlpack_device__(&self) -> (i32, i32) {
        kushi_arrays::CPU
    }

    fn __repr__(&self) -> String {
        format!("<Tensor {}{:?}>", self.tensor.datatype, self.tensor.shape.as_slice())
    }
}

/// Where the time of a call went, in the engine.
#[pyclass(frozen, module = "kushi_native", name = "Timings")]
pub(crate) struct PyTimings(Timings);

fn microseconds(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e6
}

#[pymethods]
impl PyTimings {
    /// From the arrival of the request to its execution, in microseconds.
    #[getter]
    fn queue_us(&self) -> f64 {
        microseconds(self.0.queue)
    }

    /// To bring its inputs together, in microseconds.
    #[getter]
    fn compute_input_us(&self) -> f64 {
        microseconds(self.0.compute_input)
    }

    /// To execute the model, in microseconds.
    #[getter]
    fn compute_infer_us(&self) -> f64 {
        microseconds(self.0.compute_infer)
    }

    /// To hand out its outputs, in microseconds.
    #[getter]
    fn compute_output_us(&self) -> f64 {
        microseconds(self.0.compute_output)
    }

    fn __repr__(&self) -> String {
        format!(
            "Timings(queue_us={:.1}, compute_input_us={:.1}, compute_infer_us={:.1}, compute_output_us={:.1})",
            self.queue_us(),
            self.compute_input_us(),
            self.compute_infer_us(),
            self.compute_output_us()
        )
    }
}
