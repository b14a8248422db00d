//! How long a run of a network takes.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use kushi_core::{Error, ErrorKind, TrialInputs, best_time};

use crate::CompiledModel;
use crate::tensor::InputTensor;

impl CompiledModel {
    /// The best of up to `runs` runs, after one to warm up, with zeros as inputs. `shapes` are those of the
    /// network, its batch dimension included, one for each input.
    pub fn measure(&self, shapes: &HashMap<String, Vec<i64>>, runs: usize) -> Result<Duration, Error> {
        let zeros = TrialInputs::new(self.inputs(), shapes)?;
        let inputs = zeros.gathered().map(|input| InputTensor::new(self.api(), &input));
        let inputs: Vec<InputTensor<'_, '_>> = inputs.collect::<Result<_, _>>()?;
        let none = || Error::new(ErrorKind::Internal, "the network was compiled without a request");
        let request = self.requests().first().ok_or_else(none)?;
        // One that takes too long goes on where it cannot be ended.
        let end = || {
            if self.ends_runs() {
                drop(request.end_runs());
            }
        };
        let time = best_time(runs, end, || {
            request.run(&inputs)?;
            Ok(())
        });
        request.allow_runs();
        time
    }

    /// How many runs there are in this time, one after the other, with zeros of one of the shapes after the other as
    /// inputs and the outputs left where they are. For benchmarks.
    pub fn run_for(&self, shapes: &[HashMap<String, Vec<i64>>], time: Duration) -> Result<usize, Error> {
        let zeros = shapes.iter().map(|shapes| TrialInputs::new(self.inputs(), shapes));
        let zeros: Vec<TrialInputs> = zeros.collect::<Result<_, _>>()?;
        let begun = Instant::now();
        let mut runs = 0;
        while begun.elapsed() < time {
            let inputs =
                zeros[runs % zeros.len()].gathered().map(|input| InputTensor::new(self.api(), &input));
            let inputs: Vec<InputTensor<'_, '_>> = inputs.collect::<Result<_, _>>()?;
            self.requests()[0].run(&inputs)?;
            runs += 1;
        }
        Ok(runs)
    }
}
