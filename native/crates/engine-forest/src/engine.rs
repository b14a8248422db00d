//! Executes the core's batches with a forest.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use kushi_core::{
    Batch, Buffer, Capability, Engine, Error, ErrorKind, ModelSpec, Scratch, Shape, Slot, Tensor, TensorInfo,
    check_declared,
};
use smallvec::{SmallVec, smallvec};

use crate::model::ForestModel;

/// How many there may be at least, however many there are at first.
const MOST_INSTANCES: usize = 64;

/// One engine serves all instances of a model.
pub struct ForestEngine {
    model: Arc<ForestModel>,
    /// Of each slot, whether its run is to end.
    stops: Vec<AtomicBool>,
    /// Of each output of the specification, its number in the model.
    outputs: Vec<usize>,
}

type Outputs = SmallVec<[Option<Tensor>; 2]>;

impl ForestEngine {
    /// Checks that the input and the output of `spec` are those of the forest.
    pub fn new(model: Arc<ForestModel>, spec: &ModelSpec) -> Result<Self, Error> {
        let fault =
            |text: String| Error::new(ErrorKind::ConfigInvalid, format!("model '{}': {text}", spec.name));
        check_declared("input", &spec.inputs, model.inputs().iter()).map_err(fault)?;
        check_declared("output", &spec.outputs, model.outputs().iter()).map_err(fault)?;
        if spec.inputs.len() != 1 || spec.inputs[0].optional {
            return Err(fault("a forest has one input, which is not optional".into()));
        }
        let position = |name: &str| model.outputs().iter().position(|output| output.name == name);
        let outputs = spec.outputs.iter().filter_map(|output| position(&output.name)).collect();
        let stops = (0..spec.instances.max(MOST_INSTANCES)).map(|_| AtomicBool::new(false)).collect();
        Ok(Self { model, stops, outputs })
    }

    fn run(&self, slot: usize, scratch: &mut Scratch, batch: &mut Batch) -> Result<Outputs, Error> {
        let wanted: SmallVec<[_; 2]> =
            (0..self.outputs.len()).map(|index| batch.rows_that_want(index)).collect();
        let is_batched = batch.spec().max_batch_size > 0;
        let gathered = batch.gather(scratch)?;
        let input = gathered[0].as_ref().expect("the input is not optional");
        let features = self.model.features();
        let rows = match input.shape[..] {
            [rows, last] if last == features as i64 => rows as usize,
            _ => {
                let (name, shape) = (&self.model.inputs()[0].name, &input.shape);
                let text = format!("input '{name}' has the shape {shape:?}, expected [-1, {features}]");
                return Err(Error::invalid(text));
            }
        };
        let outputs = self.outputs.iter().zip(wanted).map(|(&number, wanted)| {
            if wanted.is_empty() {
                return Ok(None);
            }
            // without batches the rows are those of the one request
            let wanted = if is_batched { wanted } else { smallvec![0..rows] };
            let mut room = self.model.room(number, rows)?;
            let (from, to) = (features * 4, room.len() / rows.max(1));
            for Range { start, end } in wanted {
                let (input, room) = (&input.bytes[start * from..end * from], &mut room[start * to..end * to]);
                self.model.write(number, input, room, &self.stops[slot])?;
            }
            Ok(Some(filled(rows, &self.model.outputs()[number], room)))
        });
        outputs.collect()
    }
}

impl Engine for ForestEngine {
    fn capability(&self) -> Capability {
        Capability { concurrent: true, inline: true, keeps_slots: false }
    }

    fn most_instances(&self) -> usize {
        self.stops.len()
    }

    fn execute(&self, slot: &mut Slot, mut batch: Batch) {
        let result = self.run(slot.index, &mut slot.scratch, &mut batch);
        batch.computed();
        match result {
            Ok(outputs) => slot.scatter(batch, &outputs),
            Err(error) => slot.fail(batch, &error),
        }
    }

    fn end_run(&self, slot: usize) -> bool {
        self.stops[slot].store(true, Ordering::Relaxed);
        true
    }

    fn revoke_end(&self, slot: usize) {
        self.stops[slot].store(false, Ordering::Relaxed);
    }
}

/// So many rows of an output.
fn filled(rows: usize, declared: &TensorInfo, bytes: Vec<u8>) -> Tensor {
    let mut shape: Shape = declared.shape.iter().flatten().copied().collect();
    if let Some(first) = shape.first_mut() {
        *first = rows as i64;
    }
    Tensor { datatype: declared.datatype, shape, data: Buffer::host(bytes) }
}
