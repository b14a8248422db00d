//! The arguments of `infer` and `async_infer`, the same for every way a call may go.

use std::fmt::Display;
use std::time::Duration;

use bytes::Bytes;
use kushi_arrays::Fault;
use kushi_client::{Call, Draft, InferCall};
use kushi_core::{Error, ErrorKind, Parameter};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyFloat, PyInt, PyList, PyMapping, PyString, PyTuple};
use smallvec::SmallVec;

use crate::errors::{About, raise_about};
use crate::result::PyTensor;

/// Of one request, as on HTTP.
const MAX_PARAMETERS: usize = 1024;

/// As Python gave them.
pub(crate) struct Arguments<'py> {
    model: Bound<'py, PyAny>,
    /// What `*inputs` was.
    inputs: Bound<'py, PyAny>,
    model_version: Bound<'py, PyAny>,
    outputs: Bound<'py, PyAny>,
    parameters: Bound<'py, PyAny>,
    deadline: Bound<'py, PyAny>,
    priority: Bound<'py, PyAny>,
    request_id: Bound<'py, PyAny>,
}

impl<'py> Arguments<'py> {
    /// All of them, in the order of the fields.
    pub(crate) fn of(given: &Bound<'py, PyTuple>) -> PyResult<Self> {
        let (model, inputs, model_version, outputs, parameters, deadline, priority, request_id) =
            given.extract()?;
        Ok(Self { model, inputs, model_version, outputs, parameters, deadline, priority, request_id })
    }

    /// The names that an error about this call carries.
    pub(crate) fn about(&self) -> About {
        let text = |value: &Bound<'_, PyAny>| value.extract().unwrap_or_default();
        About { model: text(&self.model), request_id: text(&self.request_id) }
    }

    pub(crate) fn read(&self) -> PyResult<InferCall> {
        self.try_read().map_err(|wrong| wrong.raise(self.model.py(), &self.about()))
    }

    fn try_read(&self) -> Result<InferCall, Wrong> {
        let mut call = InferCall {
            model: text(&self.model, "model", "a name")?,
            id: text(&self.request_id, "request_id", "a str")?,
            version: version(&self.model_version)?,
            ..InferCall::default()
        };
        call.inputs = inputs(&self.inputs)?;
        if !self.outputs.is_none() {
            call.outputs = names(&self.outputs, &call.id)?;
        }
        if !self.parameters.is_none() {
            read_parameters(&self.parameters, &mut call)?;
        }
        if !self.deadline.is_none() {
            call.patience = Some(patience(&self.deadline)?);
        }
        let priority: u64 = self.priority.extract().map_err(|_| {
            invalid(format_args!("priority is {}, expected an int of 0 or more", shown(&self.priority)))
        })?;
        if priority != 0 {
            call.priority = level(priority);
        }
        Ok(call)
    }
}

enum Wrong {
    /// With what somebody else's code raised about it.
    Value(Error, Option<PyErr>),
    Raised(PyErr),
}

impl Wrong {
    fn raise(self, py: Python<'_>, about: &About) -> PyErr {
        match self {
            Self::Value(error, cause) => {
                let raised = raise_about(py, &error, about);
                raised.set_cause(py, cause);
                raised
            }
            Self::Raised(error) => error,
        }
    }
}

impl From<PyErr> for Wrong {
    fn from(error: PyErr) -> Self {
        Self::Raised(error)
    }
}

fn invalid(text: impl Display) -> Wrong {
    Wrong::Value(Error::invalid(text.to_string()), None)
}

/// A value in a message, cut where it gets long.
fn shown(value: &Bound<'_, PyAny>) -> String {
    const LENGTH: usize = 60;
    let text = value.repr().map(|text| text.to_string_lossy().into_owned());
    let text = text.unwrap_or_else(|_| "a value that cannot be shown".into());
    match text.char_indices().nth(LENGTH) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

fn text(value: &Bound<'_, PyAny>, argument: &str, expected: &str) -> Result<String, Wrong> {
    let text = value.cast::<PyString>().ok().and_then(|text| text.to_str().ok());
    let wrong = || invalid(format_args!("{argument} is {}, expected {expected}", shown(value)));
    text.map(str::to_owned).ok_or_else(wrong)
}

fn version(value: &Bound<'_, PyAny>) -> Result<String, Wrong> {
    let text = if let Ok(text) = value.cast::<PyString>() {
        text.to_str().map(str::to_owned).ok()
    } else if value.is_instance_of::<PyInt>() && !value.is_instance_of::<PyBool>() {
        Some(value.to_string())
    } else {
        None
    };
    match text {
        Some(text) if text.is_empty() || text.bytes().all(|byte| byte.is_ascii_digit()) => Ok(text),
        _ => Err(invalid(format_args!(
            "model_version is {}, expected a number, or '' for the latest",
            shown(value)
        ))),
    }
}

fn inputs(given: &Bound<'_, PyAny>) -> Result<SmallVec<[Draft; 4]>, Wrong> {
    let given = given.cast::<PyTuple>().map_err(PyErr::from)?;
    let mut drafts = SmallVec::new();
    if given.len() == 1 {
        let only = given.get_borrowed_item(0)?;
        if !kushi_arrays::is_array(&only)
            && let Ok(by_name) = only.cast::<PyMapping>()
        {
            for item in by_name.items()?.iter() {
                let (name, value) = item.extract::<(Bound<'_, PyAny>, Bound<'_, PyAny>)>()?;
                drafts.push(named(&name, &value)?);
            }
            return Ok(drafts);
        }
    }
    for (position, value) in given.iter().enumerate() {
        drafts.push(Draft { name: None, tensor: tensor(&value, format_args!("{position}"))? });
    }
    Ok(drafts)
}

fn named(name: &Bound<'_, PyAny>, value: &Bound<'_, PyAny>) -> Result<Draft, Wrong> {
    let name = text(name, "the name of an input", "a str")?;
    let tensor = tensor(value, format_args!("'{name}'"))?;
    Ok(Draft { name: Some(name), tensor })
}

fn tensor(value: &Bound<'_, PyAny>, input: impl Display) -> Result<kushi_core::Tensor, Wrong> {
    if let Ok(tensor) = value.cast::<PyTensor>() {
        return Ok(tensor.get().tensor().clone());
    }
    kushi_arrays::tensor(value).map_err(|fault| {
        let refused = |why: &str| Error::invalid(format!("input {input} {}", confused(value).unwrap_or(why)));
        match fault {
            Fault::Refused(why) => Wrong::Value(refused(&why), None),
            Fault::Unreadable(error) => Wrong::Value(refused(&Fault::unreadable(&error)), Some(error)),
            Fault::Raised(error) => Wrong::Raised(error),
        }
    })
}

/// What is wrong with an input where the whole call was meant in another way, one of tritonclient mostly.
fn confused(value: &Bound<'_, PyAny>) -> Option<&'static str> {
    let first = value.cast::<PyList>().ok().and_then(|list| list.get_item(0).ok());
    let value = first.as_ref().unwrap_or(value);
    if value.is_instance_of::<PyDict>() {
        return Some("has a dict, expected an array: inputs go all by position, or all in one mapping");
    }
    let module = value.get_type().module().ok()?;
    let foreign = module.to_str().is_ok_and(|module| module.starts_with("tritonclient."));
    foreign.then_some("has an object of tritonclient, expected the array itself")
}

fn names(given: &Bound<'_, PyAny>, request_id: &str) -> Result<Vec<String>, Wrong> {
    let wrong = || invalid(format_args!("outputs is {}, expected a sequence of names", shown(given)));
    if given.is_instance_of::<PyString>() {
        return Err(wrong());
    }
    let mut names: Vec<String> = Vec::new();
    for name in given.try_iter().map_err(|_| wrong())? {
        let name = text(&name?, "the name of an output", "a str")?;
        if names.contains(&name) {
            let id = if request_id.is_empty() { "<id_unknown>" } else { request_id };
            return Err(invalid(format_args!(
                "[request id: {id}] output '{name}' already exists in request"
            )));
        }
        names.push(name);
    }
    Ok(names)
}

/// A call that is no inference.
pub(crate) fn route(
    method: String,
    path: String,
    body: &[u8],
    deadline: &Bound<'_, PyAny>,
) -> PyResult<Call> {
    Ok(Call { method, path, body: Bytes::copy_from_slice(body), patience: deadline_of(deadline)? })
}

fn deadline_of(given: &Bound<'_, PyAny>) -> PyResult<Option<Duration>> {
    if given.is_none() {
        return Ok(None);
    }
    patience(given).map(Some).map_err(|wrong| wrong.raise(given.py(), &About::default()))
}

fn patience(given: &Bound<'_, PyAny>) -> Result<Duration, Wrong> {
    let duration = match given.extract::<f64>() {
        Ok(seconds) => Duration::try_from_secs_f64(seconds).ok(),
        Err(_) => given.extract::<Duration>().ok(),
    };
    duration.filter(|duration| !duration.is_zero()).ok_or_else(|| {
        let got = shown(given);
        invalid(format_args!("deadline is {got}, expected seconds above 0 or a positive timedelta"))
    })
}

fn read_parameters(given: &Bound<'_, PyAny>, call: &mut InferCall) -> Result<(), Wrong> {
    let Ok(given) = given.cast::<PyMapping>() else {
        return Err(invalid(format_args!("parameters is {}, expected a mapping", shown(given))));
    };
    let count = given.len()?;
    if count > MAX_PARAMETERS {
        return Err(invalid(format_args!(
            "request has {count} parameters, at most {MAX_PARAMETERS} are allowed"
        )));
    }
    for item in given.items()?.iter() {
        let (key, value) = item.extract::<(Bound<'_, PyAny>, Bound<'_, PyAny>)>()?;
        let key = text(&key, "the name of a parameter", "a str")?;
        match key.as_str() {
            "timeout" => call.timeout_us = Some(unsigned(&key, &value, "an int of microseconds")?),
            "priority" => call.priority = level(unsigned(&key, &value, "an int of 0 or more")?),
            _ if key.starts_with("triton_") => {
                return Err(invalid(
                    "parameter keys starting with 'triton_' are reserved for Triton usage and should not be specified.",
                ));
            }
            _ => {
                let value = parameter(&value).ok_or_else(|| {
                    invalid(format_args!(
                        "parameter '{key}' has invalid type. It should be either 'int', 'bool', or 'string'."
                    ))
                })?;
                call.parameters.push((key, value));
            }
        }
    }
    Ok(())
}

/// No model has as many levels as it takes to tell the largest apart.
fn level(priority: u64) -> u32 {
    priority.try_into().unwrap_or(u32::MAX)
}

fn unsigned<'py, T>(key: &str, value: &Bound<'py, PyAny>, expected: &str) -> Result<T, Wrong>
where
    T: for<'a> FromPyObject<'a, 'py>,
{
    let number = Some(value).filter(|value| !value.is_instance_of::<PyBool>());
    let number = number.and_then(|value| value.extract().ok());
    number.ok_or_else(|| invalid(format_args!("parameter '{key}' is {}, expected {expected}", shown(value))))
}

fn parameter(value: &Bound<'_, PyAny>) -> Option<Parameter> {
    if let Ok(value) = value.cast::<PyBool>() {
        Some(Parameter::Bool(value.is_true()))
    } else if let Ok(value) = value.cast::<PyString>() {
        value.to_str().ok().map(|text| Parameter::String(text.to_owned()))
    } else if let Ok(value) = value.cast::<PyFloat>() {
        Some(Parameter::Double(value.value()))
    } else {
        value.extract().ok().map(Parameter::Int)
    }
}

/// In the text of an error that a call met on its way into the core, as HTTP words it.
pub(crate) fn with_id(error: &Error, request_id: &str) -> Error {
    let id = if request_id.is_empty() { "<id_unknown>" } else { request_id };
    Error::new(error.kind, format!("[request id: {id}] {}", error.message))
}

/// The text of a call whose time ran out while it was executed.
pub(crate) fn expired() -> Error {
    Error::new(ErrorKind::DeadlineExceeded, "Request timeout expired")
}
