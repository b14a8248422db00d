//! Engines that say whether they have somebody to execute.

use std::sync::{Arc, Mutex};

use kushi_core::{
    Admission, Attendance, Attendee, Batch, Capability, Engine, InstanceRate, ModelSpec, RateLimiter,
    ResourceDemand, Runner, RunnerOptions, Slot, SlotToken,
};
use kushi_testkit::{PATIENCE, Scene, drive, echo_spec, respond};

/// One instance, which keeps what it is given.
#[derive(Default)]
struct Instance {
    attendee: Mutex<Option<Attendee>>,
    given: Mutex<Vec<(SlotToken, Batch)>>,
}

impl Engine for Instance {
    fn capability(&self) -> Capability {
        Capability { concurrent: false, inline: false, keeps_slots: true }
    }

    fn attend(&self, attendee: Attendee) {
        *self.attendee.lock().unwrap() = Some(attendee);
    }

    fn execute(&self, _slot: &mut Slot, _batch: Batch) {
        unreachable!("it keeps its slots")
    }

    fn begin(&self, slot: SlotToken, batch: Batch) {
        self.given.lock().unwrap().push((slot, batch));
    }
}

impl Instance {
    fn tell(&self, attendance: Attendance) {
        let attendee = self.attendee.lock().unwrap().clone();
        attendee.expect("it was told").tell(attendance);
    }
}

struct Instances {
    scene: Scene,
    runner: Arc<Runner>,
    all: Vec<Arc<Instance>>,
    asked: u64,
}

impl Instances {
    fn new(count: usize) -> Self {
        Self::limited(ModelSpec { instances: count, ..echo_spec() }, None)
    }

    fn limited(spec: ModelSpec, limiter: Option<Arc<RateLimiter>>) -> Self {
        let scene = Scene::new(echo_spec());
        let instances: Vec<_> = (0..spec.instances).map(|_| Arc::new(Instance::default())).collect();
        let engines = instances.iter().map(|instance| instance.clone() as Arc<dyn Engine>).collect();
        let spec = ModelSpec { max_batch_size: 1, ..spec };
        let drivers = Some(scene.leases.clone() as Arc<dyn kushi_core::Drivers>);
        let options = RunnerOptions { drivers, limiter, ..RunnerOptions::default() };
        let runner = Runner::start(spec, engines, options).unwrap_or_else(|error| panic!("{error}"));
        Self { scene, runner, all: instances, asked: 0 }
    }

    /// Brings a request, and drives whatever is to be led.
    fn ask(&mut self) {
        self.asked += 1;
        let (_, admission) = match self.runner.submit(self.scene.request(self.asked, 1)) {
            Ok(admitted) => admitted,
            Err((error, _)) => panic!("{error}"),
        };
        if let Admission::Lead(lease) = admission {
            drive(lease);
        }
        self.lead();
    }

    fn lead(&self) {
        while !self.scene.leases.is_empty() {
            drive(self.scene.leases.lease());
        }
    }

    fn tell(&self, instance: usize, attendance: Attendance) {
        self.all[instance].tell(attendance);
        self.lead();
    }

    /// How many batches each has.
    fn given(&self) -> Vec<usize> {
        self.all.iter().map(|instance| instance.given.lock().unwrap().len()).collect()
    }

    /// An instance answers what it has.
    fn answer(&self, instance: usize) {
        let given = std::mem::take(&mut *self.all[instance].given.lock().unwrap());
        for (token, batch) in given {
            respond(batch, 0);
            drop(token);
        }
        self.lead();
    }
}

#[test]
fn requests_wait_for_those_that_are_here() {
    let mut model = Instances::new(2);
    model.tell(0, Attendance::Gone);
    model.ask();
    model.ask();
    assert_eq!((model.given(), model.runner.backlog().requests), (vec![0, 1], 1));
    model.answer(1);
    assert_eq!((model.given(), model.runner.backlog().requests), (vec![0, 1], 0));
    model.ask();
    model.tell(0, Attendance::Here);
    assert_eq!((model.given(), model.runner.backlog().requests), (vec![1, 1], 0), "it takes what waits");
    model.answer(0);
    model.answer(1);
    assert_eq!(model.scene.letters.answers(3).len(), 3);
}

#[test]
fn where_none_is_here_they_wait_with_one_that_is_coming_and_else_with_any() {
    let mut model = Instances::new(3);
    model.tell(0, Attendance::Gone);
    model.tell(1, Attendance::Coming);
    model.tell(2, Attendance::Gone);
    model.ask();
    model.ask();
    assert_eq!(model.given(), [0, 1, 0]);
    model.tell(1, Attendance::Gone);
    // All are alike.
    assert!(matches!(model.given()[..], [1, 1, 0] | [0, 1, 1]), "{:?}", model.given());
    model.ask();
    assert_eq!(model.given(), [1, 1, 1]);
    for instance in 0..3 {
        model.answer(instance);
    }
    assert_eq!(model.scene.letters.answers(3).len(), 3);
}

#[test]
fn one_that_is_gone_ends_with_its_runner() {
    let mut model = Instances::new(2);
    model.tell(0, Attendance::Gone);
    model.ask();
    model.answer(1);
    assert!(model.runner.retire(PATIENCE));
    model.tell(0, Attendance::Here);
    assert_eq!(model.runner.inside(), 0);
}

#[test]
fn one_that_is_gone_waits_for_no_permit() {
    let demand = ResourceDemand { name: "r".into(), is_global: false, count: 1 };
    let rate = InstanceRate { device: None, priority: 1, resources: vec![demand] };
    let spec = ModelSpec { instances: 2, rates: vec![rate; 2], ..echo_spec() };
    let mut model = Instances::limited(spec, Some(Arc::new(RateLimiter::new(Vec::new()))));
    model.ask();
    let (first, second) = if model.given() == [1, 0] { (0, 1) } else { (1, 0) };
    model.ask();
    assert_eq!(model.runner.backlog().requests, 1, "the second one waits for the permit of the first");
    model.tell(second, Attendance::Gone);
    model.answer(first);
    assert_eq!((model.given()[first], model.runner.backlog().requests), (1, 0));
    model.answer(first);
    model.ask();
    assert_eq!(model.given()[first], 1);
    model.answer(first);
    assert_eq!(model.scene.letters.answers(3).len(), 3);
}
