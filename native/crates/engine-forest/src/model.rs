//! A forest with what it answers, as a model: its tensors and its runs.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use kushi_core::{DataType, Error, ErrorKind, TensorInfo, os_text};

use crate::answer::Answer;
use crate::contributions::MOST_DEPTH;
use crate::forest::Forest;
use crate::predict::{Failed, Run, Work};

/// How a forest is to be asked.
#[derive(Clone, Copy, Debug)]
pub struct ForestOptions {
    pub answer: Answer,
    /// Whether there is a second output, with what each feature has contributed.
    pub contributions: bool,
    /// On which a large batch is divided.
    pub threads: usize,
}

#[derive(Debug)]
pub struct ForestModel {
    forest: Arc<Forest>,
    options: ForestOptions,
    inputs: [TensorInfo; 1],
    outputs: Vec<TensorInfo>,
}

impl ForestModel {
    pub fn new(forest: Arc<Forest>, options: ForestOptions) -> Result<Self, Error> {
        let fault = |text: String| Err(Error::new(ErrorKind::ConfigInvalid, text));
        let (features, classes) = (forest.features, forest.classes);
        if options.answer == Answer::TwoProbabilities && classes != 1 {
            return fault(format!("a forest of {classes} classes has as many probabilities"));
        }
        let mut outputs = vec![tensor("output__0", &[options.answer.width(classes)])];
        if options.contributions {
            if !forest.has_covers() {
                return fault("it does not say how much of the training data came by its nodes".into());
            }
            if forest.depth() > MOST_DEPTH {
                let depth = forest.depth();
                return fault(format!(
                    "a tree has {depth} levels, contributions are for at most {MOST_DEPTH}"
                ));
            }
            let shape = if classes > 1 { &[classes, features + 1][..] } else { &[features + 1] };
            outputs.push(tensor("treeshap_output", shape));
        }
        Ok(Self { inputs: [tensor("input__0", &[features])], forest, options, outputs })
    }

    pub fn inputs(&self) -> &[TensorInfo] {
        &self.inputs
    }

    /// The answer, and the contributions where they are asked for.
    pub fn outputs(&self) -> &[TensorInfo] {
        &self.outputs
    }

    pub(crate) fn features(&self) -> usize {
        self.forest.features
    }

    /// Values of an output for so many rows: zeros, until they are written.
    pub fn room(&self, output: usize, rows: usize) -> Result<Vec<u8>, Error> {
        let none = || failed(format!("there is no memory for the answers to {rows} rows"));
        let length = rows.checked_mul(self.width(output) * 4).ok_or_else(none)?;
        let mut room = Vec::new();
        room.try_reserve_exact(length).map_err(|_| none())?;
        room.resize(length, 0);
        Ok(room)
    }

    /// Writes an output for rows of floats, both little-endian: the answers (0), or what each feature has contributed (1).
    pub fn write(&self, output: usize, rows: &[u8], room: &mut [u8], stop: &AtomicBool) -> Result<(), Error> {
        let run = Run { rows, row_bytes: self.features() * 4, stop };
        let (bytes, threads) = (self.width(output) * 4, self.options.threads);
        let done = if output == 0 {
            let answer = self.options.answer;
            let work: Work<'_> = &|run, room| self.forest.predict(run, answer, room);
            run.divide(room, bytes, self.forest.steps(), threads, work)
        } else {
            let work: Work<'_> = &|run, room| self.forest.explain_rows(run, room);
            run.divide(room, bytes, self.forest.layout.nodes.len() * self.forest.depth(), threads, work)
        };
        done.map_err(|fault| match fault {
            Failed::Stopped => failed("the run was ended".into()),
            Failed::NoThread(error) => failed(format!("cannot start a thread: {}", os_text(&error))),
        })
    }

    /// Of a row.
    fn width(&self, output: usize) -> usize {
        if output == 0 {
            self.options.answer.width(self.forest.classes)
        } else {
            self.forest.classes * (self.forest.features + 1)
        }
    }
}

fn failed(text: String) -> Error {
    Error::new(ErrorKind::EngineFailed, text)
}

fn tensor(name: &str, shape: &[usize]) -> TensorInfo {
    let shape = std::iter::once(-1).chain(shape.iter().map(|&size| size as i64)).collect();
    TensorInfo { name: name.into(), datatype: DataType::Fp32, shape: Some(shape) }
}
