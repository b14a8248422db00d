//! Executes the core's batches on a compiled network.

use std::sync::Arc;

use kushi_core::{
    Batch, Buffer, Capability, DataType, Engine, Error, ErrorKind, Gathered, ModelSpec, Scratch, Slot,
    Tensor, TensorSpec, check_declared, element_count,
};
use smallvec::SmallVec;

use crate::compiled::{CompiledModel, FixedRows};
use crate::request::{Ran, Request};
use crate::status::OpenVinoFailure;
use crate::tensor::InputTensor;
use crate::types::to_element;

/// One engine serves all instances of a model, each slot with an infer request of its own, or one of them alone.
pub struct OpenVinoEngine {
    model: Arc<CompiledModel>,
    /// Of each input of the network, its position in the specification.
    inputs: Vec<usize>,
    /// In the order of the specification.
    outputs: Vec<BoundOutput>,
}

struct BoundOutput {
    /// In the network.
    index: usize,
    name: String,
    datatype: DataType,
}

type Outputs = SmallVec<[Option<Tensor>; 4]>;

impl OpenVinoEngine {
    /// Checks that the inputs and outputs of `spec` are those of the network.
    pub fn new(model: Arc<CompiledModel>, spec: &ModelSpec) -> Result<Self, Error> {
        let fault =
            |text: String| Error::new(ErrorKind::ConfigInvalid, format!("model '{}': {text}", spec.name));
        check_declared("input", &spec.inputs, model.inputs().iter()).map_err(fault)?;
        check_declared("output", &spec.outputs, model.outputs().iter()).map_err(fault)?;
        if let Some(input) = spec.inputs.iter().find(|input| input.optional) {
            let name = &input.name;
            return Err(fault(format!("input '{name}' is optional, and OpenVINO knows no inputs that are")));
        }
        let position = |specs: &[TensorSpec], name: &str| specs.iter().position(|spec| spec.name == name);
        let inputs = model.inputs().iter().map(|input| {
            position(&spec.inputs, &input.name).ok_or_else(|| {
                fault(format!("the model needs input '{}', which the configuration lacks", input.name))
            })
        });
        let inputs = inputs.collect::<Result<_, _>>()?;
        let outputs = spec.outputs.iter().filter_map(|output| {
            let index = model.outputs().iter().position(|known| known.name == output.name)?;
            Some(BoundOutput { index, name: output.name.clone(), datatype: output.datatype })
        });
        let outputs = outputs.collect();
        if model.requests().len() > 1 && model.requests().len() < spec.instances {
            return Err(fault(format!(
                "the model was compiled for {} instances, the configuration has {}",
                model.requests().len(),
                spec.instances
            )));
        }
        Ok(Self { model, inputs, outputs })
    }

    fn run(
        &self,
        request: &Request,
        scratch: &mut Scratch,
        batch: &mut Batch,
    ) -> Result<(Outputs, usize), RunFault> {
        let rows = batch.rows();
        let most = batch.spec().max_batch_size;
        let padded = self.padding(rows, most).map_err(RunFault::of_request)?;
        let wanted: SmallVec<[bool; 8]> = (0..self.outputs.len()).map(|index| batch.wants(index)).collect();
        let gathered = batch.gather(scratch).map_err(RunFault::of_data)?;
        let api = self.model.api();
        let few = gathered.iter().flatten().filter(|_| padded);
        let padding = few.map(|input| with_rows(input, rows, most)).collect::<Result<Vec<_>, _>>();
        let padding = padding.map_err(RunFault::of_request)?;
        let mut inputs = SmallVec::<[InputTensor<'_, '_>; 4]>::new();
        for &index in &self.inputs {
            let input = gathered[index].as_ref().expect("no input is optional");
            if self.model.narrows_integers() {
                check_range(&self.model.inputs()[inputs.len()].name, input)?;
            }
            inputs.push(match padding.get(index) {
                Some(bytes) => {
                    let mut shape = input.shape.clone();
                    shape[0] = most as i64;
                    InputTensor::new(api, &Gathered { datatype: input.datatype, shape, bytes })?
                }
                None => InputTensor::new(api, input)?,
            });
        }
        let ran = request.run(&inputs)?;
        let mut outputs = Outputs::new();
        for (output, wanted) in self.outputs.iter().zip(wanted) {
            outputs.push(if wanted { Some(read(&ran, output)?) } else { None });
        }
        Ok((outputs, if padded { rows } else { 0 }))
    }

    /// That of a slot, where there is more than one.
    fn request(&self, slot: usize) -> &Request {
        let requests = self.model.requests();
        &requests[slot % requests.len()]
    }

    /// Whether rows are to be added.
    fn padding(&self, rows: usize, most: usize) -> Result<bool, Error> {
        match self.model.fixed_rows() {
            Some(_) if rows == most => Ok(false),
            None => Ok(false),
            Some(FixedRows::Pad) => Ok(true),
            // Triton's text.
            Some(FixedRows::Refuse) => Err(Error::new(
                ErrorKind::EngineFailed,
                format!(
                    "expected requests with batch size '{most}', got '{rows}'... this error can be avoided by setting \
                     'ENABLE_BATCH_PADDING' parameter in model configuration to 'YES' at a performance cost."
                ),
            )),
        }
    }
}

struct RunFault {
    error: Error,
    /// Whether the data of a request may be the reason.
    of_data: bool,
}

impl RunFault {
    /// Each of the requests runs once more, alone.
    fn of_data(error: Error) -> Self {
        Self { error, of_data: true }
    }

    fn of_request(error: Error) -> Self {
        Self { error, of_data: false }
    }
}

impl From<OpenVinoFailure> for RunFault {
    fn from(failure: OpenVinoFailure) -> Self {
        Self { of_data: true, error: failure.into() }
    }
}

impl Engine for OpenVinoEngine {
    fn capability(&self) -> Capability {
        let concurrent = self.model.requests().len() > 1;
        Capability { concurrent, inline: self.model.runs_on_caller(), keeps_slots: false }
    }

    fn execute(&self, slot: &mut Slot, mut batch: Batch) {
        let request = self.request(slot.index);
        let result = self.run(request, &mut slot.scratch, &mut batch);
        batch.computed();
        match result {
            Ok((outputs, 0)) => slot.scatter(batch, &outputs),
            Ok((mut outputs, rows)) => {
                outputs.iter_mut().flatten().for_each(|output| output.truncate(rows));
                slot.scatter(batch, &outputs);
            }
            Err(RunFault { error, of_data: true }) => slot.fail(batch, &error),
            Err(RunFault { error, .. }) => batch.fail(&error),
        }
    }

    fn end_run(&self, slot: usize) -> bool {
        self.model.ends_runs() && self.request(slot).end_runs().is_ok()
    }

    fn revoke_end(&self, slot: usize) {
        self.request(slot).allow_runs();
    }
}

/// A CPU computes integers of 64 bits in 32, and cuts off what does not fit.
fn check_range(name: &str, input: &Gathered<'_>) -> Result<(), RunFault> {
    let words =
        input.bytes.chunks_exact(8).map(|word| i64::from_le_bytes(word.try_into().unwrap_or_default()));
    let beyond = match input.datatype {
        DataType::Int64 => words.into_iter().find(|&value| i64::from(value as i32) != value),
        DataType::Uint64 => words.into_iter().find(|&value| !(0..=i64::from(i32::MAX)).contains(&value)),
        _ => None,
    };
    let Some(value) = beyond else { return Ok(()) };
    let shown =
        if input.datatype == DataType::Uint64 { (value as u64).to_string() } else { value.to_string() };
    let datatype = input.datatype;
    Err(RunFault {
        error: Error::invalid(format!(
            "input '{name}' has the value {shown}, and OpenVINO computes {datatype} in 32 bits on a CPU"
        )),
        of_data: true,
    })
}

fn read(ran: &Ran<'_>, output: &BoundOutput) -> Result<Tensor, OpenVinoFailure> {
    let BoundOutput { index, name, datatype } = output;
    let output = ran.output(*index)?;
    let element = output.element()?;
    if element != to_element(*datatype) {
        let text = format!("output '{name}' has element type {element}, the model declares {datatype}");
        return Err(OpenVinoFailure::new(text));
    }
    let shape = output.shape()?;
    let bytes = output.read(*datatype, element_count(&shape).unwrap_or(0))?;
    Ok(Tensor { datatype: *datatype, shape, data: Buffer::host(bytes) })
}

/// The bytes of an input with rows of zeros behind its own.
fn with_rows(input: &Gathered<'_>, rows: usize, most: usize) -> Result<Vec<u8>, Error> {
    let row = match input.datatype.size() {
        Some(size) => element_count(&input.shape[1..]).unwrap_or(0) * size,
        // an empty string has a length, too
        None => element_count(&input.shape[1..]).unwrap_or(0) * size_of::<u32>(),
    };
    let total = input.bytes.len() + row * (most - rows);
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(total).map_err(|_| {
        Error::new(ErrorKind::EngineFailed, format!("there is no memory for a padded batch: {total} bytes"))
    })?;
    bytes.extend_from_slice(input.bytes);
    bytes.resize(total, 0);
    Ok(bytes)
}
