//! What a Python object answers, as the outputs of a batch.

use kushi_arrays::Fault;
use kushi_core::{Buffer, DataType, Error, ErrorKind, ModelSpec, Tensor, TensorSpec};
use pyo3::prelude::*;
use pyo3::types::{IntoPyDict, PyDict, PyList, PyTuple};

use crate::engine::Outputs;
use crate::exit;
use crate::raised::described;

/// From here on the GIL is given up for a copy.
const LONG_COPY_BYTES: usize = 1 << 20;

/// `answer` is a sequence in the order of the specification, or a dictionary by name.
pub(crate) fn read(
    answer: &Bound<'_, PyAny>,
    spec: &ModelSpec,
    rows: usize,
    wanted: &[bool],
) -> Result<Outputs, Error> {
    let py = answer.py();
    let items = items(answer, spec).map_err(|problem| match problem {
        Problem::Text(text) => failed(format!("model '{}' answered {text}", spec.name)),
        Problem::Raised(error) => described(py, &error, &spec.name),
    })?;
    let outputs = items.into_iter().zip(&spec.outputs).zip(wanted).map(|((item, output), &wanted)| {
        if !wanted {
            return Ok(None);
        }
        let subject = format!("output '{}'", output.name);
        let item = item.filter(|item| !item.is_none()).ok_or_else(|| {
            failed(format!("model '{}' left {subject} out, which was asked for", spec.name))
        })?;
        let item = strings(item, output.datatype).map_err(|error| described(py, &error, &spec.name))?;
        let tensor = kushi_arrays::tensor(&item).map_err(|fault| refused(py, fault, &spec.name, &subject))?;
        let tensor = own(py, &as_declared(tensor, output.datatype));
        check_shape(&tensor, output, spec, rows)?;
        Ok(Some(tensor))
    });
    outputs.collect()
}

/// The words of a fault behind the tensor that has it.
pub(crate) fn refused(py: Python<'_>, fault: Fault, model: &str, subject: &str) -> Error {
    match fault {
        Fault::Refused(text) => failed(format!("{subject} of model '{model}' {text}")),
        Fault::Unreadable(error) => {
            failed(format!("{subject} of model '{model}' {}", Fault::unreadable(&error)))
        }
        Fault::Raised(error) => described(py, &error, model),
    }
}

fn failed(text: String) -> Error {
    Error::new(ErrorKind::EngineFailed, text)
}

enum Problem {
    Text(String),
    Raised(PyErr),
}

impl From<PyErr> for Problem {
    fn from(error: PyErr) -> Self {
        Self::Raised(error)
    }
}

type Items<'py> = Vec<Option<Bound<'py, PyAny>>>;

fn items<'py>(answer: &Bound<'py, PyAny>, spec: &ModelSpec) -> Result<Items<'py>, Problem> {
    if let Ok(named) = answer.cast::<PyDict>() {
        return by_name(named, spec);
    }
    // Anything else that can be gone through, an array say, would pass for outputs that it is not.
    let items: Items<'py> = if let Ok(list) = answer.cast::<PyList>() {
        list.iter().map(Some).collect()
    } else if let Ok(tuple) = answer.cast::<PyTuple>() {
        tuple.iter().map(Some).collect()
    } else {
        let class = answer.get_type().fully_qualified_name()?;
        return Err(Problem::Text(format!("an object of type {class}, expected a list of its outputs")));
    };
    let (expected, got) = (spec.outputs.len(), items.len());
    if got != expected {
        return Err(Problem::Text(format!("{got} outputs, expected {expected}: {}", names(spec))));
    }
    Ok(items)
}

fn by_name<'py>(named: &Bound<'py, PyDict>, spec: &ModelSpec) -> Result<Items<'py>, Problem> {
    for name in named.keys() {
        let known = name.extract::<String>().is_ok_and(|name| spec.output(&name).is_some());
        if !known {
            let shown = name.repr().map_or_else(|_| "?".into(), |shown| shown.to_string_lossy().into_owned());
            return Err(Problem::Text(format!("an output {shown}, expected {}", names(spec))));
        }
    }
    let items = spec.outputs.iter().map(|output| named.get_item(&output.name));
    Ok(items.collect::<Result<_, PyErr>>()?)
}

fn names(spec: &ModelSpec) -> String {
    let names: Vec<String> = spec.outputs.iter().map(|output| format!("'{}'", output.name)).collect();
    names.join(", ")
}

/// A list that is to be strings may have none, and would be an array of numbers.
fn strings(item: Bound<'_, PyAny>, declared: DataType) -> PyResult<Bound<'_, PyAny>> {
    if declared != DataType::Bytes || !item.is_instance_of::<PyList>() {
        return Ok(item);
    }
    let py = item.py();
    let objects = [("dtype", "object")].into_py_dict(py)?;
    py.import("numpy")?.call_method("asarray", (item,), Some(&objects))
}

/// BF16 where Python has no such type: the upper half of the float32.
fn as_declared(tensor: Tensor, declared: DataType) -> Tensor {
    if (tensor.datatype, declared) != (DataType::Fp32, DataType::Bf16) {
        return tensor;
    }
    let floats = tensor.data.as_bytes().as_chunks::<4>().0.iter();
    let halves: Vec<u8> =
        floats.flat_map(|float| rounded(f32::from_le_bytes(*float)).to_le_bytes()).collect();
    Tensor { datatype: DataType::Bf16, shape: tensor.shape, data: Buffer::host(halves) }
}

/// To the nearest, and to even between two. What has an exact counterpart keeps it, any kind of NaN too.
fn rounded(float: f32) -> u16 {
    let bits = float.to_bits();
    let upper = (bits >> 16) as u16;
    if bits.trailing_zeros() >= 16 {
        return upper;
    }
    if float.is_nan() {
        return upper | 0x40;
    }
    let half = 0x7FFF + u32::from(upper & 1);
    (bits.wrapping_add(half) >> 16) as u16
}

/// The tensor with memory of its own: that of an array belongs to Python, which may go on writing to it.
fn own(py: Python<'_>, tensor: &Tensor) -> Tensor {
    let copy = || Buffer::host(tensor.data.as_bytes().to_vec());
    let data = if tensor.data.len() < LONG_COPY_BYTES { copy() } else { exit::detached_inside(py, copy) };
    Tensor { datatype: tensor.datatype, shape: tensor.shape.clone(), data }
}

fn check_shape(tensor: &Tensor, output: &TensorSpec, spec: &ModelSpec, rows: usize) -> Result<(), Error> {
    let batch = (spec.max_batch_size > 0).then_some(rows as i64);
    let dims = output.engine_dims();
    let expected: Vec<i64> = batch.into_iter().chain(dims.iter().copied()).collect();
    let fits = tensor.shape.len() == expected.len()
        && tensor.shape.iter().zip(&expected).all(|(got, expected)| *expected < 0 || got == expected);
    if fits {
        return Ok(());
    }
    let (name, model, got) = (&output.name, &spec.name, &tensor.shape);
    Err(failed(format!("output '{name}' of model '{model}' has shape {got:?}, expected {expected:?}")))
}
