//! A data plane with puppets for steps, and ensembles of them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use kushi_core::{
    Admission, Bound, Clock as _, DataType, Error, Lease, ModelSpec, Reply, Request, Runner, RunnerOptions,
    Tensor, Ticket, Wanted,
};
use kushi_dataplane::{
    DataPlane, DataPlaneOptions, InFlight, LogChange, LogSettings, LogSwitch, MetricsOptions, Phase,
    ServerMetadata, StepSpec, TraceOptions,
};
use kushi_testkit::{Letterbox, ManualClock, PATIENCE, Scene, drive, echo_spec, int32, tensor_spec};

/// Ensembles go first, and their steps last.
pub struct Site {
    ensembles: Vec<Arc<Runner>>,
    pub letters: Arc<Letterbox>,
    pub clock: Arc<ManualClock>,
    pub plane: DataPlane,
    scenes: BTreeMap<String, Scene>,
}

/// A model of INT32 tensors of any width: output i is input i.
pub fn model(name: &str, inputs: &[&str], outputs: &[&str]) -> ModelSpec {
    let tensors =
        |names: &[&str]| names.iter().map(|name| tensor_spec(name, DataType::Int32, &[-1])).collect();
    ModelSpec { name: name.into(), inputs: tensors(inputs), outputs: tensors(outputs), ..echo_spec() }
}

pub fn step(model: &str, inputs: &[(&str, &str)], outputs: &[(&str, &str)]) -> StepSpec {
    let map = |names: &[(&str, &str)]| names.iter().map(|&(a, b)| (a.into(), b.into())).collect();
    StepSpec {
        model: model.into(),
        version: None,
        inputs: map(inputs),
        outputs: map(outputs),
        max_inflight_requests: 0,
    }
}

/// Each step has one input and one output: tensors `0`, `1`, …
pub fn chain(models: &[&str]) -> Vec<StepSpec> {
    let names: Vec<String> = (0..=models.len()).map(|number| number.to_string()).collect();
    let link = |(place, model): (usize, &&str)| {
        step(model, &[("INPUT", &names[place])], &[("OUTPUT", &names[place + 1])])
    };
    models.iter().enumerate().map(link).collect()
}

impl Site {
    pub fn new(models: impl IntoIterator<Item = ModelSpec>) -> Self {
        let mut site = Self {
            ensembles: Vec::new(),
            letters: Arc::default(),
            clock: Arc::default(),
            plane: DataPlane::new(&options(), Box::new(InFlight::default)),
            scenes: BTreeMap::new(),
        };
        site.plane.advance(Phase::Serving);
        for spec in models {
            site.serve(Scene::without_drivers(spec));
        }
        site
    }

    /// Puts this in the place of what the model had, which comes back.
    pub fn serve(&mut self, scene: Scene) -> Option<Scene> {
        let name = scene.runner.spec().name.clone();
        let _ = self.plane.registry.publish(&name, vec![scene.runner.clone()]);
        self.scenes.insert(name, scene)
    }

    pub fn scene(&self, model: &str) -> &Scene {
        &self.scenes[model]
    }

    pub fn earn_inline(&self) {
        self.scenes.values().for_each(Scene::earn_inline);
    }

    pub fn start(&self, spec: ModelSpec, steps: &[StepSpec]) -> Result<Arc<Runner>, Error> {
        let options = RunnerOptions { clock: self.clock.clone(), ..RunnerOptions::default() };
        self.plane.start_ensemble(spec, steps, options)
    }

    pub fn ensemble(&mut self, spec: ModelSpec, steps: &[StepSpec]) -> Arc<Runner> {
        let name = spec.name.clone();
        let runner = self.start(spec, steps).unwrap_or_else(|error| panic!("{error}"));
        let _ = self.plane.registry.publish(&name, vec![runner.clone()]);
        self.ensembles.push(runner.clone());
        runner
    }

    /// One model after the other, from `0` on.
    pub fn chained(&mut self, models: &[&str]) -> Arc<Runner> {
        let last = models.len().to_string();
        self.ensemble(model("ensemble", &["0"], &[&last]), &chain(models))
    }

    /// A request whose inputs are INT32 tensors of one row and one element.
    pub fn request(&self, key: u64, inputs: &[Option<i32>]) -> Request {
        let one = |value: &Option<i32>| value.map(|value| int32(&[1, 1], [value]));
        self.request_of(key, inputs.iter().map(one))
    }

    pub fn request_of(&self, key: u64, inputs: impl IntoIterator<Item = Option<Tensor>>) -> Request {
        let bound = Bound { inputs: inputs.into_iter().collect(), wanted: Wanted::new(), rows: 1 };
        let reply = Reply::new(self.letters.clone(), key);
        Request { id: key.to_string(), ..Request::new(bound, self.clock.now(), reply) }
    }

    /// Submits a request of one input that must be taken in, and leads.
    pub fn ask(&self, ensemble: &Arc<Runner>, key: u64) -> Ticket {
        lead(ensemble, self.request(key, &[Some(key as i32)]))
    }

    /// The only element of an output.
    pub fn value(&self, key: u64) -> i32 {
        value(self.letters.answer(key).output(0))
    }

    #[track_caller]
    pub fn error(&self, key: u64) -> Error {
        let answer = self.letters.answer(key);
        answer.error().cloned().unwrap_or_else(|| panic!("request {key} ended well"))
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        self.scenes.values().for_each(|scene| scene.puppet.release_all());
        for ensemble in self.ensembles.drain(..).rev() {
            let patience = if std::thread::panicking() { Duration::ZERO } else { PATIENCE };
            assert!(ensemble.retire(patience) || std::thread::panicking(), "an ensemble did not come back");
        }
    }
}

pub fn submit(runner: &Arc<Runner>, request: Request) -> Result<(Ticket, Option<Lease>), Error> {
    match runner.submit(request) {
        Ok((ticket, Admission::Lead(lease))) => Ok((ticket, Some(lease))),
        Ok((ticket, Admission::Queued)) => Ok((ticket, None)),
        Err((error, _)) => Err(error),
    }
}

/// Submits a request that must be taken in, and leads.
pub fn lead(ensemble: &Arc<Runner>, request: Request) -> Ticket {
    let (ticket, lease) = submit(ensemble, request).unwrap_or_else(|error| panic!("refused: {error}"));
    lease.map(drive);
    ticket
}

pub fn value(bytes: &[u8]) -> i32 {
    bytes.first_chunk().copied().map(i32::from_le_bytes).expect("an element")
}

fn options() -> DataPlaneOptions {
    DataPlaneOptions {
        metadata: ServerMetadata { name: "site".into(), version: "1".into(), extensions: vec![] },
        strict_readiness: true,
        repositories: vec![],
        explicit_control: false,
        allow_client_regions: false,
        log: Arc::new(NoLog),
        traces: TraceOptions::default(),
        machine_metrics: None,
        gpu_metrics: None,
        metrics: MetricsOptions::default(),
    }
}

struct NoLog;

impl LogSwitch for NoLog {
    fn file(&self) -> String {
        String::new()
    }

    fn change(&self, _change: LogChange) -> LogSettings {
        unreachable!("nobody asks")
    }
}
