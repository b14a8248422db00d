//! The arguments of `infer` and `async_infer`, the same for every way a call may go.

use std::fmt::Display;
use std::time::Duration;

use bytes::Bytes;
use kushi_arrays::Fault;
use kushi_client::{Call, Draft, InferCall, WantedOutput};
use kushi_core::{AskedVersion, Error, Parameter};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyFloat, PyList, PyMapping, PyString, PyTuple};
use smallvec::SmallVec;

use crate::carried;
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
            trace: carried::by_callers(self.model.py()),
            ..InferCall::default()
        };
        call.inputs = inputs(&self.inputs)?;
        if !self.outputs.is_none() {
            call.outputs = wanted(&self.outputs, &call.id)?;
        }
        if !self.parameters.is_none() {
            read_parameters(&self.parameters, &mut call)?;
        }
        if !self.deadline.is_none() {
            call.patience = Some(patience(&self.deadline)?);
        }
        let priority = index(&self.priority).and_then(|priority| priority.extract::<u64>().ok());
        let priority = priority.ok_or_else(|| {
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
    let Ok(text) = value.cast::<PyString>() else {
        return Err(invalid(format_args!("{argument} is {}, expected {expected}", shown(value))));
    };
    utf8(text, argument)
}

/// Python's strings may have halves of surrogate pairs, which no encoding has.
fn utf8(text: &Bound<'_, PyString>, argument: &str) -> Result<String, Wrong> {
    let wrong = |_| {
        let got = shown(text);
        invalid(format_args!("{argument} is {got}, which has a lone surrogate and is no text in UTF-8"))
    };
    text.to_str().map(str::to_owned).map_err(wrong)
}

/// As `operator.index` takes it; a truth value is none.
fn index<'py>(value: &Bound<'py, PyAny>) -> Option<Bound<'py, PyAny>> {
    if value.is_instance_of::<PyBool>() {
        return None;
    }
    value.call_method0(intern!(value.py(), "__index__")).ok()
}

fn version(value: &Bound<'_, PyAny>) -> Result<String, Wrong> {
    let text = match value.cast::<PyString>() {
        Ok(text) => text.to_str().map(str::to_owned).ok(),
        Err(_) => index(value).map(|number| number.to_string()),
    };
    match text {
        Some(text) if text.bytes().all(|byte| byte.is_ascii_digit()) => Ok(text),
        Some(text) if AskedVersion::is_label(&text) => Ok(text),
        _ => Err(invalid(format_args!(
            "model_version is {}, expected a number, a label of the model, or '' for the latest",
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

/// Names of outputs, or a mapping from them to how many classes are wanted.
fn wanted(given: &Bound<'_, PyAny>, request_id: &str) -> Result<Vec<WantedOutput>, Wrong> {
    let wrong = || {
        let expected = "expected a sequence of names, or a mapping from names to class counts";
        invalid(format_args!("outputs is {}, {expected}", shown(given)))
    };
    if given.is_instance_of::<PyString>() {
        return Err(wrong());
    }
    let is_sequence = given.is_instance_of::<PyList>() || given.is_instance_of::<PyTuple>();
    let counts = if is_sequence { None } else { given.cast::<PyMapping>().ok() };
    let mut wanted: Vec<WantedOutput> = Vec::new();
    for name in given.try_iter().map_err(|_| wrong())? {
        let given = name?;
        let name = text(&given, "the name of an output", "a str")?;
        if wanted.iter().any(|known| known.name == name) {
            let error = Error::invalid(format!("output '{name}' already exists in request"));
            return Err(Wrong::Value(error.of_request(request_id), None));
        }
        let classes = counts.map_or(Ok(0), |counts| class_count(&name, &counts.get_item(&given)?))?;
        wanted.push(WantedOutput { name, classes });
    }
    Ok(wanted)
}

fn class_count(output: &str, given: &Bound<'_, PyAny>) -> Result<usize, Wrong> {
    let count = index(given).and_then(|count| count.extract::<u64>().ok());
    let count = count.ok_or_else(|| {
        let got = shown(given);
        invalid(format_args!("the class count of output '{output}' is {got}, expected an int of 0 or more"))
    })?;
    Ok(count.try_into().unwrap_or(usize::MAX))
}

/// A call that is no inference.
pub(crate) fn verb(verb: String, arguments: &[u8], deadline: &Bound<'_, PyAny>) -> PyResult<Call> {
    Ok(Call { verb, arguments: Bytes::copy_from_slice(arguments), patience: deadline_of(deadline)? })
}

fn deadline_of(given: &Bound<'_, PyAny>) -> PyResult<Option<Duration>> {
    if given.is_none() {
        return Ok(None);
    }
    patience(given).map(Some).map_err(|wrong| wrong.raise(given.py(), &About::default()))
}

fn patience(given: &Bound<'_, PyAny>) -> Result<Duration, Wrong> {
    let seconds = given.extract::<f64>().ok().filter(|_| !given.is_instance_of::<PyBool>());
    let duration = match seconds {
        Some(seconds) => Duration::try_from_secs_f64(seconds).ok(),
        None => given.extract::<Duration>().ok(),
    };
    duration.filter(|duration| !duration.is_zero()).ok_or_else(|| {
        let got = shown(given);
        let endless = seconds.is_some_and(|seconds| seconds > 0.0);
        let none = if endless { ", or None for no deadline" } else { "" };
        invalid(format_args!("deadline is {got}, expected seconds above 0 or a positive timedelta{none}"))
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
                let value = parameter(&key, &value)?;
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

fn unsigned(key: &str, value: &Bound<'_, PyAny>, expected: &str) -> Result<u64, Wrong> {
    let number = index(value).and_then(|value| value.extract().ok());
    number.ok_or_else(|| invalid(format_args!("parameter '{key}' is {}, expected {expected}", shown(value))))
}

fn parameter(key: &str, value: &Bound<'_, PyAny>) -> Result<Parameter, Wrong> {
    if let Ok(value) = value.cast::<PyBool>() {
        return Ok(Parameter::Bool(value.is_true()));
    }
    if let Ok(value) = value.cast::<PyString>() {
        return Ok(Parameter::String(utf8(value, &format!("parameter '{key}'"))?));
    }
    if let Ok(value) = value.cast::<PyFloat>() {
        return Ok(Parameter::Double(value.value()));
    }
    let Some(number) = index(value) else {
        return Err(invalid(format_args!(
            "parameter '{key}' has invalid type. It should be either 'int', 'bool', or 'string'."
        )));
    };
    let number = number.extract().map(Parameter::Int);
    number.map_err(|_| {
        invalid(format_args!("parameter '{key}' is {}, expected an int of 64 bits", shown(value)))
    })
}
