//! How long a model takes, as the control plane asks before it chooses thread counts.
//!
//! Shapes come out of a configuration, and what the model does with them is its own: memory and time are bounded, so
//! that no model file holds up the process.

use std::collections::HashMap;
use std::ffi::{CStr, CString};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use kushi_core::{DataType, Error, ErrorKind, Gathered, Shape, element_count, os_text};

use crate::OnnxSession;
use crate::engine::c_string;
use crate::options::RunOptions;
use crate::value::InputValue;

/// Inputs that are larger than this together are not tried: such a model takes long anyway.
const MOST_BYTES: usize = 64 << 20;
/// What an element of BYTES takes: a string of C++, beside its length.
const STRING_BYTES: usize = 36;
/// After this time the run that goes on is ended, with an error.
const LONGEST: Duration = Duration::from_secs(5);
/// After this time no further run begins: a model that takes so long is not a short one.
const ENOUGH: Duration = Duration::from_secs(1);

impl OnnxSession {
    /// The best of up to `runs` runs, after one to warm up, with zeros as inputs. `shapes` are those of the
    /// model, its batch dimension included, one for each input.
    pub fn measure(&self, shapes: &HashMap<String, Vec<i64>>, runs: usize) -> Result<Duration, Error> {
        let zeros = self.zeros(shapes)?;
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
        let begun = Instant::now();
        self.within(LONGEST, |options| {
            let run = || {
                let started = Instant::now();
                self.run(options, &input_names, &inputs, &output_names)?;
                Ok::<_, Error>(started.elapsed())
            };
            let to_warm_up = run()?;
            let mut best = None;
            for _ in 0..runs.max(1) {
                if begun.elapsed() > ENOUGH {
                    break;
                }
                let took = run()?;
                best = Some(best.map_or(took, |best: Duration| best.min(took)));
            }
            Ok(best.unwrap_or(to_warm_up))
        })
    }

    fn zeros(&self, shapes: &HashMap<String, Vec<i64>>) -> Result<Vec<(DataType, Shape, Zeros)>, Error> {
        let mut room = MOST_BYTES;
        let zeros = self.inputs().iter().map(|input| {
            let shape = shapes.get(&input.name).map(|shape| Shape::from_slice(shape));
            let shape =
                shape.ok_or_else(|| Error::invalid(format!("input '{}' needs a shape", input.name)))?;
            let count = element_count(&shape).ok_or_else(|| {
                Error::invalid(format!("input '{}' has an invalid shape {shape:?}", input.name))
            })?;
            let taken = count.checked_mul(input.datatype.size().unwrap_or(STRING_BYTES));
            let left = taken.and_then(|taken| room.checked_sub(taken));
            // An element of BYTES is empty: the four bytes of its length.
            let zeros = left.and_then(|_| Zeros::new(count * input.datatype.size().unwrap_or(4)));
            let (Some(left), Some(zeros)) = (left, zeros) else {
                let text = format!(
                    "input '{}' of shape {shape:?} is too large for a trial: at most {MOST_BYTES} bytes of inputs are \
                     tried",
                    input.name
                );
                return Err(Error::new(ErrorKind::EngineFailed, text));
            };
            room = left;
            Ok((input.datatype, shape, zeros))
        });
        zeros.collect()
    }

    /// Runs under options that end them when the time is over.
    fn within<T>(
        &self,
        time: Duration,
        work: impl FnOnce(&RunOptions) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let failed = |text| Error::new(ErrorKind::EngineFailed, text);
        let made = RunOptions::of(self.run_entries()).map_err(failed)?;
        let options = &made;
        let (working, worked) = channel::<()>();
        thread::scope(|scope| {
            let watch = move || {
                if worked.recv_timeout(time) == Err(RecvTimeoutError::Timeout) {
                    // Nothing is lost where it fails: the run goes on.
                    drop(options.end_runs());
                }
            };
            let watching = thread::Builder::new().name("kushi-measure".into()).spawn_scoped(scope, watch);
            watching.map_err(|error| failed(format!("cannot start a thread: {}", os_text(&error))))?;
            // Dropped at the end of the work, however it ends, which the other end hears.
            let _working = working;
            work(options)
        })
    }
}

/// Zero bytes, aligned for every element type.
struct Zeros {
    words: Vec<u64>,
    length: usize,
}

impl Zeros {
    /// `None` where there is no memory for them.
    fn new(length: usize) -> Option<Self> {
        let count = length.div_ceil(8);
        let mut words = Vec::new();
        words.try_reserve_exact(count).ok()?;
        words.resize(count, 0);
        Some(Self { words, length })
    }

    fn as_bytes(&self) -> &[u8] {
        // SAFETY: the words are at least `length` initialised bytes, and every byte is valid.
        unsafe { std::slice::from_raw_parts(self.words.as_ptr().cast(), self.length) }
    }
}

#[cfg(test)]
mod tests {
    use super::Zeros;

    #[test]
    fn zeros_are_as_many_bytes_as_asked_for_in_whole_words() {
        for length in [0, 1, 7, 8, 9] {
            let zeros = Zeros::new(length).unwrap();
            assert_eq!(zeros.as_bytes(), vec![0; length]);
            assert_eq!(zeros.as_bytes().as_ptr().align_offset(8), 0);
        }
        assert!(Zeros::new(usize::MAX).is_none());
    }
}
