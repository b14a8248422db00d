//! A model on a puppet engine, with a clock that stands still and a letterbox for its answers.

use std::sync::Arc;
use std::time::Duration;

use kushi_core::{
    Admission, Batching, Bound, Buffer, Capability, Clock, DataType, Drivers, DynamicBatcher, Engine, Error,
    Labels, Lease, MetricsSpec, ModelSpec, Placement, QueuePolicy, QueueSpec, RateLimiter, Reply, Request,
    Runner, RunnerOptions, Scheduler, Shape, Step, Tensor, TensorSpec, Ticket, TimeoutAction, Wanted,
};

use crate::{LeaseBox, Letterbox, ManualClock, PuppetEngine, until};

/// How many short batches earn inline execution.
const BATCHES_OF_A_WINDOW: u64 = 128;

pub fn tensor_spec(name: &str, datatype: DataType, dims: &[i64]) -> TensorSpec {
    TensorSpec {
        name: name.into(),
        datatype,
        dims: dims.into(),
        reshape: None,
        optional: false,
        labels: Labels::default(),
    }
}

/// A model `echo` of one INT32 input and output of any width: 8 rows at most, no delay, a wide queue,
/// one instance.
pub fn echo_spec() -> ModelSpec {
    ModelSpec {
        name: "echo".into(),
        version: 1,
        platform: "puppet".into(),
        backend: "puppet".into(),
        max_batch_size: 8,
        inputs: vec![tensor_spec("INPUT", DataType::Int32, &[-1])],
        outputs: vec![tensor_spec("OUTPUT", DataType::Int32, &[-1])],
        batching: Some(Batching {
            preferred_batch_sizes: vec![],
            max_queue_delay_us: 0,
            preserve_ordering: false,
        }),
        queue: queue_of([wide()]),
        instances: 1,
        cores: Vec::new(),
        rates: Vec::new(),
        inline: true,
        config_json: "{}".into(),
        config_message: Vec::new(),
        decoupled: false,
        load_seconds: 0.0,
        metrics: MetricsSpec::default(),
    }
}

/// A level without bounds or timeouts.
pub fn wide() -> QueuePolicy {
    QueuePolicy {
        max_requests: 0,
        default_timeout_us: 0,
        allow_timeout_override: false,
        timeout_action: TimeoutAction::Reject,
    }
}

/// A queue of these levels, of which the last is the default.
pub fn queue_of(levels: impl Into<Vec<QueuePolicy>>) -> QueueSpec {
    let levels = levels.into();
    QueueSpec { max_bytes: 1 << 30, default_level: levels.len(), levels, ragged: Vec::new() }
}

/// INT32 values in row-major order.
pub fn int32(shape: &[i64], values: impl IntoIterator<Item = i32>) -> Tensor {
    let bytes: Vec<u8> = values.into_iter().flat_map(i32::to_le_bytes).collect();
    Tensor { datatype: DataType::Int32, shape: Shape::from_slice(shape), data: Buffer::host(bytes) }
}

fn usual(spec: &ModelSpec) -> Box<dyn Scheduler> {
    Box::new(DynamicBatcher::new(spec.batch_policy(), &spec.queue, spec.preserves_order()))
}

pub struct Scene {
    pub clock: Arc<ManualClock>,
    pub letters: Arc<Letterbox>,
    pub puppet: Arc<PuppetEngine>,
    pub leases: Arc<LeaseBox>,
    pub runner: Arc<Runner>,
}

impl Scene {
    pub fn new(spec: ModelSpec) -> Self {
        let leases = Arc::new(LeaseBox::default());
        let scheduler = usual(&spec);
        Self::with(spec, scheduler, PuppetEngine::default(), Some(leases.clone()), leases, None)
    }

    /// The same without anybody who takes second leases.
    pub fn without_drivers(spec: ModelSpec) -> Self {
        let scheduler = usual(&spec);
        Self::with(spec, scheduler, PuppetEngine::default(), None, Arc::default(), None)
    }

    pub fn on(spec: ModelSpec, puppet: PuppetEngine) -> Self {
        let scheduler = usual(&spec);
        Self::with(spec, scheduler, puppet, None, Arc::default(), None)
    }

    /// On an engine that keeps its slots.
    pub fn keeping(spec: ModelSpec) -> Self {
        let puppet = PuppetEngine::new(Capability { concurrent: true, inline: false, keeps_slots: true });
        let leases = Arc::new(LeaseBox::default());
        let scheduler = usual(&spec);
        Self::with(spec, scheduler, puppet, Some(leases.clone()), leases, None)
    }

    /// Without drivers, on an engine of this capability, and with a limiter that other models may share.
    pub fn limited(spec: ModelSpec, capability: Capability, limiter: &Arc<RateLimiter>) -> Self {
        let scheduler = usual(&spec);
        Self::with(
            spec,
            scheduler,
            PuppetEngine::new(capability),
            None,
            Arc::default(),
            Some(limiter.clone()),
        )
    }

    /// Without drivers, with another scheduler.
    pub fn scheduled(spec: ModelSpec, scheduler: Box<dyn Scheduler>) -> Self {
        Self::with(spec, scheduler, PuppetEngine::default(), None, Arc::default(), None)
    }

    fn with(
        spec: ModelSpec,
        scheduler: Box<dyn Scheduler>,
        puppet: PuppetEngine,
        drivers: Option<Arc<LeaseBox>>,
        leases: Arc<LeaseBox>,
        limiter: Option<Arc<RateLimiter>>,
    ) -> Self {
        let puppet = Arc::new(puppet);
        let clock = Arc::new(ManualClock::default());
        let engines = (0..spec.instances).map(|_| puppet.clone() as Arc<dyn Engine>).collect();
        let drivers = drivers.map(|drivers| drivers as Arc<dyn Drivers>);
        let options = RunnerOptions { clock: clock.clone(), drivers, limiter, ..RunnerOptions::default() };
        let runner = Runner::start_with(spec, scheduler, engines, options);
        let runner = runner.unwrap_or_else(|error| panic!("{error}"));
        // One that is about to look takes what a test brings for itself.
        until("threads that sleep", || runner.at_rest());
        Self { clock, letters: Arc::default(), puppet, leases, runner }
    }

    /// A request of so many rows, one element each, with the id `key`. All its elements are `key`.
    pub fn request(&self, key: u64, rows: usize) -> Request {
        self.request_of(key, int32(&[rows as i64, 1], std::iter::repeat_n(key as i32, rows)))
    }

    pub fn request_of(&self, key: u64, input: Tensor) -> Request {
        let rows = input.shape.first().map_or(1, |&rows| rows as usize);
        let bound = Bound { inputs: [Some(input)].into_iter().collect(), wanted: Wanted::new(), rows };
        let reply = Reply::new(self.letters.clone(), key);
        Request { id: key.to_string(), ..Request::new(bound, self.clock.now(), reply) }
    }

    /// Submits a request that must be taken in; a lease goes to the instance threads.
    pub fn submit(&self, request: Request) -> Ticket {
        self.lead(request).0
    }

    /// Submits a request that must be taken in, with the lease if there is one.
    pub fn lead(&self, request: Request) -> (Ticket, Option<Lease>) {
        match self.runner.submit(request) {
            Ok((ticket, Admission::Lead(lease))) => (ticket, Some(lease)),
            Ok((ticket, Admission::Queued)) => (ticket, None),
            Err((error, _)) => panic!("refused: {error}"),
        }
    }

    /// Submits a request that must be refused.
    pub fn refused(&self, request: Request) -> Error {
        match self.runner.submit(request) {
            Ok(_) => panic!("a request was taken in"),
            Err((error, _)) => error,
        }
    }

    pub fn submit_rows(&self, key: u64, rows: usize) -> Ticket {
        self.submit(self.request(key, rows))
    }

    pub fn ask(&self, keys: impl IntoIterator<Item = u64>) -> Vec<Ticket> {
        keys.into_iter().map(|key| self.submit_rows(key, 1)).collect()
    }

    /// Occupies the only instance with a request of key 0, held in the engine as its next batch.
    pub fn plug(&self) -> Ticket {
        self.puppet.hold();
        let before = self.puppet.seen().len();
        let ticket = self.submit_rows(0, 1);
        self.puppet.await_batches(before + 1);
        ticket
    }

    /// Runs short batches until the model has earned inline execution.
    pub fn earn_inline(&self) {
        for _ in 0..BATCHES_OF_A_WINDOW {
            self.submit_rows(u64::MAX, 1);
            self.letters.answer(u64::MAX);
        }
        crate::until("inline execution", || self.runner.placement() == Placement::Inline);
        // An instance thread that was called for nothing may still be on its way.
        crate::until("every slot at home", || self.runner.at_rest());
    }
}

/// Drives a lease to its end, as an io thread does; answers how many batches ran.
pub fn drive(lease: Lease) -> usize {
    let mut lease = lease;
    let mut steps = 0;
    loop {
        steps += 1;
        match lease.run() {
            Step::Again(next) => lease = next,
            Step::Done => return steps,
        }
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        self.puppet.release_all();
        while !self.leases.is_empty() {
            drop(self.leases.lease());
        }
        // Each attempt waits a little for instances, which may get no core for longer.
        let retired = (0..50).any(|_| self.runner.retire(Duration::ZERO));
        assert!(retired || std::thread::panicking(), "an instance did not come back");
        // An answer that nobody has read has the letterbox that keeps it.
        drop(self.letters.answers(0));
    }
}
