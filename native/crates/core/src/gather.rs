//! Joins the inputs of a batch and splits its outputs.
//!
//! A request alone in its batch is handed to the engine where it lies, if it is aligned there;
//! everything else is copied once, into memory that the slot keeps.

use smallvec::SmallVec;

use crate::tensor::bytes_prefix;
use crate::{DataType, Error, ErrorKind, Shape, Tensor, TensorSpec};

/// Enough for every element type and for vector instructions.
const ALIGNMENT: usize = 64;
/// A slot gives memory above this back after the batch that needed it.
const KEPT_BYTES: usize = 64 << 20;

/// Aligned memory, one piece per input.
#[derive(Default)]
pub struct Scratch {
    pieces: Vec<Piece>,
}

#[derive(Default)]
struct Piece {
    bytes: Vec<u8>,
    start: usize,
}

/// One input of a batch as the engine takes it.
pub struct Gathered<'a> {
    pub datatype: DataType,
    /// The engine's shape, with all rows of the batch.
    pub shape: Shape,
    pub bytes: &'a [u8],
}

/// What a seat of a batch has in its rows.
#[derive(Clone, Copy)]
pub(crate) enum Share<'a> {
    Inputs(&'a [Option<Tensor>]),
    /// So many rows.
    Zeros(usize),
}

enum Part<'a> {
    Bytes(&'a [u8]),
    Zeros(usize),
}

impl Part<'_> {
    fn len(&self) -> usize {
        match self {
            Self::Bytes(bytes) => bytes.len(),
            Self::Zeros(count) => *count,
        }
    }
}

/// A row of zeros with the dimensions of `tensor`, in bytes. An empty string has a length, too.
fn row_bytes(tensor: &Tensor) -> usize {
    let elements = crate::element_count(&tensor.shape[1..]).unwrap_or(0);
    elements * tensor.datatype.size().unwrap_or(size_of::<u32>())
}

impl Piece {
    fn fill<'b>(&mut self, parts: impl Iterator<Item = Part<'b>>, total: usize) -> Result<(), Error> {
        if self.bytes.capacity() > KEPT_BYTES.max(2 * total) {
            self.bytes = Vec::new();
        }
        self.bytes.clear();
        self.bytes.try_reserve(total.saturating_add(ALIGNMENT)).map_err(|_| no_memory(total))?;
        self.start = self.bytes.as_ptr().align_offset(ALIGNMENT);
        self.bytes.resize(self.start, 0);
        for part in parts {
            match part {
                Part::Bytes(bytes) => self.bytes.extend_from_slice(bytes),
                Part::Zeros(count) => self.bytes.resize(self.bytes.len() + count, 0),
            }
        }
        Ok(())
    }

    fn as_bytes(&self) -> &[u8] {
        &self.bytes[self.start..]
    }
}

fn no_memory(total: usize) -> Error {
    Error::new(ErrorKind::EngineFailed, format!("there is no memory for an input of a batch: {total} bytes"))
}

fn is_aligned(bytes: &[u8], datatype: DataType) -> bool {
    let size = datatype.size().unwrap_or(1);
    bytes.as_ptr().align_offset(size) == 0
}

impl Scratch {
    /// Joins input `i` of every seat; `None` for an optional input left out. Inputs in `made` are taken
    /// as they are. Fails where there is no memory for all of them together.
    ///
    /// All requests of a batch carry the same inputs with the same dimensions behind the first, as
    /// the batch policy sees to it.
    pub(crate) fn gather<'a>(
        &'a mut self,
        specs: &'a [TensorSpec],
        seats: &[Share<'a>],
        made: &'a [(usize, Tensor)],
        batched: bool,
    ) -> Result<SmallVec<[Option<Gathered<'a>>; 4]>, Error> {
        self.pieces.resize_with(specs.len(), Piece::default);
        let batch_dims = usize::from(batched);
        let mut joined = SmallVec::new();
        for (i, (spec, piece)) in specs.iter().zip(&mut self.pieces).enumerate() {
            let made = made.iter().find(|(index, _)| *index == i).map(|(_, tensor)| tensor);
            let Some(first) = made.or_else(|| {
                seats.iter().find_map(|seat| match seat {
                    Share::Inputs(inputs) => inputs[i].as_ref(),
                    Share::Zeros(_) => None,
                })
            }) else {
                joined.push(None);
                continue;
            };
            let mut shape = first.shape.clone();
            let given = first.data.as_bytes();
            let bytes: &'a [u8] = if made.is_some() || seats.len() == 1 {
                if is_aligned(given, first.datatype) {
                    given
                } else {
                    piece.fill([Part::Bytes(given)].into_iter(), given.len())?;
                    piece.as_bytes()
                }
            } else {
                let part = |seat: &Share<'a>| match seat {
                    Share::Inputs(inputs) => {
                        let tensor = inputs[i].as_ref()?;
                        Some((if batched { tensor.shape[0] } else { 0 }, Part::Bytes(tensor.data.as_bytes())))
                    }
                    Share::Zeros(rows) => {
                        batched.then(|| (*rows as i64, Part::Zeros(rows * row_bytes(first))))
                    }
                };
                let parts = || seats.iter().filter_map(part);
                let (mut rows, mut total) = (0, 0);
                for (count, part) in parts() {
                    rows += count;
                    total += part.len();
                }
                if batched {
                    shape[0] = rows;
                }
                piece.fill(parts().map(|(_, part)| part), total)?;
                piece.as_bytes()
            };
            let shape = spec.to_engine(&shape, batch_dims);
            joined.push(Some(Gathered { datatype: first.datatype, shape, bytes }));
        }
        Ok(joined)
    }
}

/// Splits an output of a batch into the shares of its requests, in order, without copying.
pub(crate) struct Splitter<'a> {
    spec: &'a TensorSpec,
    output: &'a Tensor,
    batched: bool,
    at: usize,
    row_elements: usize,
}

impl<'a> Splitter<'a> {
    pub(crate) fn new(
        spec: &'a TensorSpec,
        output: &'a Tensor,
        batched: bool,
        rows: usize,
    ) -> Result<Self, Error> {
        let name = &spec.name;
        let fault = |text: String| Error::new(ErrorKind::EngineFailed, text);
        if output.datatype != spec.datatype {
            return Err(fault(format!(
                "output '{name}' has data-type {}, the model configuration says {}",
                output.datatype, spec.datatype
            )));
        }
        let shape = &output.shape;
        if batched && shape.first() != Some(&(rows as i64)) {
            let text =
                format!("output '{name}' has shape {shape:?}, expected {rows} rows in its first dimension");
            return Err(fault(text));
        }
        if !output.fills_its_shape() {
            let bytes = output.data.len();
            return Err(fault(format!("output '{name}' of {bytes} bytes does not fill its shape {shape:?}")));
        }
        let row_elements = if batched { crate::element_count(&shape[1..]).unwrap_or(0) } else { 0 };
        Ok(Self { spec, output, batched, at: 0, row_elements })
    }

    /// The share of the next request. The shares of a batch fill its shape, which was checked.
    pub(crate) fn next(&mut self, rows: usize) -> Tensor {
        let output = self.output;
        let mut shape = self.spec.to_client(&output.shape, usize::from(self.batched));
        if !self.batched {
            return Tensor { datatype: output.datatype, shape, data: output.data.clone() };
        }
        shape[0] = rows as i64;
        let elements = self.row_elements * rows;
        let length = match output.datatype.size() {
            Some(size) => elements * size,
            None => bytes_prefix(&output.data.as_bytes()[self.at..], elements).unwrap_or_default(),
        };
        let end = self.at + length;
        let data = output.data.slice(self.at..end);
        self.at = end;
        Tensor { datatype: output.datatype, shape, data }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::{Buffer, Labels};

    #[test]
    fn a_batch_that_memory_has_no_room_for_is_an_error() {
        let specs = [TensorSpec {
            name: "x".into(),
            datatype: DataType::Uint8,
            dims: vec![-1],
            reshape: None,
            optional: false,
            labels: Labels::default(),
        }];
        let data = Buffer::host(vec![7; 1 << 10]);
        let inputs =
            [Some(Tensor { datatype: DataType::Uint8, shape: [1, 1 << 10].into_iter().collect(), data })];
        let mut scratch = Scratch::default();
        let mut rows = |zeros| {
            let gathered = scratch.gather(&specs, &[Share::Inputs(&inputs), Share::Zeros(zeros)], &[], true);
            gathered.map(|gathered| gathered[0].as_ref().map(|input| input.bytes.len()))
        };
        let text = "there is no memory for an input of a batch: 1125899906843648 bytes";
        assert_eq!(rows(1 << 40), Err(Error::new(ErrorKind::EngineFailed, text)));
        assert_eq!(rows(1), Ok(Some(2 << 10)));
    }
}
