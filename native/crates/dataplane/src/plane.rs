//! All that is served, and all that can be asked about it.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use kushi_core::{Complaints, Error, ErrorKind, ModelSpec, Observer, Runner, RunnerOptions};
use kushi_gpu::{GpuMeter, GpuOptions};
use kushi_shm::Regions;
use kushi_trace::{TraceOptions, Traces};

use crate::leaving::Leaving;
use crate::observed::Observed;
use crate::pipeline::{AllAtOnce, Beside, Ensemble, Graph};
use crate::{
    AskedVersion, CallCycles, Inference, LogSwitch, MachineMeter, MetricsOptions, ModelMetrics, Orders,
    Registry, RouteKey, StepSpec, Traffic, VersionRoutes,
};

/// Whether the server is starting, serving or going away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Phase {
    Starting = 0,
    Serving = 1,
    Exiting = 2,
}

/// What the server says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerMetadata {
    pub name: String,
    pub version: String,
    pub extensions: Vec<String>,
}

pub struct DataPlaneOptions {
    pub metadata: ServerMetadata,
    /// Ready only when every model is.
    pub strict_readiness: bool,
    /// Where models are looked for: directories of models, or model files.
    pub repositories: Vec<PathBuf>,
    /// Whether clients may load and unload models.
    pub explicit_control: bool,
    /// Whether clients may register shared memory for their tensors.
    pub allow_client_regions: bool,
    /// What clients may change about the log.
    pub log: Arc<dyn LogSwitch>,
    pub traces: TraceOptions,
    /// How old what the metrics tell of the machine's processors and memory may be. `None`: they do not.
    pub machine_metrics: Option<Duration>,
    /// `None`: the metrics have no GPUs.
    pub gpu_metrics: Option<GpuOptions>,
    pub metrics: MetricsOptions,
}

/// What large requests and answers hold.
#[derive(Clone, Copy, Debug, Default)]
pub struct InFlight {
    pub bytes: usize,
    /// How many requests have found no room so far.
    pub refused: u64,
}

pub type ReadInFlight = Box<dyn Fn() -> InFlight + Send + Sync>;

pub struct DataPlane {
    pub registry: Arc<Registry>,
    pub metadata: ServerMetadata,
    strict_readiness: bool,
    pub(crate) repositories: Vec<PathBuf>,
    pub(crate) explicit_control: bool,
    /// Which models ask which.
    pub cycles: CallCycles,
    pub orders: Arc<Orders>,
    /// What clients have registered; nothing unless they may.
    pub regions: Arc<Regions>,
    pub(crate) allow_client_regions: bool,
    pub(crate) log: Arc<dyn LogSwitch>,
    /// Which requests are traced.
    pub traces: Traces,
    /// `None`: not asked for.
    pub machine: Option<MachineMeter>,
    /// `None`: not asked for.
    pub gpus: Option<GpuMeter>,
    /// Those that models make.
    pub model_metrics: Arc<ModelMetrics>,
    /// About what clients may cause again and again.
    pub complaints: Complaints,
    pub(crate) metrics: MetricsOptions,
    /// What is open at the doors.
    pub traffic: Traffic,
    in_flight: ReadInFlight,
    leaving: Leaving,
    beside: Beside,
    phase: AtomicU8,
}

impl DataPlane {
    pub fn new(options: &DataPlaneOptions, in_flight: ReadInFlight) -> Self {
        Self {
            registry: Arc::default(),
            beside: Beside::default(),
            metadata: options.metadata.clone(),
            strict_readiness: options.strict_readiness,
            repositories: options.repositories.clone(),
            explicit_control: options.explicit_control,
            cycles: CallCycles::default(),
            orders: Arc::default(),
            regions: Arc::default(),
            allow_client_regions: options.allow_client_regions,
            log: options.log.clone(),
            traces: Traces::new(options.traces.clone()),
            machine: options.machine_metrics.map(MachineMeter::new),
            gpus: options.gpu_metrics.clone().map(GpuMeter::start),
            model_metrics: Arc::default(),
            complaints: Complaints::default(),
            metrics: options.metrics.clone(),
            traffic: Traffic::default(),
            in_flight,
            leaving: Leaving::default(),
            phase: AtomicU8::new(Phase::Starting as u8),
        }
    }

    pub fn phase(&self) -> Phase {
        match self.phase.load(Ordering::SeqCst) {
            0 => Phase::Starting,
            1 => Phase::Serving,
            _ => Phase::Exiting,
        }
    }

    /// Phases only go forward.
    pub fn advance(&self, phase: Phase) {
        self.phase.fetch_max(phase as u8, Ordering::SeqCst);
        if phase == Phase::Exiting {
            self.orders.close();
        }
    }

    pub fn is_ready(&self) -> bool {
        self.phase() == Phase::Serving && (!self.strict_readiness || self.registry.all_ready())
    }

    pub(crate) fn in_flight(&self) -> InFlight {
        (self.in_flight)()
    }

    /// What shall be told of a model beside its sums.
    pub fn observer(&self, spec: &ModelSpec) -> Option<Arc<dyn Observer>> {
        Observed::of(spec, &self.metrics).map(|observed| observed as Arc<dyn Observer>)
    }

    /// The way of a request to a model. `header`: what came with it under a name, beside its parameters. Fails when no
    /// such model serves.
    pub fn inference(
        &self,
        model: &str,
        version: AskedVersion,
        header: impl FnMut(&str) -> Option<RouteKey>,
    ) -> Result<Inference, Error> {
        Inference::find(&self.registry, model, version, header).map_err(|error| self.unless_exiting(error))
    }

    pub(crate) fn find(&self, model: &str, version: &AskedVersion) -> Result<Arc<Runner>, Error> {
        self.registry.find(model, version).map_err(|error| self.unless_exiting(error))
    }

    /// A model that is unloaded because the server closes is not an unknown one.
    fn unless_exiting(&self, error: Error) -> Error {
        if self.phase() == Phase::Exiting { not_ready() } else { error }
    }

    /// Starts a version that is made of other models, which are found by their names when a request comes.
    pub fn start_ensemble(
        &self,
        spec: ModelSpec,
        steps: &[StepSpec],
        options: RunnerOptions,
    ) -> Result<Arc<Runner>, Error> {
        let graph = Graph::new(&spec, steps)?;
        self.cycles.forget(&spec.name);
        for step in steps {
            self.cycles.enter(&spec.name, &step.model)?;
        }
        let engine = Ensemble::new(&spec, graph, &self.registry, self.beside.start()?);
        let scheduler = Box::new(AllAtOnce::new(&spec.queue));
        Runner::start_with(spec, scheduler, vec![Arc::new(engine)], options)
    }

    /// Puts these versions in the place of all that the model had but for those that are `kept`, and lets the others
    /// finish. A server that closes retires them at once.
    pub fn publish(
        &self,
        model: &str,
        runners: Vec<Arc<Runner>>,
        kept: &[u64],
        routes: Option<VersionRoutes>,
    ) -> Result<(), Error> {
        let new = runners.clone();
        self.leaving.retire(&self.registry.publish_beside(model, runners, kept, routes));
        // Whoever closes has looked at the registry after this phase began, or retires these as well.
        if self.phase() == Phase::Exiting {
            self.leaving.retire(&new);
            return Err(Error::new(ErrorKind::ShuttingDown, "the engine is closed"));
        }
        Ok(())
    }

    /// Takes a model away, and lets its versions finish what they began.
    pub fn unload(&self, model: &str) {
        self.cycles.forget(model);
        self.leaving.retire(&self.registry.remove(model));
    }

    /// Waits for the runners that were replaced or unloaded. Answers how many requests are inside those that are
    /// still there at the end of `patience`.
    pub fn wait_until_gone(&self, patience: Duration) -> usize {
        self.leaving.wait_until_gone(patience)
    }

    /// Ends with an error what models execute, as far as their engines can, and what waits for them: for a
    /// drain that has run out of its time.
    pub fn end_runs(&self) {
        for runner in self.registry.runners() {
            runner.end_runs();
        }
        self.leaving.end_runs();
    }

    /// Ends runs that keep an io thread from its connections for long, or clients that wait from their answers
    /// because of one that has left: they begin again without them. To be called now and then.
    pub fn renew_runs(&self) {
        for runner in self.registry.runners() {
            runner.renew_runs();
        }
    }
}

/// What a server says that takes nothing any more, or not yet.
pub(crate) fn not_ready() -> Error {
    Error::new(ErrorKind::ShuttingDown, "Server not ready")
}
