//! A model that ONNX Runtime has loaded.

use std::ffi::{CStr, c_char};
use std::path::Path;
use std::ptr::null_mut;
use std::sync::Arc;
use std::time::Duration;

use kushi_core::{DataType, Error, ErrorKind, TensorInfo};
use ort::AsPointer;
use ort::session::{Session, SharedSessionInner};
use ort::value::ValueType;
use smallvec::SmallVec;

use crate::assignment::{Assignment, assignment};
use crate::contents::first_operator;
use crate::environment;
use crate::options::{Entry, RunOptions, SessionOptions};
use crate::provider::OPENVINO;
use crate::rank::{self, Role};
use crate::status::{OrtFailure, check};
use crate::turns::Turns;
use crate::types::from_element;
use crate::value::{InputValue, Value};

/// They end the process where an input has no elements. Of 84,360 runs with empty and hostile tensors the first three did;
/// the others are built on the same code.
static FATAL: [&str; 5] = ["LSTM", "GRU", "STFT", "DynamicQuantizeLSTM", "AttnLSTM"];

/// OpenVINO does not make two sessions at the same time.
static MAKING_OPENVINO: Turns = Turns::new();
/// No model waits for another that has been opened for so long: it may never be.
const LONGEST_OPENVINO: Duration = Duration::from_secs(300);

/// ONNX Runtime looks whether it knows the domain of a library's operators, and adds it if not. Of two
/// sessions that do so at the same time, one fails.
static ADDING_OPERATORS: Turns = Turns::new();
/// That is the first thing a session does. One that has been opened for so long is at something else.
const LONGEST_ADDING: Duration = Duration::from_secs(5);

/// A loaded model. On the CPU it may be run from any number of threads at once.
pub struct OnnxSession {
    inner: Arc<SharedSessionInner>,
    run_entries: Vec<Entry>,
    inputs: Vec<TensorInfo>,
    outputs: Vec<TensorInfo>,
    defaulted_inputs: Vec<TensorInfo>,
    runs_on_caller: bool,
    accelerated: bool,
    fatal_operator: Option<&'static str>,
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
        RunOptions::of(&options.run_entries).map_err(|text| fault(&text))?;
        let alone = options.on_openvino().then(|| MAKING_OPENVINO.take(&shown.to_string(), LONGEST_OPENVINO));
        let alone = alone.transpose().map_err(|other| {
            fault(&format!(
                "OpenVINO opens one model at a time, and has been at '{other}' for {} s: start the server again \
                 without that model",
                LONGEST_OPENVINO.as_secs()
            ))
        })?;
        let brings_operators = !options.operator_libraries.is_empty();
        let adding = brings_operators.then(|| ADDING_OPERATORS.take(&shown.to_string(), LONGEST_ADDING).ok());
        let session = builder.commit_from_file(path).map_err(|error| fault(error.message()))?;
        drop((alone, adding));
        let inner = session.inner();
        let list = |role, tensors: Vec<(&str, &ValueType)>| {
            let described = tensors.into_iter().enumerate().map(|(index, (name, declared))| {
                describe(role, name, declared, || {
                    // SAFETY: the session lives, and this is where it has the tensor.
                    unsafe { rank::is_known(inner.ptr(), role, index) }
                })
            });
            described.collect::<Result<Vec<_>, String>>().map_err(|text| fault(&text))
        };
        let defaulted = session.overridable_initializers();
        let inputs = list(Role::Input, session.inputs().iter().map(|of| (of.name(), of.dtype())).collect())?;
        let outputs =
            list(Role::Output, session.outputs().iter().map(|of| (of.name(), of.dtype())).collect())?;
        let defaulted_inputs =
            list(Role::DefaultedInput, defaulted.iter().map(|of| (of.name(), of.dtype())).collect())?;
        if options.on_openvino() {
            check_openvino(path, &session, &inputs, &outputs).map_err(|text| fault(&text))?;
        }
        Ok(Self {
            inputs,
            outputs,
            defaulted_inputs,
            inner: session.inner(),
            run_entries: options.run_entries.clone(),
            runs_on_caller: options.runs_on_caller(),
            accelerated: !options.providers.is_empty(),
            fatal_operator: first_operator(path, &FATAL).map_err(|error| fault(&error.to_string()))?.copied(),
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

    /// An operator of the model that would end the process if it got a tensor without elements.
    pub(crate) fn fatal_operator(&self) -> Option<&'static str> {
        self.fatal_operator
    }

    /// The configuration of every run.
    pub(crate) fn run_entries(&self) -> &[Entry] {
        &self.run_entries
    }

    /// Runs the model once. There is a name for each input.
    pub(crate) fn run(
        &self,
        options: &RunOptions,
        input_names: &[&CStr],
        inputs: &[InputValue<'_>],
        output_names: &[&CStr],
    ) -> Result<Outputs, OrtFailure> {
        assert_eq!(input_names.len(), inputs.len());
        let pointers = |names: &[&CStr]| names.iter().map(|name| name.as_ptr()).collect();
        let input_names: SmallVec<[*const c_char; 8]> = pointers(input_names);
        let output_names: SmallVec<[*const c_char; 8]> = pointers(output_names);
        let mut outputs = SmallVec::<[_; 8]>::from_elem(null_mut(), output_names.len());
        // SAFETY: every array has the length that goes with it, names are C strings, inputs and options are
        // alive. `Run` may be called from several threads on one
        // session of the CPU provider; it takes a mutable pointer, but changes nothing unguarded.
        let status = unsafe {
            (ort::api().Run)(
                self.inner.ptr().cast_mut(),
                options.as_ptr(),
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

/// A model that names OpenVINO is computed by it, or says what is not.
fn check_openvino(
    path: &Path,
    session: &Session,
    inputs: &[TensorInfo],
    outputs: &[TensorInfo],
) -> Result<(), String> {
    // It frees strings that are not its own, which ends the process.
    if let Some(tensor) = inputs.iter().chain(outputs).find(|tensor| tensor.datatype == DataType::Bytes) {
        return Err(format!("OpenVINO does not take strings, and '{}' is of BYTES", tensor.name));
    }
    // SAFETY: the session is alive, and the options of OpenVINO ask for the record.
    let assignment = unsafe { assignment(session.ptr(), OPENVINO) };
    let Assignment { provider, others } = assignment.map_err(|failure| failure.text().to_owned())?;
    let others = others.into_iter().collect::<Vec<_>>().join(", ");
    if provider.is_empty() && !others.is_empty() {
        return Err(format!("OpenVINO has none of its operators: {others}"));
    }
    if !others.is_empty() {
        let shown = path.display();
        log::warn!("onnx model '{shown}': the CPU computes operators that OpenVINO does not take: {others}");
    }
    Ok(())
}

fn describe(
    role: Role,
    name: &str,
    declared: &ValueType,
    rank_is_known: impl FnOnce() -> Result<bool, OrtFailure>,
) -> Result<TensorInfo, String> {
    let kind = if matches!(role, Role::Output) { "output" } else { "input" };
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
    let known = !shape.is_empty() || rank_is_known().map_err(|failure| failure.text().to_owned())?;
    Ok(TensorInfo { name: name.to_owned(), datatype, shape: known.then(|| shape.to_vec()) })
}
