//! The best classes of an output as text: Triton's extension "classification".
//!
//! A class is an element of an output, or of one row of it where the model batches. It is written as
//! `value:index` or `value:index:label`, best first; equal values in the order of their indices, and
//! what is no number last.
//!
//! The core only carries what a request wants. Whoever takes its answer chooses the classes, on a thread
//! that has the time for it.

use std::cmp::Ordering;
use std::fmt::Display;
use std::io::Write;

use crate::{Buffer, DataType, Error, ModelSpec, Response, Shape, Tensor, element_count};

/// The most elements among which classes are chosen, and the most classes of all rows together.
const MAX_ELEMENTS: usize = 1_000_000;
/// Of the elements that may be among the best, so many are kept before the others of them are thrown away.
const LEAST_KEPT: usize = 64;

/// The outputs of a request of which the best classes come in place of the values. Nearly every request has none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Classes(Vec<(u16, usize)>);

impl Classes {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How many classes of the output at this position come; 0: it comes as it is.
    pub fn count(&self, output: u16) -> usize {
        self.0.iter().find(|(listed, _)| *listed == output).map_or(0, |&(_, count)| count)
    }

    /// The bytes of the outputs among whose elements [`Classes::choose`] looks: the more, the longer it takes.
    pub fn bytes(&self, response: &Response) -> usize {
        if self.is_empty() {
            return 0;
        }
        let chosen = response.outputs.iter().filter(|(index, _)| self.count(*index) > 0);
        chosen.map(|(_, tensor)| tensor.data.len()).sum()
    }

    /// Puts the classes in the place of the values.
    pub fn choose(&self, spec: &ModelSpec, response: &mut Response) -> Result<(), Error> {
        if self.is_empty() {
            return Ok(());
        }
        for at in 0..response.outputs.len() {
            let (index, tensor) = &response.outputs[at];
            let count = self.count(*index);
            if count > 0 {
                let labels = response.labels_of(spec, usize::from(*index));
                response.outputs[at].1 = best(tensor, labels, spec.max_batch_size > 0, count)?;
            }
        }
        Ok(())
    }
}

impl ModelSpec {
    /// The classes that a request wants, from the names of its outputs and how many classes of each; 0 is the
    /// output as it is. Refuses types without an order. Whether there are such outputs,
    /// [`bind`](ModelSpec::bind) has found out.
    pub fn classes<'a>(&self, outputs: impl Iterator<Item = (&'a str, usize)>) -> Result<Classes, Error> {
        let mut classes = Classes::default();
        for (name, count) in outputs.filter(|&(_, count)| count > 0) {
            if let Some(index) = self.output(name) {
                check(self.outputs[index].datatype)?;
                classes.0.push((index as u16, count));
            }
        }
        Ok(classes)
    }
}

/// Whether the elements of this type can be ordered as classes.
fn check(datatype: DataType) -> Result<(), Error> {
    match datatype {
        DataType::Bool | DataType::Fp16 | DataType::Bf16 | DataType::Bytes => Err(Error::invalid(format!(
            "class result not available for output due to unsupported type '{datatype}'"
        ))),
        _ => Ok(()),
    }
}

/// The `count` best classes of each row; of the whole tensor where it has no rows.
fn best(scores: &Tensor, labels: &[String], batched: bool, count: usize) -> Result<Tensor, Error> {
    check(scores.datatype)?;
    let rows = scores.shape.first().filter(|_| batched).map_or(0, |&rows| usize::try_from(rows).unwrap_or(0));
    let elements = element_count(&scores.shape[usize::from(rows > 0)..]).unwrap_or(usize::MAX);
    let count = count.min(elements);
    if elements > MAX_ELEMENTS || count.saturating_mul(rows) > MAX_ELEMENTS {
        return Err(Error::invalid("classification output tensor too large"));
    }
    let choice = ClassChoice { data: scores.data.as_bytes(), elements, count, labels };
    let mut shape = Shape::new();
    if rows > 0 {
        shape.push(rows as i64);
    }
    shape.push(count as i64);
    let data = match scores.datatype {
        DataType::Uint8 => choice.write(u8::from_le_bytes, integers, integer),
        DataType::Uint16 => choice.write(u16::from_le_bytes, integers, integer),
        DataType::Uint32 => choice.write(u32::from_le_bytes, integers, integer),
        DataType::Uint64 => choice.write(u64::from_le_bytes, integers, integer),
        DataType::Int8 => choice.write(i8::from_le_bytes, integers, integer),
        DataType::Int16 => choice.write(i16::from_le_bytes, integers, integer),
        DataType::Int32 => choice.write(i32::from_le_bytes, integers, integer),
        DataType::Int64 => choice.write(i64::from_le_bytes, integers, integer),
        DataType::Fp32 => choice.write(|bytes| f64::from(f32::from_le_bytes(bytes)), floats, fraction),
        DataType::Fp64 => choice.write(f64::from_le_bytes, floats, fraction),
        DataType::Bool | DataType::Fp16 | DataType::Bf16 | DataType::Bytes => Vec::new(),
    };
    Ok(Tensor { datatype: DataType::Bytes, shape, data: Buffer::host(data) })
}

struct ClassChoice<'a> {
    data: &'a [u8],
    /// Of one row.
    elements: usize,
    /// How many of them are wanted.
    count: usize,
    labels: &'a [String],
}

impl ClassChoice<'_> {
    fn write<const N: usize, T: Copy>(
        &self,
        read: impl Fn([u8; N]) -> T,
        order: impl Fn(T, T) -> Ordering,
        print: fn(&mut Vec<u8>, T),
    ) -> Vec<u8> {
        let mut out = Vec::new();
        if self.count == 0 {
            return out;
        }
        let better = |a: &(T, u32), b: &(T, u32)| order(a.0, b.0).then(a.1.cmp(&b.1));
        let most = self.count.saturating_mul(2).max(LEAST_KEPT).min(self.elements);
        let mut classes = Vec::with_capacity(most);
        for row in self.data.as_chunks::<N>().0.chunks_exact(self.elements) {
            classes.clear();
            // The last of the best so far: what is no better than it is passed over.
            let mut last = None;
            for class in row.iter().zip(0_u32..).map(|(&bytes, index)| (read(bytes), index)) {
                if last.is_some_and(|last| better(&class, &last).is_gt()) {
                    continue;
                }
                classes.push(class);
                if classes.len() == most && self.count < most {
                    last = Some(*classes.select_nth_unstable_by(self.count - 1, better).1);
                    classes.truncate(self.count);
                }
            }
            classes.sort_unstable_by(better);
            classes.truncate(self.count);
            for &(value, index) in &classes {
                let start = out.len();
                out.extend_from_slice(&[0; 4]);
                print(&mut out, value);
                let _ = write!(out, ":{index}");
                if let Some(label) = self.labels.get(index as usize).filter(|label| !label.is_empty()) {
                    let _ = write!(out, ":{label}");
                }
                let length = (out.len() - start - 4) as u32;
                out[start..start + 4].copy_from_slice(&length.to_le_bytes());
            }
        }
        out
    }
}

fn integers<T: Ord + Copy>(a: T, b: T) -> Ordering {
    b.cmp(&a)
}

fn floats(a: f64, b: f64) -> Ordering {
    b.partial_cmp(&a).unwrap_or_else(|| a.is_nan().cmp(&b.is_nan()))
}

fn integer(out: &mut Vec<u8>, value: impl Display) {
    // Writing to memory does not fail.
    let _ = write!(out, "{value}");
}

/// As `%f` of C prints it, as far as FP32 reaches. Of larger values come the digits that tell them apart, then
/// zeros: all of their digits take a thousand times as long.
fn fraction(out: &mut Vec<u8>, value: f64) {
    /// From here on every value is whole.
    const WHOLE: f64 = (1_u64 << f64::MANTISSA_DIGITS) as f64;
    let (sign, size) = (if value.is_sign_negative() { "-" } else { "" }, value.abs());
    let _ = match () {
        () if size.is_nan() => write!(out, "{sign}nan"),
        () if size < WHOLE || size.is_infinite() => write!(out, "{value:.6}"),
        () if size < u128::MAX as f64 => write!(out, "{sign}{}.000000", size as u128),
        () => write!(out, "{value}.000000"),
    };
}

#[cfg(all(test, not(loom)))]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn tensor(shape: &[i64], values: &[f32]) -> Tensor {
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        Tensor { datatype: DataType::Fp32, shape: Shape::from_slice(shape), data: Buffer::host(bytes) }
    }

    fn texts(tensor: &Tensor) -> Vec<String> {
        let mut rest = tensor.data.as_bytes();
        let mut found = Vec::new();
        while let Some((length, behind)) = rest.split_first_chunk::<4>() {
            let (text, behind) = behind.split_at(u32::from_le_bytes(*length) as usize);
            found.push(String::from_utf8_lossy(text).into_owned());
            rest = behind;
        }
        found
    }

    fn best_of(
        shape: &[i64],
        values: &[f32],
        labels: &[&str],
        batched: bool,
        count: usize,
    ) -> (Vec<i64>, Vec<String>) {
        let labels: Vec<String> = labels.iter().map(ToString::to_string).collect();
        let classes =
            best(&tensor(shape, values), &labels, batched, count).unwrap_or_else(|error| panic!("{error}"));
        (classes.shape.to_vec(), texts(&classes))
    }

    #[test]
    fn chooses_in_each_row_of_a_batch_and_in_all_of_another_tensor() {
        let values = [1.0, 3.0, 2.0, 6.0, 5.0, 4.0];
        let rows = best_of(&[2, 3], &values, &["a", "", "c"], true, 2);
        assert_eq!(
            rows,
            (vec![2, 2], ["3.000000:1", "2.000000:2:c", "6.000000:0:a", "5.000000:1"].map(Into::into).into())
        );
        let whole = best_of(&[2, 3], &values, &["a"], false, 2);
        assert_eq!(whole, (vec![2], ["6.000000:3", "5.000000:4"].map(Into::into).into()));
    }

    #[test]
    fn more_classes_than_there_are_is_all_of_them() {
        let (shape, texts) = best_of(&[1, 2], &[1.0, 2.0], &[], true, usize::MAX);
        assert_eq!((shape, texts.len()), (vec![1, 2], 2));
        assert_eq!(best_of(&[0, 2], &[], &[], true, 2), (vec![0], vec![]));
        assert_eq!(best_of(&[2, 0], &[], &[], true, 2), (vec![2, 0], vec![]));
        assert_eq!(best_of(&[], &[7.0], &[], true, 2), (vec![1], vec!["7.000000:0".into()]));
    }

    #[test]
    fn equal_values_keep_their_order_and_what_is_no_number_comes_last() {
        let values = [f32::NAN, 1.0, f32::NEG_INFINITY, 1.0, -f32::NAN, f32::INFINITY, -0.0, 0.0];
        let (_, texts) = best_of(&[8], &values, &[], false, 8);
        let expected =
            ["inf:5", "1.000000:1", "1.000000:3", "-0.000000:6", "0.000000:7", "-inf:2", "nan:0", "-nan:4"];
        assert_eq!(texts, expected);
    }

    #[test]
    fn prints_values_as_c_does() {
        for (value, expected) in [
            (0.007_812_5, "0.007812"),
            (0.023_437_5, "0.023438"),
            (1e-7, "0.000000"),
            (-2.5, "-2.500000"),
            (1e22, "10000000000000000000000.000000"),
            (f64::from(0.1_f32), "0.100000"),
            (-9_007_199_254_740_993.0, "-9007199254740992.000000"),
            (f64::from(f32::MIN), "-340282346638528859811704183484516925440.000000"),
            (f64::NEG_INFINITY, "-inf"),
        ] {
            let mut out = Vec::new();
            fraction(&mut out, value);
            assert_eq!(String::from_utf8_lossy(&out), expected);
        }
    }

    #[test]
    fn values_beyond_fp32_have_the_digits_that_tell_them_apart() {
        for value in [2_f64.powi(128), -1.7e308, f64::MAX] {
            let mut out = Vec::new();
            fraction(&mut out, value);
            let text = String::from_utf8_lossy(&out);
            assert_eq!(text.parse(), Ok(value));
            assert!(text.ends_with("0000000000.000000"), "{text}");
        }
    }

    #[test]
    fn too_many_elements_and_types_without_an_order_are_refused() {
        let error = best(&tensor(&[1_000_001], &[]), &[], false, 1).map(drop).unwrap_err();
        assert_eq!(error.message, "classification output tensor too large");
        let rows = |count| best(&tensor(&[5, 300_000], &vec![0.0; 1_500_000]), &[], true, count).map(drop);
        assert_eq!(rows(200_001), Err(error));
        assert_eq!(rows(200_000), Ok(()));
        for datatype in [DataType::Bool, DataType::Fp16, DataType::Bf16, DataType::Bytes] {
            let text = format!("class result not available for output due to unsupported type '{datatype}'");
            assert_eq!(check(datatype).unwrap_err().message, text);
        }
    }

    proptest! {
        #[test]
        fn the_choice_is_the_front_of_a_stable_sort(
            values in proptest::collection::vec(-30_i8..30, 1..600),
            count in prop_oneof![1_usize..5, 1_usize..700],
        ) {
            let bytes: Vec<u8> = values.iter().map(|value| value.cast_unsigned()).collect();
            let scores = Tensor { datatype: DataType::Int8, shape: Shape::from_slice(&[values.len() as i64]), data: Buffer::host(bytes) };
            let mut sorted: Vec<(usize, i8)> = values.into_iter().enumerate().collect();
            sorted.sort_by_key(|&(_, value)| -value);
            let expected: Vec<String> = sorted.iter().take(count).map(|(index, value)| format!("{value}:{index}")).collect();
            prop_assert_eq!(texts(&best(&scores, &[], false, count).expect("an order")), expected);
        }
    }
}
