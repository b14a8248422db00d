//! A model that ONNX Runtime has loaded.

use std::ffi::{CStr, c_char};
use std::path::Path;
use std::ptr::{null, null_mut};
use std::sync::{Arc, Mutex, PoisonError};

use kushi_core::{DataType, Error, ErrorKind};
use ort::AsPointer;
use ort::session::SharedSessionInner;
use ort::value::ValueType;
use smallvec::SmallVec;

use crate::environment;
use crate::options::{RunOptions, SessionOptions};
use crate::provider::Accelerator;
use crate::status::{Failure, check};
use crate::types::from_element;
use crate::value::{InputValue, Value};

/// An input or output as the model file declares it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorInfo {
    pub name: String,
    pub datatype: DataType,
    /// -1 for a dimension that the file leaves open.
    pub shape: Vec<i64>,
}

/// OpenVINO does not make two sessions at the same time.
static MAKING_OPENVINO: Mutex<()> = Mutex::new(());

/// A loaded model. On the CPU it may be run from any number of threads at once.
pub struct OnnxSession {
    inner: Arc<SharedSessionInner>,
    run_options: Option<RunOptions>,
    inputs: Vec<TensorInfo>,
    outputs: Vec<TensorInfo>,
    defaulted_inputs: Vec<TensorInfo>,
    runs_on_caller: bool,
    accelerated: bool,
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
        let mut builder = options.builder(&environment::current()?).map_err(|text| fault(&text))?;
        let run_options = options.run_options().map_err(|text| fault(&text))?;
        let on_openvino =
            options.providers.iter().any(|provider| provider.accelerator == Accelerator::OpenVino);
        let alone = on_openvino.then(|| MAKING_OPENVINO.lock().unwrap_or_else(PoisonError::into_inner));
        let session = builder.commit_from_file(path).map_err(|error| fault(error.message()))?;
        drop(alone);
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
            run_options,
            runs_on_caller: options.runs_on_caller(),
            accelerated: !options.providers.is_empty(),
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

    /// Whether anything but the CPU computes. Then one thread at a time may run the session.
    pub fn accelerated(&self) -> bool {
        self.accelerated
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
        let run_options = self.run_options.as_ref().map_or(null(), RunOptions::as_ptr);
        // SAFETY: every array has the length that goes with it, names are C strings, inputs are alive,
        // and null run options are the default ones. `Run` may be called from several threads on one
        // session of the CPU provider; it takes a mutable pointer, but changes nothing unguarded.
        let status = unsafe {
            (ort::api().Run)(
                self.inner.ptr().cast_mut(),
                run_options,
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
