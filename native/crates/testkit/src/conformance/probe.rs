//! A runner on the engine under test, and a client that waits for its answers.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::ThreadId;

use kushi_core::{
    Admission, Buffer, DataType, Engine, Error, InputDraft, ModelSpec, Reply, Request, Runner, RunnerOptions,
    Shape, Snapshot, Tensor, Ticket,
};

use crate::{Letterbox, PATIENCE};

pub(super) struct Probe {
    runner: Arc<Runner>,
    letters: Arc<Letterbox>,
    next_key: AtomicU64,
}

/// A tensor of a request.
#[derive(Clone)]
pub(super) struct Input<'a> {
    pub(super) name: &'a str,
    pub(super) datatype: DataType,
    pub(super) shape: Vec<i64>,
    pub(super) data: Buffer,
}

pub(super) fn input<'a>(
    name: &'a str,
    datatype: DataType,
    shape: &[i64],
    data: impl Into<Vec<u8>>,
) -> Input<'a> {
    Input { name, datatype, shape: shape.into(), data: Buffer::host(data.into()) }
}

/// By position in the specification.
pub(super) type Answer = Result<Vec<(u16, Tensor)>, Error>;

impl Probe {
    pub(super) fn new(spec: ModelSpec, engine: Arc<dyn Engine>) -> Self {
        Self::with_slots(spec, vec![engine])
    }

    pub(super) fn with_slots(spec: ModelSpec, engines: Vec<Arc<dyn Engine>>) -> Self {
        let runner = Runner::start(spec, engines, RunnerOptions::default()).expect("the runner starts");
        Self { runner, letters: Arc::default(), next_key: AtomicU64::new(0) }
    }

    /// Sends a request and does not wait; the answer is under the key that this answers.
    pub(super) fn send(&self, inputs: &[Input<'_>], outputs: &[&str]) -> u64 {
        self.submit(inputs, outputs).0
    }

    /// The same, with the hold on the request.
    pub(super) fn submit(&self, inputs: &[Input<'_>], outputs: &[&str]) -> (u64, Ticket) {
        let drafts = inputs.iter().map(|input| InputDraft {
            name: input.name.into(),
            datatype: Some(input.datatype),
            shape: Shape::from_slice(&input.shape),
            data: input.data.clone(),
        });
        let bound =
            self.runner.spec().bind("", drafts.collect(), outputs).expect("the request fits the model");
        let key = self.next_key.fetch_add(1, Ordering::Relaxed);
        let request = Request::new(bound, self.runner.now(), Reply::new(self.letters.clone(), key));
        let Ok((ticket, admission)) = self.runner.submit(request) else {
            panic!("the runner admits the request");
        };
        // A lease that is dropped goes to the runner's own thread.
        if let Admission::Lead(lease) = admission {
            drop(lease);
        }
        (key, ticket)
    }

    pub(super) fn runner(&self) -> &Arc<Runner> {
        &self.runner
    }

    /// The thread that answered a request.
    pub(super) fn answered_by(&self, key: u64) -> ThreadId {
        self.letters.answer(key).thread
    }

    pub(super) fn wait(&self, key: u64) -> Answer {
        let mut answer = self.letters.answer(key);
        assert!(answer.responses.len() <= 1, "request {key} has one answer");
        answer
            .end
            .result
            .map(|()| answer.responses.pop().map(|got| got.outputs.into_vec()).unwrap_or_default())
    }

    pub(super) fn ask(&self, inputs: &[Input<'_>]) -> Answer {
        self.wait(self.send(inputs, &[]))
    }

    /// The only output of a request that must succeed.
    pub(super) fn ask_one(&self, input: &Input<'_>) -> Tensor {
        only(self.ask(std::slice::from_ref(input)))
    }

    /// How often the engine has run, and for how many rows.
    pub(super) fn executions(&self) -> (u64, u64) {
        let statistics = self.statistics();
        (statistics.execution_count, statistics.inference_count)
    }

    pub(super) fn statistics(&self) -> Snapshot {
        self.runner.statistics()
    }
}

impl Drop for Probe {
    fn drop(&mut self) {
        let retired = self.runner.retire(PATIENCE);
        assert!(retired || std::thread::panicking(), "the engine gives its slots back");
    }
}

pub(super) fn only(answer: Answer) -> Tensor {
    let mut outputs = answer.expect("the engine answers");
    assert_eq!(outputs.len(), 1, "one output was expected");
    outputs.remove(0).1
}
