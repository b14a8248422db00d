//! Which classes an output of a model has said, and how sure it was.
//!
//! Of floating point numbers the last dimension holds the classes: probabilities, or logits, which become some. Where it
//! has one element, that is the probability of class 1 of two, or its logit. Elements of any other type are the classes
//! themselves.

use std::collections::HashMap;

use half::{bf16, f16};
use kushi_core::{DataType, Tensor};

use crate::histogram::Histogram;

const BOUNDS: [f64; 12] = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99, 1.0];
/// So many are told apart.
const MOST_CLASSES: usize = 1000;
const OTHERS: &str = "(other)";
/// A longer text is one of the others.
const LONGEST_CLASS: usize = 256;
/// Of an output with more elements nothing is counted: it is none with classes.
const MOST_ELEMENTS: usize = 1_000_000;
/// Probabilities that were rounded add up to about one.
const ABOUT: f64 = 0.01;

#[derive(Debug)]
pub(crate) struct Predictions {
    classes: HashMap<Box<str>, u64>,
    confidences: Histogram,
}

impl Default for Predictions {
    fn default() -> Self {
        Self { classes: HashMap::new(), confidences: Histogram::new(BOUNDS) }
    }
}

impl Predictions {
    pub(super) fn count(&mut self, tensor: &Tensor, labels: &[String]) {
        let data = tensor.data.as_bytes();
        let width = tensor.shape.last().map_or(1, |&last| usize::try_from(last).unwrap_or(0));
        match tensor.datatype {
            DataType::Fp16 => {
                self.scores(data, width, labels, |bytes| f64::from(f16::from_le_bytes(bytes)));
            }
            DataType::Bf16 => {
                self.scores(data, width, labels, |bytes| f64::from(bf16::from_le_bytes(bytes)));
            }
            DataType::Fp32 => self.scores(data, width, labels, |bytes| f64::from(f32::from_le_bytes(bytes))),
            DataType::Fp64 => self.scores(data, width, labels, f64::from_le_bytes),
            DataType::Bool => self.integers(data, labels, |bytes| i128::from(u8::from_le_bytes(bytes) != 0)),
            DataType::Uint8 => self.integers(data, labels, |bytes| u8::from_le_bytes(bytes).into()),
            DataType::Uint16 => self.integers(data, labels, |bytes| u16::from_le_bytes(bytes).into()),
            DataType::Uint32 => self.integers(data, labels, |bytes| u32::from_le_bytes(bytes).into()),
            DataType::Uint64 => self.integers(data, labels, |bytes| u64::from_le_bytes(bytes).into()),
            DataType::Int8 => self.integers(data, labels, |bytes| i8::from_le_bytes(bytes).into()),
            DataType::Int16 => self.integers(data, labels, |bytes| i16::from_le_bytes(bytes).into()),
            DataType::Int32 => self.integers(data, labels, |bytes| i32::from_le_bytes(bytes).into()),
            DataType::Int64 => self.integers(data, labels, |bytes| i64::from_le_bytes(bytes).into()),
            DataType::Bytes => self.texts(data),
        }
    }

    /// Each class with how often it was said, in the order of their names.
    pub(crate) fn classes(&self) -> Vec<(&str, u64)> {
        let mut classes: Vec<_> = self.classes.iter().map(|(class, &count)| (&**class, count)).collect();
        classes.sort_unstable();
        classes
    }

    pub(crate) fn confidences(&self) -> &Histogram {
        &self.confidences
    }

    fn scores<const N: usize>(
        &mut self,
        data: &[u8],
        width: usize,
        labels: &[String],
        read: impl Fn([u8; N]) -> f64,
    ) {
        let elements = data.as_chunks::<N>().0;
        if width == 0 || elements.len() > MOST_ELEMENTS {
            return;
        }
        for row in elements.chunks_exact(width) {
            let read = row.iter().map(|&bytes| read(bytes));
            let prediction = if width == 1 { read.clone().next().and_then(of_two) } else { of_many(read) };
            match prediction {
                Some((class, confidence)) => {
                    self.add_index(class as i128, labels);
                    self.confidences.observe(confidence);
                }
                None => self.add("NaN"),
            }
        }
    }

    fn integers<const N: usize>(&mut self, data: &[u8], labels: &[String], read: impl Fn([u8; N]) -> i128) {
        let elements = data.as_chunks::<N>().0;
        if elements.len() <= MOST_ELEMENTS {
            for &bytes in elements {
                self.add_index(read(bytes), labels);
            }
        }
    }

    fn texts(&mut self, data: &[u8]) {
        let mut rest = data;
        while let Some((length, behind)) = rest.split_first_chunk::<4>() {
            let length = u32::from_le_bytes(*length) as usize;
            let Some((text, behind)) = behind.split_at_checked(length) else { return };
            match str::from_utf8(text) {
                Ok(text) if text.len() <= LONGEST_CLASS => self.add(text),
                _ => self.add(OTHERS),
            }
            rest = behind;
        }
    }

    fn add_index(&mut self, class: i128, labels: &[String]) {
        let label = usize::try_from(class).ok().and_then(|index| labels.get(index));
        match label.filter(|label| !label.is_empty()) {
            Some(label) => self.add(label),
            None => self.add(&class.to_string()),
        }
    }

    fn add(&mut self, class: &str) {
        if let Some(count) = self.classes.get_mut(class) {
            *count += 1;
            return;
        }
        let class = if self.classes.len() < MOST_CLASSES { class } else { OTHERS };
        *self.classes.entry(class.into()).or_default() += 1;
    }
}

/// The best of many classes and its probability; `None` where something is no number.
fn of_many(scores: impl Iterator<Item = f64> + Clone) -> Option<(usize, f64)> {
    let (mut best, mut highest, mut sum, mut are_probabilities) = (0, f64::NEG_INFINITY, 0.0, true);
    for (index, score) in scores.clone().enumerate() {
        if score.is_nan() {
            return None;
        }
        if score > highest {
            (best, highest) = (index, score);
        }
        sum += score;
        are_probabilities &= (0.0..=1.0).contains(&score);
    }
    if are_probabilities && (sum - 1.0).abs() <= ABOUT {
        return Some((best, highest));
    }
    if highest.is_infinite() {
        return Some((best, 1.0));
    }
    Some((best, 1.0 / scores.map(|score| (score - highest).exp()).sum::<f64>()))
}

/// The same of two, from the score of the second one.
fn of_two(score: f64) -> Option<(usize, f64)> {
    let probability = if (0.0..=1.0).contains(&score) { score } else { 1.0 / (1.0 + (-score).exp()) };
    match () {
        () if score.is_nan() => None,
        () if probability >= 0.5 => Some((1, probability)),
        () => Some((0, 1.0 - probability)),
    }
}

#[cfg(test)]
mod tests {
    use kushi_core::{Buffer, Shape};

    use super::*;

    fn said(datatype: DataType, shape: &[i64], data: Vec<u8>, labels: &[&str]) -> Predictions {
        let labels: Vec<String> = labels.iter().map(ToString::to_string).collect();
        let tensor = Tensor { datatype, shape: Shape::from_slice(shape), data: Buffer::host(data) };
        let mut predictions = Predictions::default();
        predictions.count(&tensor, &labels);
        predictions
    }

    fn fp32(shape: &[i64], values: &[f32], labels: &[&str]) -> Predictions {
        said(DataType::Fp32, shape, values.iter().flat_map(|value| value.to_le_bytes()).collect(), labels)
    }

    #[test]
    fn the_best_class_of_each_row_is_counted_with_its_probability() {
        let probabilities = fp32(&[2, 3], &[0.1, 0.7, 0.2, 0.98, 0.01, 0.01], &["cat", "dog"]);
        assert_eq!(probabilities.classes(), [("cat", 1), ("dog", 1)]);
        let sum = probabilities.confidences().sum();
        assert!((sum - 1.68).abs() < 1e-6, "{sum}");
        let logits = fp32(&[1, 2], &[3.0, -1.0], &[]);
        assert_eq!(logits.classes(), [("0", 1)]);
        let sum = logits.confidences().sum();
        assert!((sum - 0.982_013_79).abs() < 1e-6, "{sum}");
    }

    #[test]
    fn one_score_speaks_of_two_classes() {
        let scores = fp32(&[4, 1], &[0.9, 0.2, -4.0, 4.0], &["no", "yes"]);
        assert_eq!(scores.classes(), [("no", 2), ("yes", 2)]);
        let sum = scores.confidences().sum();
        assert!((sum - (0.9 + 0.8 + 2.0 * 0.982_013_79)).abs() < 1e-6, "{sum}");
    }

    #[test]
    fn what_is_no_number_is_counted_as_such() {
        let scores = fp32(&[3, 2], &[f32::NAN, 1.0, f32::INFINITY, 0.0, f32::NEG_INFINITY, 0.0], &[]);
        assert_eq!(scores.classes(), [("0", 1), ("1", 1), ("NaN", 1)]);
        assert_eq!((scores.confidences().count(), scores.confidences().sum()), (2, 2.0));
    }

    #[test]
    fn integers_and_texts_are_classes_themselves() {
        let integers: Vec<u8> = [1_i64, 0, -7].iter().flat_map(|value| value.to_le_bytes()).collect();
        let integers = said(DataType::Int64, &[3, 1], integers, &["zero", "one"]);
        assert_eq!(integers.classes(), [("-7", 1), ("one", 1), ("zero", 1)]);
        assert_eq!(integers.confidences().count(), 0);
        let texts = said(DataType::Bytes, &[2], b"\x02\0\0\0no\x01\0\0\0\xff".into(), &[]);
        assert_eq!(texts.classes(), [(OTHERS, 1), ("no", 1)]);
        let flags = said(DataType::Bool, &[2], vec![0, 1], &[]);
        assert_eq!(flags.classes(), [("0", 1), ("1", 1)]);
    }

    #[test]
    fn half_precision_is_read_as_well() {
        for (datatype, one) in [(DataType::Fp16, [0, 0x3c]), (DataType::Bf16, [0x80, 0x3f])] {
            let found = said(datatype, &[1, 2], [[0, 0], one].concat(), &[]);
            assert_eq!((found.classes(), found.confidences().sum()), (vec![("1", 1)], 1.0));
        }
    }

    #[test]
    fn the_classes_that_are_told_apart_are_bounded() {
        let values: Vec<u8> = (0..2000_i32).flat_map(i32::to_le_bytes).collect();
        let classes = said(DataType::Int32, &[2000], values, &[]);
        assert_eq!(classes.classes().len(), MOST_CLASSES + 1);
        assert_eq!(classes.classes()[0], (OTHERS, 1000));
    }

    #[test]
    fn an_output_of_no_classes_counts_nothing() {
        assert_eq!(fp32(&[2, 0], &[], &[]).classes(), []);
        assert_eq!(fp32(&[], &[0.75], &[]).classes(), [("1", 1)]);
    }
}
