//! What a model has answered to all texts.

use kushi_core::{DataType, Error, ErrorKind, Labels, ModelSpec, Parameter, Response, Tensor};

use super::ask::Cut;
use super::model::Manner;

/// The parameter of an answer that says how many tokens its texts had.
const INPUT_TOKENS: &str = "input_tokens";

/// A row for each text.
#[derive(Default)]
pub(super) struct Numbers {
    /// As the model gave them: those of several texts each.
    parts: Vec<Tensor>,
    width: usize,
    /// Of all texts, as long as the model says it.
    tokens: Option<i64>,
    pub(super) labels: Labels,
}

impl Numbers {
    /// What is answered to the next texts.
    pub(super) fn add(
        &mut self,
        spec: &ModelSpec,
        manner: &Manner,
        rows: usize,
        response: Response,
    ) -> Result<(), Error> {
        let fault =
            |text: String| Error::new(ErrorKind::EngineFailed, format!("model '{}' {text}", spec.name));
        let is_first = self.parts.is_empty();
        if is_first {
            self.labels = response.labels_of(spec, usize::from(manner.output)).clone();
        }
        let said = response.parameters.iter().find_map(|(name, value)| match value {
            Parameter::Int(tokens) if name == INPUT_TOKENS => Some(*tokens),
            _ => None,
        });
        self.tokens = if is_first {
            said
        } else {
            self.tokens.zip(said).and_then(|(one, other)| one.checked_add(other))
        };
        let output = response.outputs.into_iter().find(|(place, _)| *place == manner.output);
        let (_, tensor) = output.ok_or_else(|| fault("has left its answer out".to_owned()))?;
        let width = match tensor.shape[..] {
            [count, width] if count == rows as i64 && width >= 0 => width as usize,
            _ => return Err(fault(format!("answers the shape {:?} to {rows} texts", &tensor.shape[..]))),
        };
        if tensor.datatype != DataType::Fp32 || (!is_first && width != self.width) {
            return Err(fault(format!("answers {} numbers of {} to a text", width, tensor.datatype)));
        }
        self.width = width;
        self.parts.push(tensor);
        Ok(())
    }

    pub(super) fn bytes(&self) -> usize {
        self.parts.iter().map(|part| part.data.len()).sum()
    }

    /// Of no texts there are none.
    pub(super) fn tokens(&self) -> Option<i64> {
        if self.parts.is_empty() { Some(0) } else { self.tokens }
    }

    pub(super) fn width(&self) -> usize {
        self.width
    }

    pub(super) fn count(&self) -> usize {
        self.parts.iter().map(|part| part.shape[0] as usize).sum()
    }

    /// The first text of whose numbers one is infinite or none.
    pub(super) fn not_finite(&self) -> Option<usize> {
        self.rows().position(|row| {
            !row.as_chunks::<4>().0.iter().all(|bytes| f32::from_le_bytes(*bytes).is_finite())
        })
    }

    /// Of each text, as bytes.
    pub(super) fn rows(&self) -> impl Iterator<Item = &[u8]> {
        let bytes = self.width * size_of::<f32>();
        self.parts.iter().flat_map(move |part| {
            let rows = part.shape[0] as usize;
            let data = part.data.as_bytes();
            (0..rows).map(move |row| &data[row * bytes..(row + 1) * bytes])
        })
    }
}

pub(super) fn floats(row: &[u8]) -> Vec<f32> {
    row.as_chunks::<4>().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect()
}

/// As many numbers of a row as are wanted.
pub(super) fn cut(row: &[u8], cut: Cut) -> Vec<u8> {
    let mut kept = floats(row);
    kept.truncate(cut.dimensions);
    let length = kept.iter().map(|&value| f64::from(value).powi(2)).sum::<f64>().sqrt();
    if cut.normalize && length > 0.0 {
        for value in &mut kept {
            *value = (f64::from(*value) / length) as f32;
        }
    }
    kept.iter().flat_map(|value| value.to_le_bytes()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(of: &[f32]) -> Vec<u8> {
        of.iter().flat_map(|value| value.to_le_bytes()).collect()
    }

    #[test]
    fn a_vector_is_cut_and_may_have_its_length_again() {
        let whole = row(&[3.0, 4.0, 12.0]);
        for (dimensions, normalize, expected) in [
            (2, false, vec![3.0, 4.0]),
            (2, true, vec![0.6, 0.8]),
            (3, false, vec![3.0, 4.0, 12.0]),
            (9, false, vec![3.0, 4.0, 12.0]),
        ] {
            assert_eq!(floats(&cut(&whole, Cut { dimensions, normalize })), expected);
        }
        let nothing = Cut { dimensions: 1, normalize: true };
        assert_eq!(floats(&cut(&row(&[0.0, 1.0]), nothing)), [0.0]);
    }
}
