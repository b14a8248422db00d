//! Executes the core's batches on a session.

use std::ffi::{CStr, CString};
use std::iter;
use std::sync::{Arc, OnceLock};

use kushi_core::{
    Batch, Buffer, Capability, DataType, Engine, Error, ErrorKind, Gathered, ModelSpec, Scratch, Slot,
    Tensor, TensorSpec, check_declared, element_count,
};
use smallvec::SmallVec;

use crate::options::RunOptions;
use crate::session::Outputs;
use crate::types::to_element;
use crate::value::{InputValue, Value};
use crate::{OnnxSession, strings};

/// How many there may be at least, however many there are at first.
const MOST_INSTANCES: usize = 64;

/// One engine serves all instances of a model: it keeps nothing between batches.
pub struct OnnxEngine {
    sessions: Sessions,
    /// In the order of the specification, as are the outputs.
    input_names: Vec<CString>,
    output_names: Vec<CString>,
    /// Of each slot, so that each of its runs can be ended.
    run_options: Box<[OnceLock<RunOptions>]>,
}

/// The sessions of one model file.
#[derive(Clone)]
pub enum Sessions {
    /// Takes batches of any size.
    One(Arc<OnnxSession>),
    /// Each takes batches of so many rows and no others: smaller ones are filled up. In the order of their rows, and
    /// never none.
    OfRows(Arc<[(usize, Arc<OnnxSession>)]>),
}

impl From<Arc<OnnxSession>> for Sessions {
    fn from(session: Arc<OnnxSession>) -> Self {
        Self::One(session)
    }
}

impl Sessions {
    /// Of the largest batches. All are of one file, and have the same inputs and outputs.
    pub fn largest(&self) -> &Arc<OnnxSession> {
        match self {
            Self::One(session) => session,
            Self::OfRows(sessions) => &sessions[sessions.len() - 1].1,
        }
    }

    /// The session that runs `batch`, which has as many rows then as that one takes.
    fn prepare(&self, batch: &mut Batch) -> &OnnxSession {
        let Self::OfRows(sessions) = self else { return self.largest() };
        let rows = batch.rows();
        match sessions.iter().find(|(size, _)| *size >= rows) {
            Some((size, session)) => {
                batch.fill_up(*size);
                session
            }
            None => self.largest(),
        }
    }
}

impl OnnxEngine {
    /// Checks that the inputs and outputs of `spec` are those of the model.
    pub fn new(sessions: impl Into<Sessions>, spec: &ModelSpec) -> Result<Self, Error> {
        let sessions = sessions.into();
        let session = sessions.largest();
        let fault =
            |text: String| Error::new(ErrorKind::ConfigInvalid, format!("model '{}': {text}", spec.name));
        let required = session.inputs();
        let known = required.iter().chain(session.defaulted_inputs());
        check_declared("input", &spec.inputs, known).map_err(fault)?;
        check_declared("output", &spec.outputs, session.outputs().iter()).map_err(fault)?;
        if let Some(missing) = required.iter().find(|input| spec.input(&input.name).is_none()) {
            return Err(fault(format!(
                "the model needs input '{}', which the configuration lacks",
                missing.name
            )));
        }
        let names = |specs: &[TensorSpec]| specs.iter().map(|tensor| c_string(&tensor.name)).collect();
        let (input_names, output_names) = (names(&spec.inputs), names(&spec.outputs));
        let run_options = (0..spec.instances.max(MOST_INSTANCES)).map(|_| OnceLock::new()).collect();
        let engine = Self { sessions, input_names, output_names, run_options };
        engine.make_options(spec.instances).map_err(fault)?;
        Ok(engine)
    }

    fn make_options(&self, instances: usize) -> Result<(), String> {
        for options in self.run_options[..instances].iter().filter(|options| options.get().is_none()) {
            drop(options.set(RunOptions::of(self.sessions.largest().run_entries())?));
        }
        Ok(())
    }

    fn run_options(&self, slot: usize) -> &RunOptions {
        self.run_options[slot].get().expect("they are made before there is such an instance")
    }

    /// Answers the outputs that are wanted, by position in the specification. None of them shares
    /// memory with an input.
    fn run(
        &self,
        options: &RunOptions,
        scratch: &mut Scratch,
        batch: &mut Batch,
    ) -> Result<SmallVec<[Option<Value>; 4]>, RunFault> {
        let wanted: SmallVec<[bool; 8]> =
            (0..self.output_names.len()).map(|index| batch.wants(index)).collect();
        let fatal_operator = self.sessions.largest().fatal_operator();
        if fatal_operator.is_some()
            && batch.rows() == 0
            && let Some(outputs) = without_rows(batch.spec(), &wanted)?
        {
            return Ok(outputs);
        }
        let session = self.sessions.prepare(batch);
        let gathered = batch.gather(scratch).map_err(|error| RunFault { error, of_data: true })?;
        if let Some(operator) = fatal_operator {
            check_not_empty(operator, &self.input_names, &gathered)?;
        }
        let mut inputs = SmallVec::<[InputValue<'_>; 4]>::new();
        let mut input_names = SmallVec::<[&CStr; 8]>::new();
        for (input, name) in gathered.iter().zip(&self.input_names) {
            let Some(input) = input else { continue };
            inputs.push(InputValue::new(input)?);
            input_names.push(name);
        }
        let mut output_names = SmallVec::<[&CStr; 8]>::new();
        output_names.extend(
            self.output_names.iter().zip(&wanted).filter(|(_, wanted)| **wanted).map(|(name, _)| &**name),
        );
        let run = session.run(options, &input_names, &inputs, &output_names);
        let mut outputs: Outputs = run.map_err(|failure| RunFault {
            of_data: failure.may_be_of_data(session.accelerated()),
            error: failure.into(),
        })?;
        for output in &mut outputs {
            detach(output, &gathered)?;
        }
        let mut outputs = outputs.into_iter();
        Ok(wanted.into_iter().map(|wanted| if wanted { outputs.next() } else { None }).collect())
    }
}

struct RunFault {
    error: Error,
    /// Whether the data of a request may be the reason.
    of_data: bool,
}

impl<E: Into<Error>> From<E> for RunFault {
    fn from(error: E) -> Self {
        Self { error: error.into(), of_data: false }
    }
}

impl Engine for OnnxEngine {
    fn capability(&self) -> Capability {
        let session = self.sessions.largest();
        Capability {
            concurrent: !session.accelerated(),
            inline: session.runs_on_caller(),
            keeps_slots: false,
        }
    }

    fn most_instances(&self) -> usize {
        // others have a session with threads of its own for each instance
        if self.sessions.largest().runs_on_caller() { self.run_options.len() } else { 0 }
    }

    fn make_room(&self, instances: usize) -> Result<(), Error> {
        self.make_options(instances).map_err(|text| Error::new(ErrorKind::EngineFailed, text))
    }

    fn execute(&self, slot: &mut Slot, mut batch: Batch) {
        let result = self.run(self.run_options(slot.index), &mut slot.scratch, &mut batch);
        batch.computed();
        let outputs = result.and_then(|values| {
            let mut tensors = SmallVec::<[Option<Tensor>; 4]>::new();
            for (value, spec) in values.into_iter().zip(&batch.spec().outputs) {
                tensors.push(value.map(|value| to_tensor(value, spec)).transpose()?);
            }
            Ok(tensors)
        });
        match outputs {
            Ok(outputs) => slot.scatter(batch, &outputs),
            Err(RunFault { error, of_data: true }) => slot.fail(batch, &error),
            Err(RunFault { error, .. }) => batch.fail(&error),
        }
    }

    fn end_run(&self, slot: usize) -> bool {
        self.run_options(slot).end_runs().is_ok()
    }

    fn revoke_end(&self, slot: usize) {
        if let Err(failure) = self.run_options(slot).allow_runs() {
            log::error!("an instance cannot run any more: {}", failure.text());
        }
    }
}

/// The wanted outputs of a batch that has no rows, where the specification says all other dimensions.
fn without_rows(
    spec: &ModelSpec,
    wanted: &[bool],
) -> Result<Option<SmallVec<[Option<Value>; 4]>>, crate::status::OrtFailure> {
    let mut outputs = SmallVec::new();
    for (output, wanted) in spec.outputs.iter().zip(wanted) {
        let dims = output.engine_dims();
        if spec.max_batch_size == 0 || dims.iter().any(|&size| size < 0) {
            return Ok(None);
        }
        let shape: Vec<i64> = iter::once(0).chain(dims.iter().copied()).collect();
        outputs.push(wanted.then(|| Value::allocate(output.datatype, &shape)).transpose()?);
    }
    Ok(Some(outputs))
}

/// What has no elements does not reach an operator that would end the process.
fn check_not_empty(
    operator: &str,
    names: &[CString],
    inputs: &[Option<Gathered<'_>>],
) -> Result<(), RunFault> {
    let empty = names.iter().zip(inputs).find_map(|(name, input)| {
        let input = input.as_ref()?;
        (element_count(&input.shape) == Some(0)).then_some((name, &input.shape))
    });
    let Some((name, shape)) = empty else { return Ok(()) };
    let text = format!(
        "input '{}' has no elements (shape {shape:?}), and the model has an operator {operator}, which takes none such",
        name.to_string_lossy()
    );
    Err(RunFault { error: Error::new(ErrorKind::InvalidInput, text), of_data: true })
}

pub(crate) fn c_string(name: &str) -> CString {
    // Names that the model file has come out of C strings, and others have been refused before.
    CString::new(name).expect("the name of a model's tensor has no zero byte")
}

/// A model that hands an input through answers with the memory that the input borrows, which lives
/// only as long as the batch.
fn detach(output: &mut Value, inputs: &[Option<Gathered<'_>>]) -> Result<(), Error> {
    let start = output.data()?.cast_const();
    let Some(input) = inputs.iter().flatten().find(|input| input.bytes.as_ptr_range().contains(&start))
    else {
        return Ok(());
    };
    *output = copy(output, input.datatype)?;
    Ok(())
}

fn copy(value: &Value, datatype: DataType) -> Result<Value, crate::status::OrtFailure> {
    let (_, shape) = value.element_and_shape()?;
    let copy = Value::allocate(datatype, &shape)?;
    let length = element_count(&shape).unwrap_or(0) * datatype.size().unwrap_or(0);
    let (from, to) = (value.data()?, copy.data()?);
    // SAFETY: both tensors have this shape and element type, and the new one has memory of its own.
    unsafe { to.copy_from_nonoverlapping(from, length) };
    Ok(copy)
}

fn to_tensor(value: Value, spec: &TensorSpec) -> Result<Tensor, Error> {
    let (element, shape) = value.element_and_shape()?;
    let datatype = spec.datatype;
    if element != to_element(datatype) as u32 {
        let text =
            format!("output '{}' has element type {element}, the model declares {datatype}", spec.name);
        return Err(Error::new(ErrorKind::EngineFailed, text));
    }
    let data = match datatype.size() {
        Some(size) => value.into_bytes(size, &shape).map(Buffer::from_owner),
        None => strings::encode(&value, element_count(&shape).unwrap_or(0)).map(Buffer::host),
    };
    Ok(Tensor { datatype, shape, data: data? })
}
