//! Holds a request against its model: names, types, shapes and sizes, with Triton's texts.

use std::borrow::Cow;

use smallvec::SmallVec;

use crate::{Buffer, DataType, Error, ModelSpec, Shape, Tensor, TensorSpec, element_count};

/// By position in [`ModelSpec::inputs`]; `None` is an optional input left out.
pub type Inputs = SmallVec<[Option<Tensor>; 2]>;

/// Positions in [`ModelSpec::outputs`], ascending; empty means all.
pub type Wanted = SmallVec<[u16; 8]>;

/// An input as it was sent.
#[derive(Clone, Debug)]
pub struct InputDraft<'a, D = Buffer> {
    pub name: Cow<'a, str>,
    /// `None`: a name that is no data type.
    pub datatype: Option<DataType>,
    pub shape: Shape,
    pub data: D,
}

/// The bytes of an input, at hand or yet to be fetched: only when all else about it is right.
pub trait InputData {
    fn byte_size(&self) -> usize;
    /// As many bytes.
    fn fetch(self) -> Result<Buffer, Error>;
}

impl InputData for Buffer {
    fn byte_size(&self) -> usize {
        self.len()
    }

    fn fetch(self) -> Result<Buffer, Error> {
        Ok(self)
    }
}

/// Of a tensor: each of them takes some memory of its own in an engine, however short it is.
const MOST_STRINGS: usize = 1 << 24;

/// A request's tensors in the model's order.
#[derive(Debug)]
pub struct Bound {
    pub inputs: Inputs,
    pub wanted: Wanted,
    pub rows: usize,
}

impl ModelSpec {
    /// The checks run in Triton's order, so that a request with two faults hears of the same one.
    pub fn bind<D: InputData>(
        &self,
        request_id: &str,
        drafts: SmallVec<[InputDraft<'_, D>; 4]>,
        outputs: &[&str],
    ) -> Result<Bound, Error> {
        let fault = |text: String| Error::invalid(text).of_request(request_id);
        let wanted = self.wanted(outputs)?;
        self.check_input_count(&drafts).map_err(fault)?;
        let mut places: SmallVec<[usize; 4]> = SmallVec::new();
        for draft in &drafts {
            let place = self.input(&draft.name).ok_or_else(|| {
                let name = &self.name;
                Error::invalid(format!("unexpected inference input '{}' for model '{name}'", draft.name))
            })?;
            places.push(place);
        }
        let shapes = drafts.iter().map(|draft| (&*draft.name, &draft.shape));
        let rows = self.rows(shapes).map_err(|text| {
            let ranks = drafts.iter().zip(&places).map(|(draft, &place)| (&self.inputs[place], &draft.shape));
            fault(text + &without_batch(ranks))
        })?;
        let mut inputs: Inputs = SmallVec::from_elem(None, self.inputs.len());
        for (draft, place) in drafts.into_iter().zip(places) {
            let (name, tensor) = self.check_tensor(&self.inputs[place], draft, fault)?;
            if inputs[place].replace(tensor).is_some() {
                return Err(fault(format!("input '{name}' already exists in request")));
            }
        }
        // Triton leaves this to the backend; its text for a wrong number says what is wrong.
        let inputs_by_spec = || self.inputs.iter().zip(&inputs);
        if inputs_by_spec().any(|(spec, input)| input.is_none() && !spec.optional) {
            let given = inputs_by_spec().filter(|(_, input)| input.is_some());
            let given: Vec<&str> = given.map(|(spec, _)| spec.name.as_str()).collect();
            return Err(fault(self.wrong_inputs(&given)));
        }
        Ok(Bound { inputs, wanted, rows })
    }

    /// The same for tensors that other models have made, by position: what fills them has been checked there. Answers the
    /// number of rows.
    pub fn check_inputs(&self, request_id: &str, inputs: &Inputs) -> Result<usize, Error> {
        let fault = |text: String| Error::invalid(text).of_request(request_id);
        let by_spec = || self.inputs.iter().zip(inputs);
        if by_spec().any(|(spec, input)| input.is_none() && !spec.optional) {
            let given: Vec<&str> =
                by_spec().filter(|(_, input)| input.is_some()).map(|(spec, _)| &*spec.name).collect();
            return Err(fault(self.wrong_inputs(&given)));
        }
        let given = || by_spec().filter_map(|(spec, input)| Some((spec, input.as_ref()?)));
        let rows = self.rows(given().map(|(spec, input)| (&*spec.name, &input.shape))).map_err(fault)?;
        for (spec, input) in given() {
            self.check_datatype(spec, &spec.name, Some(input.datatype)).map_err(fault)?;
            self.check_shape(spec, &spec.name, &input.shape).map_err(fault)?;
        }
        Ok(rows)
    }

    /// The inputs that a caller means who gives `count` of them in the model's order.
    pub fn first_inputs(&self, request_id: &str, count: usize) -> Result<&[TensorSpec], Error> {
        self.inputs.get(..count).ok_or_else(|| {
            let (expected, model) = (self.expected_inputs(), &self.name);
            Error::invalid(format!("{expected} but got {count} inputs for model '{model}'"))
                .of_request(request_id)
        })
    }

    fn wanted(&self, outputs: &[&str]) -> Result<Wanted, Error> {
        let mut wanted = Wanted::new();
        for &name in outputs {
            let place = self.output(name).ok_or_else(|| {
                Error::invalid(format!("unexpected inference output '{name}' for model '{}'", self.name))
            })?;
            wanted.push(place as u16);
        }
        wanted.sort_unstable();
        wanted.dedup();
        Ok(wanted)
    }

    fn check_input_count<D>(&self, drafts: &[InputDraft<'_, D>]) -> Result<(), String> {
        if (self.required_inputs()..=self.inputs.len()).contains(&drafts.len()) {
            Ok(())
        } else {
            let given: Vec<&str> = drafts.iter().map(|draft| &*draft.name).collect();
            Err(self.wrong_inputs(&given))
        }
    }

    fn required_inputs(&self) -> usize {
        self.inputs.iter().filter(|input| !input.optional).count()
    }

    fn wrong_inputs(&self, given: &[&str]) -> String {
        let got = quoted(given.iter().copied());
        let required_names =
            self.inputs.iter().filter(|input| !input.optional).map(|input| input.name.as_str());
        let missing = quoted(required_names.filter(|name| !given.contains(name)));
        // With none missing Triton prints the closing bracket alone.
        let missing = if missing == "[]" { "]" } else { &missing };
        let unknown = quoted(given.iter().copied().filter(|name| self.input(name).is_none()));
        let unknown =
            if unknown == "[]" { String::new() } else { format!(" The model has no input(s) {unknown}.") };
        format!(
            "{} but got {} inputs for model '{}'. Got input(s) {got}, \
             but missing required input(s) {missing}. Please provide all required input(s).{unknown}",
            self.expected_inputs(),
            given.len(),
            self.name
        )
    }

    fn expected_inputs(&self) -> String {
        let required = self.required_inputs();
        if required == self.inputs.len() {
            format!("expected {required} inputs")
        } else {
            format!("expected number of inputs between {required} and {}", self.inputs.len())
        }
    }

    fn rows<'a>(&self, inputs: impl Iterator<Item = (&'a str, &'a Shape)>) -> Result<usize, String> {
        if self.max_batch_size == 0 {
            return Ok(1);
        }
        let model = &self.name;
        let mut rows = None;
        for (name, shape) in inputs {
            let Some(&first) = shape.first() else {
                return Err(format!(
                    "input '{name}' has no shape but model requires batch dimension for '{model}'"
                ));
            };
            if *rows.get_or_insert(first) != first {
                return Err(format!("input '{name}' batch size does not match other inputs for '{model}'"));
            }
        }
        let max = self.max_batch_size;
        match usize::try_from(rows.unwrap_or(0)) {
            Ok(rows) if rows <= max => Ok(rows),
            _ => Err(format!("inference request batch-size must be <= {max} for '{model}'")),
        }
    }

    fn check_tensor<'a, D: InputData>(
        &self,
        spec: &TensorSpec,
        draft: InputDraft<'a, D>,
        fault: impl Fn(String) -> Error,
    ) -> Result<(Cow<'a, str>, Tensor), Error> {
        let model = &self.name;
        let datatype = self.check_datatype(spec, &draft.name, draft.datatype).map_err(&fault)?;
        self.check_shape(spec, &draft.name, &draft.shape).map_err(&fault)?;
        let InputDraft { name, shape, data, .. } = draft;
        let count = element_count(&shape).ok_or_else(|| too_large(&name))?;
        let Some(size) = datatype.size() else {
            if count > MOST_STRINGS {
                return Err(fault(format!(
                    "input '{name}' for model '{model}' has {count} strings, at most {MOST_STRINGS} are allowed in a tensor"
                )));
            }
            let data = data.fetch()?;
            let cut_short = check_strings(&name, model, count, data.as_bytes()).map_err(fault)?;
            return match cut_short {
                None => Ok((name, Tensor { datatype, shape, data })),
                Some(text) => Err(Error::invalid(text)),
            };
        };
        let expected = count.checked_mul(size).filter(|&bytes| i64::try_from(bytes).is_ok());
        let expected = expected.ok_or_else(|| too_large(&name))?;
        let got = data.byte_size();
        if expected != got {
            return Err(fault(format!(
                "input byte size mismatch for input '{name}' for model '{model}'. Expected {expected}, got {got}"
            )));
        }
        Ok((name, Tensor { datatype, shape, data: data.fetch()? }))
    }

    fn check_datatype(
        &self,
        spec: &TensorSpec,
        name: &str,
        datatype: Option<DataType>,
    ) -> Result<DataType, String> {
        match datatype {
            Some(datatype) if datatype == spec.datatype => Ok(datatype),
            other => {
                let (model, expected) = (&self.name, spec.datatype);
                let got = other.map_or("<invalid>", DataType::name);
                Err(format!(
                    "inference input '{name}' data-type is '{got}', but model '{model}' expects '{expected}'"
                ))
            }
        }
    }

    fn check_shape(&self, spec: &TensorSpec, name: &str, shape: &Shape) -> Result<(), String> {
        let model = &self.name;
        let batched = self.max_batch_size > 0;
        let own = &shape[usize::from(batched)..];
        if own.len() == spec.dims.len() {
            if own.contains(&-1) {
                let got = List(shape);
                return Err(format!(
                    "All input dimensions should be specified for input '{name}' for model '{model}', got {got}"
                ));
            }
            if spec.dims.iter().zip(own).all(|(&dim, &size)| dim < 0 || dim == size) {
                return Ok(());
            }
        }
        let mut expected = Shape::new();
        if batched {
            expected.push(-1);
        }
        expected.extend_from_slice(&spec.dims);
        let note = if batched { BATCH_NOTE } else { "" };
        Err(format!(
            "unexpected shape for input '{name}' for model '{model}'. Expected {}, got {}. {note}",
            List(&expected),
            List(shape)
        ))
    }
}

const BATCH_NOTE: &str = "NOTE: Setting a non-zero max_batch_size in the model config requires a batch \
    dimension to be prepended to each input shape. If you want to specify the full shape including the \
    batch dim in your input dims config, try setting max_batch_size to zero. See the model configuration \
    docs for more info on max_batch_size.";

/// Behind Triton's text, where the number of rows is wrong because the shapes have none.
fn without_batch<'a>(inputs: impl Iterator<Item = (&'a TensorSpec, &'a Shape)>) -> String {
    let mut lacks = inputs.filter(|(spec, shape)| shape.len() == spec.dims.len());
    let Some((spec, shape)) = lacks.next() else { return String::new() };
    let whole: Shape = std::iter::once(1).chain(shape.iter().copied()).collect();
    format!(
        ". Shape {} of input '{}' lacks the batch dimension, which for one row makes it {}",
        List(shape),
        spec.name,
        List(&whole)
    )
}

fn too_large(name: &str) -> Error {
    Error::invalid(format!("byte size for tensor '{name}' exceeds maximum size of {}", i64::MAX))
}

/// Counts the elements of a BYTES tensor. A last one that is cut short counts too, and is answered as
/// a fault of its own: Triton finds it later, in the backend, and words it there.
fn check_strings(name: &str, model: &str, count: usize, data: &[u8]) -> Result<Option<String>, String> {
    let mut rest = data;
    let mut seen = 0_usize;
    let mut cut_short = None;
    while !rest.is_empty() {
        let Some((indicator, behind)) = rest.split_first_chunk::<4>() else {
            return Err(format!(
                "incomplete string length indicator for inference input '{name}' for model '{model}', expecting 4 \
                 bytes but only {} bytes available. Please make sure the string length indicator is in one buffer.",
                rest.len()
            ));
        };
        seen += 1;
        if seen > count {
            return Err(format!(
                "unexpected number of string elements {seen} for inference input '{name}' for model '{model}', \
                 expecting {count}"
            ));
        }
        let length = u32::from_le_bytes(*indicator) as usize;
        rest = behind.get(length..).unwrap_or_else(|| {
            cut_short = Some(format!(
                "incomplete string data for inference input '{name}', expecting string of length {length} but only {} \
                 bytes available",
                behind.len()
            ));
            &[]
        });
    }
    if seen == count {
        Ok(cut_short)
    } else {
        Err(format!(
            "expected {count} string elements for inference input '{name}' for model '{model}', got {seen}"
        ))
    }
}

struct List<'a>(&'a [i64]);

impl std::fmt::Display for List<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("[")?;
        for (i, dim) in self.0.iter().enumerate() {
            write!(f, "{}{dim}", if i == 0 { "" } else { "," })?;
        }
        f.write_str("]")
    }
}

fn quoted<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let names: Vec<String> = names.map(|name| format!("'{name}'")).collect();
    format!("[{}]", names.join(","))
}
