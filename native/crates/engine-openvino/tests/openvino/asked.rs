//! An engine behind a runner, that is asked like a model.

use std::sync::Arc;

use kushi_core::{
    Admission, Bound, Engine, ModelSpec, Reply, Request, Runner, RunnerOptions, Tensor, Ticket, Wanted,
};
use kushi_testkit::Letterbox;

pub struct Asked {
    pub letters: Arc<Letterbox>,
    pub runner: Arc<Runner>,
}

impl Asked {
    pub fn new(spec: ModelSpec, engine: Arc<dyn Engine>) -> Self {
        let engines = vec![engine; spec.instances];
        let runner = Runner::start(spec, engines, RunnerOptions::default());
        Self { letters: Arc::default(), runner: runner.expect("it starts") }
    }

    /// `inputs` are in the order of the specification.
    pub fn ask(&self, key: u64, inputs: Vec<Tensor>) -> Ticket {
        let batched = self.runner.spec().max_batch_size > 0;
        let rows = if batched { inputs[0].shape[0] as usize } else { 1 };
        let bound = Bound { inputs: inputs.into_iter().map(Some).collect(), wanted: Wanted::new(), rows };
        let request = Request::new(bound, self.runner.now(), Reply::new(self.letters.clone(), key));
        match self.runner.submit(request) {
            Ok((ticket, Admission::Queued | Admission::Lead(_))) => ticket,
            Err((error, _)) => panic!("{error}"),
        }
    }

    /// The bytes of the first output.
    pub fn answer(&self, key: u64) -> Result<Vec<u8>, String> {
        let answer = self.letters.answer(key);
        match answer.error() {
            Some(error) => Err(error.message.to_string()),
            None => Ok(answer.output(0).to_vec()),
        }
    }
}
