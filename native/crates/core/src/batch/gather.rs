//! Joins the inputs of a batch and splits its outputs.
//!
//! A request alone in its batch is handed to the engine where it lies, if it is aligned there;
//! everything else is copied once, into memory that the slot keeps.

use smallvec::SmallVec;

use crate::model::tensor::bytes_prefix;
use crate::{DataType, Error, ErrorKind, Shape, Tensor, TensorSpec, element_count};

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
    /// So many rows, each as the first that another seat has; zeros where none has any.
    Copies(usize),
}

enum Part<'a> {
    Bytes(&'a [u8]),
    /// Bytes, and how often.
    Repeated(&'a [u8], usize),
    Zeros(usize),
}

impl Part<'_> {
    fn len(&self) -> usize {
        match self {
            Self::Bytes(bytes) => bytes.len(),
            Self::Repeated(bytes, count) => bytes.len() * count,
            Self::Zeros(count) => *count,
        }
    }
}

/// A row of zeros with the dimensions of `tensor`, in bytes. An empty string has a length, too.
fn row_bytes(tensor: &Tensor) -> usize {
    let elements = element_count(&tensor.shape[1..]).unwrap_or(0);
    elements * tensor.datatype.size().unwrap_or(size_of::<u32>())
}

/// The first row of input `i` that a seat has.
fn first_row<'a>(seats: &[Share<'a>], i: usize) -> Option<&'a [u8]> {
    seats.iter().find_map(|seat| {
        let Share::Inputs(inputs) = seat else { return None };
        let tensor =
            inputs[i].as_ref().filter(|tensor| tensor.shape.first().is_some_and(|&rows| rows > 0))?;
        let bytes = tensor.data.as_bytes();
        let length = match tensor.datatype.size() {
            Some(_) => row_bytes(tensor),
            None => bytes_prefix(bytes, element_count(&tensor.shape[1..]).unwrap_or(0))?,
        };
        bytes.get(..length)
    })
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
                Part::Repeated(bytes, count) => {
                    (0..count).for_each(|_| self.bytes.extend_from_slice(bytes));
                }
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
                    Share::Zeros(_) | Share::Copies(_) => None,
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
                    Share::Copies(rows) => batched.then(|| {
                        let part = match first_row(seats, i) {
                            Some(row) => Part::Repeated(row, *rows),
                            None => Part::Zeros(rows * row_bytes(first)),
                        };
                        (*rows as i64, part)
                    }),
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

    #[test]
    fn copies_are_of_the_first_row_that_there_is() {
        let spec = |name: &str, datatype| TensorSpec {
            name: name.into(),
            datatype,
            dims: vec![2],
            reshape: None,
            optional: true,
            labels: Labels::default(),
        };
        let specs =
            [spec("x", DataType::Uint8), spec("text", DataType::Bytes), spec("none", DataType::Uint8)];
        let tensor = |datatype, rows: i64, bytes: &[u8]| {
            Some(Tensor {
                datatype,
                shape: [rows, 2].into_iter().collect(),
                data: Buffer::host(bytes.to_vec()),
            })
        };
        let empty = [tensor(DataType::Uint8, 0, &[]), tensor(DataType::Bytes, 0, &[]), None];
        let texts = b"\x01\0\0\0a\0\0\0\0\x02\0\0\0bc\0\0\0\0";
        let given = [tensor(DataType::Uint8, 2, &[1, 2, 3, 4]), tensor(DataType::Bytes, 2, texts), None];
        let mut scratch = Scratch::default();
        let mut gathered = |seats: &[Share<'_>]| {
            let gathered = scratch.gather(&specs, seats, &[], true).expect("there is memory");
            let seen = gathered.iter().map(|input| input.as_ref().map(|it| (it.shape[0], it.bytes.to_vec())));
            seen.collect::<Vec<_>>()
        };
        let [one, text] = [&[1, 2][..], &texts[..9]].map(<[u8]>::to_vec);
        assert_eq!(
            gathered(&[Share::Inputs(&empty), Share::Inputs(&given), Share::Copies(2)]),
            [
                Some((4, [&[1, 2, 3, 4][..], &one, &one].concat())),
                Some((4, [&texts[..], &text, &text].concat())),
                None
            ]
        );
        assert_eq!(
            gathered(&[Share::Inputs(&empty), Share::Copies(1)]),
            [Some((1, vec![0; 2])), Some((1, vec![0; 8])), None]
        );
    }
}
