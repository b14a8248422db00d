//! Runs of a session on zeros, before it serves.

use std::collections::HashMap;
use std::ffi::{CStr, CString};
use std::time::Duration;

use kushi_core::{Error, ErrorKind, TensorInfo, TrialInputs, best_time, rehearse};

use crate::OnnxSession;
use crate::engine::c_string;
use crate::options::RunOptions;
use crate::value::InputValue;

impl OnnxSession {
    /// The best of up to `runs` runs, after one to warm up, with zeros as inputs. `shapes` are those of the
    /// model, its batch dimension included, one for each input.
    pub fn measure(&self, shapes: &HashMap<String, Vec<i64>>, runs: usize) -> Result<Duration, Error> {
        let zeros = TrialInputs::new(self.inputs(), shapes)?;
        let options = self.trial_options()?;
        // Nothing is lost where it fails: the run goes on.
        best_time(runs, || drop(options.end_runs()), || self.try_out(&options, &zeros))
    }

    /// One run with zeros as inputs, for what only the first run of these shapes does.
    pub fn rehearse(&self, shapes: &HashMap<String, Vec<i64>>) -> Result<(), Error> {
        let zeros = TrialInputs::to_rehearse(self.inputs(), shapes)?;
        let options = self.trial_options()?;
        rehearse(|| drop(options.end_runs()), || self.try_out(&options, &zeros))
    }

    fn trial_options(&self) -> Result<RunOptions, Error> {
        RunOptions::of(self.run_entries()).map_err(|text| Error::new(ErrorKind::EngineFailed, text))
    }

    fn try_out(&self, options: &RunOptions, zeros: &TrialInputs) -> Result<(), Error> {
        let inputs = zeros.gathered().map(|input| InputValue::new(&input));
        let inputs: Vec<InputValue<'_>> = inputs.collect::<Result<_, _>>()?;
        let names = |list: &[TensorInfo]| list.iter().map(|tensor| c_string(&tensor.name)).collect();
        let input_names: Vec<CString> = names(self.inputs());
        let output_names: Vec<CString> = names(self.outputs());
        let input_names: Vec<&CStr> = input_names.iter().map(CString::as_c_str).collect();
        let output_names: Vec<&CStr> = output_names.iter().map(CString::as_c_str).collect();
        self.run(options, &input_names, &inputs, &output_names)?;
        Ok(())
    }
}
