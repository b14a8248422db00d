//! A model that ONNX Runtime has loaded.

use std::ffi::{CStr, c_char};
use std::path::Path;
use std::ptr::{null, null_mut};
use std::sync::Arc;

use kushi_core::{DataType, Error, ErrorKind};
use ort::AsPointer;
use ort::logging::LogLevel;
use ort::session::builder::{GraphOptimizationLevel, SessionBuilder};
use ort::session::{Session, SharedSessionInner};
use ort::value::ValueType;
use smallvec::SmallVec;

use crate::environment;
use crate::status::{Failure, check};
use crate::types::from_element;
use crate::value::{InputValue, Value};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionOptions {
    /// Threads inside an operator, the calling one included; 0 leaves it to ONNX Runtime.
    pub intra_op_threads: usize,
    /// Threads across operators, where `parallel` is set; 0 leaves it to ONNX Runtime.
    pub inter_op_threads: usize,
    /// Independent operators run side by side.
    pub parallel: bool,
    /// How far the graph is optimised, in ONNX Runtime's numbers: 0 not at all, 1 basic, 2 extended, 99 all.
    pub graph_level: i32,
    /// Idle threads of the session burn their core for a while before they sleep.
    pub allow_spinning: bool,
}

impl Default for SessionOptions {
    fn default() -> Self {
        Self {
            intra_op_threads: 1,
            inter_op_threads: 1,
            parallel: false,
            graph_level: 99,
            allow_spinning: false,
        }
    }
}

/// An input or output as the model file declares it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorInfo {
    pub name: String,
    pub datatype: DataType,
    /// -1 for a dimension that the file leaves open.
    pub shape: Vec<i64>,
}

/// A loaded model. It may be run from any number of threads at once.
pub struct OnnxSession {
    inner: Arc<SharedSessionInner>,
    inputs: Vec<TensorInfo>,
    outputs: Vec<TensorInfo>,
    defaulted_inputs: Vec<TensorInfo>,
    runs_on_caller: bool,
}

/// What a run answers, in the order of the names that were asked for.
pub(crate) type Outputs = SmallVec<[Value; 4]>;

impl OnnxSession {
    /// Loads a model file, and the files with external weights beside it.
    pub fn load(path: &Path, options: &SessionOptions) -> Result<Self, Error> {
        let shown = path.display();
        let fault = |text: &str| {
            Error::new(ErrorKind::ConfigInvalid, format!("onnx model '{shown}' cannot be loaded: {text}"))
        };
        let level = graph_level(options.graph_level).map_err(|text| fault(&text))?;
        let builder = builder(options, level, &environment::current()?);
        let session = builder
            .and_then(|mut builder| builder.commit_from_file(path))
            .map_err(|error| fault(error.message()))?;
        let inputs = session.inputs().iter().map(|input| describe("input", input.name(), input.dtype()));
        let outputs =
            session.outputs().iter().map(|output| describe("output", output.name(), output.dtype()));
        let defaulted = session.overridable_initializers();
        let defaulted = defaulted.iter().map(|input| describe("input", input.name(), input.dtype()));
        let list = |result: Result<Vec<_>, String>| result.map_err(|text| fault(&text));
        Ok(Self {
            inputs: list(inputs.collect())?,
            outputs: list(outputs.collect())?,
            defaulted_inputs: list(defaulted.collect())?,
            inner: session.inner(),
            runs_on_caller: options.intra_op_threads == 1 && !options.parallel,
        })
    }

    /// The inputs that a run needs.
    pub fn inputs(&self) -> &[TensorInfo] {
        &self.inputs
    }

    pub fn outputs(&self) -> &[TensorInfo] {
        &self.outputs
    }

    /// The inputs that may be left out, because the file has a default for them.
    pub fn defaulted_inputs(&self) -> &[TensorInfo] {
        &self.defaulted_inputs
    }

    /// Whether a run computes on the calling thread alone.
    pub fn runs_on_caller(&self) -> bool {
        self.runs_on_caller
    }

    /// Runs the model once. There is a name for each input.
    pub(crate) fn run(
        &self,
        input_names: &[&CStr],
        inputs: &[InputValue<'_>],
        output_names: &[&CStr],
    ) -> Result<Outputs, Failure> {
        assert_eq!(input_names.len(), inputs.len());
        let pointers = |names: &[&CStr]| names.iter().map(|name| name.as_ptr()).collect();
        let input_names: SmallVec<[*const c_char; 8]> = pointers(input_names);
        let output_names: SmallVec<[*const c_char; 8]> = pointers(output_names);
        let mut outputs = SmallVec::<[_; 8]>::from_elem(null_mut(), output_names.len());
        // SAFETY: every array has the length that goes with it, names are C strings, inputs are alive,
        // and null run options are the default ones. `Run` may be called from several threads on one
        // session of the CPU provider; it takes a mutable pointer, but changes nothing unguarded.
        let status = unsafe {
            (ort::api().Run)(
                self.inner.ptr().cast_mut(),
                null(),
                input_names.as_ptr(),
                InputValue::as_pointers(inputs),
                inputs.len(),
                output_names.as_ptr(),
                output_names.len(),
                outputs.as_mut_ptr(),
            )
        };
        // Taken over first, so that they are released if the run failed half-way.
        let values: Outputs = outputs.into_iter().filter_map(Value::from_raw).collect();
        check(status)?;
        assert_eq!(values.len(), output_names.len(), "a run that went well answers every output");
        Ok(values)
    }
}

fn graph_level(level: i32) -> Result<GraphOptimizationLevel, String> {
    match level {
        0 => Ok(GraphOptimizationLevel::Disable),
        1 => Ok(GraphOptimizationLevel::Level1),
        2 => Ok(GraphOptimizationLevel::Level2),
        99 => Ok(GraphOptimizationLevel::All),
        _ => Err(format!("graph optimisation level {level} is not known, expected 0, 1, 2 or 99")),
    }
}

fn builder(
    options: &SessionOptions,
    level: GraphOptimizationLevel,
    environment: &ort::environment::Environment,
) -> ort::Result<SessionBuilder> {
    let builder = Session::builder(environment)?
        .with_log_level(LogLevel::Warning)?
        .with_optimization_level(level)?
        .with_intra_threads(options.intra_op_threads)?
        .with_inter_threads(options.inter_op_threads)?
        .with_parallel_execution(options.parallel)?
        .with_intra_op_spinning(options.allow_spinning)?
        .with_inter_op_spinning(options.allow_spinning)?
        // A pattern is kept for every combination of input shapes that was ever seen: without bound,
        // where shapes are the clients' choice.
        .with_memory_pattern(false)?;
    Ok(builder)
}

fn describe(kind: &str, name: &str, declared: &ValueType) -> Result<TensorInfo, String> {
    let ValueType::Tensor { ty, shape, .. } = declared else {
        let what = match declared {
            ValueType::Sequence(_) => "a sequence",
            ValueType::Map { .. } => "a map",
            _ => "an optional value",
        };
        return Err(format!("{kind} '{name}' is {what}, expected a tensor"));
    };
    let datatype = from_element(*ty).ok_or_else(|| {
        format!("{kind} '{name}' has elements of type {ty}, which the protocol does not have")
    })?;
    Ok(TensorInfo { name: name.to_owned(), datatype, shape: shape.to_vec() })
}
