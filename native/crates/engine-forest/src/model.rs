//! A forest with what it answers, as a model: its tensors, its runs, and how long they take.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use kushi_core::{DataType, Error, ErrorKind, TensorInfo, TrialInputs, best_time};

use crate::answer::Answer;
use crate::contributions::MOST_DEPTH;
use crate::forest::Forest;
use crate::predict::Run;

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

    /// The answers for rows of floats, little-endian, as the same.
    pub fn answers(&self, rows: &[u8], stop: &AtomicBool) -> Result<Vec<u8>, Error> {
        let answer = self.options.answer;
        let width = answer.width(self.forest.classes);
        self.run(rows, width, self.forest.steps(), stop, &|run, output| {
            self.forest.predict(run, answer, output)
        })
    }

    /// What each feature has contributed to them.
    pub fn contributions(&self, rows: &[u8], stop: &AtomicBool) -> Result<Vec<u8>, Error> {
        let width = self.forest.classes * (self.forest.features + 1);
        let steps = self.forest.layout.nodes.len() * self.forest.depth();
        self.run(rows, width, steps, stop, &|run, output| self.forest.explain_rows(run, output))
    }

    fn run(
        &self,
        rows: &[u8],
        width: usize,
        steps: usize,
        stop: &AtomicBool,
        work: crate::predict::Work<'_>,
    ) -> Result<Vec<u8>, Error> {
        let row_bytes = self.features() * 4;
        let count = rows.len() / row_bytes;
        let failed = |text: String| Error::new(ErrorKind::EngineFailed, text);
        let length = count.checked_mul(width * 4);
        let mut output = Vec::new();
        if length.is_none_or(|length| output.try_reserve_exact(length).is_err()) {
            return Err(failed(format!("there is no memory for the answers to {count} rows")));
        }
        output.resize(count * width * 4, 0);
        let run = Run { rows, row_bytes, stop };
        let done = run.divide(&mut output, width * 4, steps, self.options.threads, work);
        done.map_err(|_| failed("the run was ended".into()))?;
        Ok(output)
    }

    /// The best of up to `runs` runs, after one to warm up, with zeros as inputs.
    pub fn measure(&self, shapes: &HashMap<String, Vec<i64>>, runs: usize) -> Result<Duration, Error> {
        let zeros = TrialInputs::new(&self.inputs, shapes)?;
        let stop = AtomicBool::new(false);
        let end = || stop.store(true, Ordering::Relaxed);
        best_time(runs, end, || {
            zeros.gathered().try_for_each(|input| self.answers(input.bytes, &stop).map(drop))
        })
    }
}

fn tensor(name: &str, shape: &[usize]) -> TensorInfo {
    let shape = std::iter::once(-1).chain(shape.iter().map(|&size| size as i64)).collect();
    TensorInfo { name: name.into(), datatype: DataType::Fp32, shape: Some(shape) }
}
