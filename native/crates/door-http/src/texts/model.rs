//! Which model is asked, and how it takes texts.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use kushi_core::{
    Bound, Buffer, DataType, Error, ErrorKind, InputDraft, ModelSpec, Shape, TensorSpec, TextAnswer, Texts,
};
use kushi_dataplane::DataPlane;
use smallvec::SmallVec;

use super::ask::{Asked, Form};

/// The inputs of models of texts.
const TEXT: &str = "text";
const PAIR: &str = "text_pair";

/// The one that is named, or the only one that answers this; `None`: whatever it answers.
pub(super) fn choose(
    plane: &DataPlane,
    model: Option<&str>,
    answer: Option<TextAnswer>,
) -> Result<String, Error> {
    if let Some(name) = model {
        return Ok(name.to_owned());
    }
    let fits = |texts: &Arc<dyn Texts>| answer.is_none_or(|answer| texts.facts().answer == answer);
    let runners = plane.registry.runners();
    let fitting = runners.iter().filter(|runner| runner.texts().is_some_and(fits));
    let names: BTreeSet<&str> = fitting.map(|runner| runner.spec().name.as_str()).collect();
    let mut found = names.iter();
    match (found.next(), found.next()) {
        (Some(&name), None) => Ok(name.to_owned()),
        (None, _) => {
            Err(Error::new(ErrorKind::ModelNotFound, "'model' is missing, and no model of texts serves that"))
        }
        (Some(_), Some(_)) => {
            let names: Vec<&str> = names.into_iter().collect();
            Err(Error::invalid(format!("'model' is missing, expected one of: {}", names.join(", "))))
        }
    }
}

/// How a version takes texts, and where its answer is.
pub(super) struct Manner {
    text: String,
    /// Whether each text comes with another one.
    has_pairs: bool,
    /// The place of the answer among its outputs.
    pub(super) output: u16,
    /// Numbers of an answer, if that is known.
    pub(super) width: Option<usize>,
}

impl Manner {
    /// Fails where the model does not take and give what is asked.
    pub(super) fn of(spec: &ModelSpec, asked: &Asked) -> Result<Self, Error> {
        let fault = |text: &str| Error::invalid(format!("model '{}' {text}", spec.name));
        let is_text = |input: &&TensorSpec| input.datatype == DataType::Bytes;
        let required = || spec.inputs.iter().filter(is_text).filter(|input| !input.optional);
        let named = spec.inputs.iter().filter(is_text).find(|input| input.name == TEXT);
        let only = || required().next().filter(|_| required().count() == 1);
        let text = named.or_else(only);
        let text = text.ok_or_else(|| fault("takes no texts: it has no input 'text' of BYTES"))?;
        let has_pairs = asked.query.is_some();
        if has_pairs && !spec.inputs.iter().filter(is_text).any(|input| input.name == PAIR) {
            return Err(fault("ranks no texts: it has no input 'text_pair' of BYTES"));
        }
        let rank = 2 - spec.batch_dims();
        let output = spec
            .outputs
            .iter()
            .position(|output| output.datatype == DataType::Fp32 && output.dims.len() == rank);
        let output = output
            .ok_or_else(|| fault("gives no numbers for each text: it has no output of FP32 for that"))?;
        let width = spec.outputs[output].dims.last().copied().filter(|&width| width >= 0);
        if let (Form::Vectors { cut: Some(cut), .. }, Some(width)) = (&asked.form, width)
            && cut.dimensions as i64 > width
        {
            return Err(fault(&format!(
                "gives {width} numbers for a text, and {} are asked for",
                cut.dimensions
            )));
        }
        if let (Form::Ranks { .. }, Some(width)) = (&asked.form, width)
            && width != 1
        {
            return Err(fault(&format!("gives {width} scores for a text, and ranks are made of one")));
        }
        let width = width.map(|width| width as usize);
        Ok(Self { text: text.name.clone(), has_pairs, output: output as u16, width })
    }

    /// The texts in these places, as the model takes them.
    pub(super) fn bind(&self, spec: &ModelSpec, asked: &Asked, places: Range<usize>) -> Result<Bound, Error> {
        let rows = places.len();
        let strings = asked.strings().ok_or_else(|| Error::invalid("tokens are no texts"))?;
        let texts = Buffer::host(strings.part(places));
        let drafts: SmallVec<[InputDraft<'_>; 4]> = match asked.query.as_deref().filter(|_| self.has_pairs) {
            None => [draft(spec, &self.text, rows, texts)].into_iter().collect(),
            Some(query) => {
                let mut queries = Vec::with_capacity(rows * (query.len() + size_of::<u32>()));
                for _ in 0..rows {
                    queries.extend_from_slice(&(query.len() as u32).to_le_bytes());
                    queries.extend_from_slice(query.as_bytes());
                }
                let first = draft(spec, &self.text, rows, Buffer::host(queries));
                [first, draft(spec, PAIR, rows, texts)].into_iter().collect()
            }
        };
        spec.bind("", drafts, &[&*spec.outputs[usize::from(self.output)].name])
    }
}

/// Of one request.
pub(super) fn most_rows(spec: &ModelSpec) -> usize {
    if spec.max_batch_size == 0 { usize::MAX } else { spec.max_batch_size }
}

fn draft<'a>(spec: &ModelSpec, name: &'a str, rows: usize, data: Buffer) -> InputDraft<'a> {
    let rank = spec.input(name).map_or(0, |place| spec.inputs[place].dims.len()) + spec.batch_dims();
    let mut shape = Shape::from_elem(1, rank.max(1));
    shape[0] = rows as i64;
    let datatype = Some(DataType::Bytes);
    InputDraft { name: name.into(), datatype, shape, data }
}
