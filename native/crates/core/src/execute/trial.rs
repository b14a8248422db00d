//! How long a model takes, as the control plane asks before it chooses thread counts.
//!
//! Shapes come out of a configuration, and what the model does with them is its own: memory and time are bounded, so
//! that no model file holds up the process.

use std::collections::HashMap;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use crate::{DataType, Error, ErrorKind, Gathered, Shape, TensorInfo, element_count, os_text};

/// Inputs that are larger than this together are not tried: such a model takes long anyway.
const MOST_BYTES: usize = 64 << 20;
/// What an element of BYTES takes: a string of C++, beside its length.
const STRING_BYTES: usize = 36;
/// What is run once before it serves may have more.
const MOST_REHEARSED_BYTES: usize = 1 << 30;
/// After this time the run that goes on is ended, with an error.
const LONGEST: Duration = Duration::from_secs(5);
/// The same for the run before it serves, in which an accelerator plans what it will do.
const LONGEST_REHEARSAL: Duration = Duration::from_secs(60);
/// After this time no further run begins: a model that takes so long is not a short one.
const ENOUGH: Duration = Duration::from_secs(1);
/// Enough for every element type.
const ALIGNMENT: usize = 8;

/// Inputs of zeros, or of empty strings.
#[derive(Debug)]
pub struct TrialInputs(Vec<Zeros>);

#[derive(Debug)]
struct Zeros {
    datatype: DataType,
    shape: Shape,
    bytes: Vec<u8>,
    start: usize,
}

impl TrialInputs {
    /// `shapes` are those of the model, its batch dimension included, one for each input.
    pub fn new(inputs: &[TensorInfo], shapes: &HashMap<String, Vec<i64>>) -> Result<Self, Error> {
        Self::of_at_most(MOST_BYTES, inputs, shapes)
    }

    /// The same for [`rehearse`].
    pub fn to_rehearse(inputs: &[TensorInfo], shapes: &HashMap<String, Vec<i64>>) -> Result<Self, Error> {
        Self::of_at_most(MOST_REHEARSED_BYTES, inputs, shapes)
    }

    fn of_at_most(
        most_bytes: usize,
        inputs: &[TensorInfo],
        shapes: &HashMap<String, Vec<i64>>,
    ) -> Result<Self, Error> {
        let mut room = most_bytes;
        let zeros = inputs.iter().map(|input| {
            let shape = shapes.get(&input.name).map(|shape| Shape::from_slice(shape));
            let shape =
                shape.ok_or_else(|| Error::invalid(format!("input '{}' needs a shape", input.name)))?;
            let count = element_count(&shape).ok_or_else(|| {
                Error::invalid(format!("input '{}' has an invalid shape {shape:?}", input.name))
            })?;
            let taken = count.checked_mul(input.datatype.size().unwrap_or(STRING_BYTES));
            let left = taken.and_then(|taken| room.checked_sub(taken));
            // An element of BYTES is empty: the four bytes of its length.
            let bytes = left.and_then(|_| zeros(count * input.datatype.size().unwrap_or(4)));
            let (Some(left), Some((bytes, start))) = (left, bytes) else {
                let text = format!(
                    "input '{}' of shape {shape:?} is too large for a trial: at most {most_bytes} bytes of inputs are \
                     tried",
                    input.name
                );
                return Err(Error::new(ErrorKind::EngineFailed, text));
            };
            room = left;
            Ok(Zeros { datatype: input.datatype, shape, bytes, start })
        });
        Ok(Self(zeros.collect::<Result<_, _>>()?))
    }

    /// As an engine takes them, in the order of the model's inputs.
    pub fn gathered(&self) -> impl Iterator<Item = Gathered<'_>> {
        self.0.iter().map(|zeros| Gathered {
            datatype: zeros.datatype,
            shape: zeros.shape.clone(),
            bytes: &zeros.bytes[zeros.start..],
        })
    }
}

/// The best of up to `runs` runs, after one to warm up. `end` is called from another thread when that takes too long:
/// it ends the run that goes on.
pub fn best_time(
    runs: usize,
    end: impl FnOnce() + Send,
    mut run: impl FnMut() -> Result<(), Error>,
) -> Result<Duration, Error> {
    let mut timed = || {
        let started = Instant::now();
        run().map(|()| started.elapsed())
    };
    let begun = Instant::now();
    within(LONGEST, end, || {
        let to_warm_up = timed()?;
        let mut best = None;
        for _ in 0..runs.max(1) {
            if begun.elapsed() > ENOUGH {
                break;
            }
            let took = timed()?;
            best = Some(best.map_or(took, |best: Duration| best.min(took)));
        }
        Ok(best.unwrap_or(to_warm_up))
    })
}

/// One run before the model serves, which may take longer than any other.
pub fn rehearse(end: impl FnOnce() + Send, run: impl FnOnce() -> Result<(), Error>) -> Result<(), Error> {
    within(LONGEST_REHEARSAL, end, run)
}

fn within<T>(
    time: Duration,
    end: impl FnOnce() + Send,
    work: impl FnOnce() -> Result<T, Error>,
) -> Result<T, Error> {
    let (working, worked) = channel::<()>();
    thread::scope(|scope| {
        let watch = move || {
            if worked.recv_timeout(time) == Err(RecvTimeoutError::Timeout) {
                end();
            }
        };
        let watching = thread::Builder::new().name("kushi-measure".into()).spawn_scoped(scope, watch);
        watching.map_err(|error| {
            Error::new(ErrorKind::EngineFailed, format!("cannot start a thread: {}", os_text(&error)))
        })?;
        // Dropped at the end of the work, however it ends, which the other end hears.
        let _working = working;
        work()
    })
}

/// So many zeros, from where they are aligned; `None` where there is no memory for them.
fn zeros(length: usize) -> Option<(Vec<u8>, usize)> {
    let room = length.checked_add(ALIGNMENT)?;
    let mut bytes: Vec<u8> = Vec::new();
    bytes.try_reserve_exact(room).ok()?;
    let start = bytes.as_ptr().align_offset(ALIGNMENT);
    bytes.resize(start + length, 0);
    Some((bytes, start))
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::cell::Cell;
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    fn input(datatype: DataType) -> TensorInfo {
        TensorInfo { name: "IN".into(), datatype, shape: None }
    }

    fn shaped(shape: &[i64]) -> HashMap<String, Vec<i64>> {
        HashMap::from([("IN".to_owned(), shape.to_vec())])
    }

    #[test]
    fn zeros_fill_their_shape_and_lie_aligned() {
        for (datatype, shape, length) in [
            (DataType::Fp64, &[3, 2][..], 48),
            (DataType::Uint8, &[0], 0),
            (DataType::Bytes, &[2], 8),
            (DataType::Int32, &[], 4),
        ] {
            let inputs = TrialInputs::new(&[input(datatype)], &shaped(shape)).expect("it is small");
            let gathered: Vec<_> = inputs.gathered().collect();
            assert_eq!(gathered[0].bytes, vec![0; length]);
            assert_eq!(gathered[0].bytes.as_ptr().align_offset(ALIGNMENT), 0);
        }
    }

    #[test]
    fn what_has_no_shape_or_too_large_a_one_is_not_tried() {
        let error =
            |shapes| TrialInputs::new(&[input(DataType::Fp32)], &shapes).expect_err("refused").message;
        assert_eq!(error(HashMap::new()), "input 'IN' needs a shape");
        assert!(error(shaped(&[-1])).contains("invalid shape"));
        assert!(error(shaped(&[1 << 30])).contains("too large for a trial"));
        assert!(error(shaped(&[i64::MAX])).contains("too large for a trial"));
    }

    #[test]
    fn the_first_run_does_not_count() {
        let runs = Cell::new(0);
        let time = best_time(
            3,
            || (),
            || {
                if runs.replace(runs.get() + 1) == 0 {
                    thread::sleep(Duration::from_millis(50));
                }
                Ok(())
            },
        );
        assert_eq!(runs.get(), 4);
        assert!(time.expect("no run fails") < Duration::from_millis(50));
    }

    #[test]
    fn what_takes_too_long_is_ended() {
        let ended = AtomicBool::new(false);
        let result = within(
            Duration::from_millis(10),
            || ended.store(true, Ordering::Release),
            || {
                while !ended.load(Ordering::Acquire) {
                    thread::yield_now();
                }
                Err::<(), _>(Error::new(ErrorKind::EngineFailed, "ended"))
            },
        );
        assert_eq!(result.expect_err("it was ended").message, "ended");
    }
}
