//! How long a model takes, as the control plane asks before it chooses thread counts.

use std::collections::HashMap;
use std::ffi::{CStr, CString};
use std::time::{Duration, Instant};

use kushi_core::{DataType, Error, Gathered, Shape, element_count};

use crate::OnnxSession;
use crate::engine::c_string;
use crate::value::InputValue;

impl OnnxSession {
    /// The best of `runs` runs, after one to warm up, with zeros as inputs. `shapes` are those of the
    /// model, its batch dimension included, one for each input.
    pub fn measure(&self, shapes: &HashMap<String, Vec<i64>>, runs: usize) -> Result<Duration, Error> {
        let zeros = self.inputs().iter().map(|input| {
            let shape = shapes.get(&input.name).map(|shape| Shape::from_slice(shape));
            let shape =
                shape.ok_or_else(|| Error::invalid(format!("input '{}' needs a shape", input.name)))?;
            let count = element_count(&shape).ok_or_else(|| {
                Error::invalid(format!("input '{}' has an invalid shape {shape:?}", input.name))
            })?;
            // An element of BYTES is empty: the four bytes of its length.
            let bytes = count.saturating_mul(input.datatype.size().unwrap_or(4));
            Ok((input.datatype, shape, Zeros::new(bytes)))
        });
        let zeros: Vec<(DataType, Shape, Zeros)> = zeros.collect::<Result<_, Error>>()?;
        let inputs = zeros.iter().map(|(datatype, shape, zeros)| {
            let input = Gathered { datatype: *datatype, shape: shape.clone(), bytes: zeros.as_bytes() };
            InputValue::new(&input)
        });
        let inputs: Vec<InputValue<'_>> = inputs.collect::<Result<_, _>>()?;
        let names = |list: &[crate::TensorInfo]| list.iter().map(|tensor| c_string(&tensor.name)).collect();
        let input_names: Vec<CString> = names(self.inputs());
        let output_names: Vec<CString> = names(self.outputs());
        let input_names: Vec<&CStr> = input_names.iter().map(CString::as_c_str).collect();
        let output_names: Vec<&CStr> = output_names.iter().map(CString::as_c_str).collect();
        let run = || {
            let started = Instant::now();
            self.run(&input_names, &inputs, &output_names)?;
            Ok(started.elapsed())
        };
        run()?;
        (0..runs.max(1)).try_fold(Duration::MAX, |best, _| run().map(|took| best.min(took)))
    }
}

/// Zero bytes, aligned for every element type.
struct Zeros {
    words: Vec<u64>,
    length: usize,
}

impl Zeros {
    fn new(length: usize) -> Self {
        Self { words: vec![0; length.div_ceil(8)], length }
    }

    fn as_bytes(&self) -> &[u8] {
        // SAFETY: the words are at least `length` initialised bytes, and every byte is valid.
        unsafe { std::slice::from_raw_parts(self.words.as_ptr().cast(), self.length) }
    }
}
