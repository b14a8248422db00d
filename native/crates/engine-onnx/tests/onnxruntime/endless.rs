//! Runs that the data of their requests would never let end.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use kushi_core::{
    Admission, Bound, Buffer, DataType, Engine, ErrorKind, ModelSpec, Reply, Request, Runner, RunnerOptions,
    Shape, Tensor, Ticket, Wanted,
};
use kushi_engine_onnx::{OnnxEngine, OnnxSession, SessionOptions};
use kushi_testkit::{Letterbox, echo_spec, tensor_spec};

use crate::models::{Directory, Graph, element, tensor};

const ENDLESS: i64 = 1 << 62;

/// `OUT` is 1 doubled as often as `TRIPS` says.
fn doubled() -> Graph {
    let (flag, number) = (tensor(element(DataType::Bool), &[]), tensor(element(DataType::Fp32), &[1]));
    let trips = tensor(element(DataType::Int64), &[1]);
    let body = Graph::default()
        .node("Identity", &["more"], &["goes_on"])
        .node("Add", &["state", "state"], &["twice"])
        .input("step", &tensor(element(DataType::Int64), &[]))
        .input("more", &flag)
        .input("state", &number)
        .output("goes_on", &flag)
        .output("twice", &number);
    Graph::default()
        .loop_node("TRIPS", "one", "OUT", &body)
        .initializer("one", element(DataType::Fp32), &[1], &1_f32.to_le_bytes())
        .input("TRIPS", &trips)
        .output("OUT", &number)
}

struct Scene {
    letters: Arc<Letterbox>,
    runner: Arc<Runner>,
}

impl Scene {
    fn new() -> Self {
        crate::init();
        let spec = ModelSpec {
            max_batch_size: 0,
            batching: None,
            inputs: vec![tensor_spec("TRIPS", DataType::Int64, &[1])],
            outputs: vec![tensor_spec("OUT", DataType::Fp32, &[1])],
            instances: 2,
            ..echo_spec()
        };
        let directory = Directory::new();
        let path = doubled().save(&directory);
        let session = OnnxSession::load(&path, &SessionOptions::default()).expect("the model loads");
        let engine: Arc<dyn Engine> =
            Arc::new(OnnxEngine::new(Arc::new(session), &spec).expect("the specification fits"));
        let runner = Runner::start(spec, vec![engine.clone(), engine], RunnerOptions::default());
        Self { letters: Arc::default(), runner: runner.expect("it starts") }
    }

    fn ask(&self, key: u64, trips: i64) -> Ticket {
        let data = Buffer::host(trips.to_le_bytes().to_vec());
        let input = Tensor { datatype: DataType::Int64, shape: Shape::from_slice(&[1]), data };
        let bound = Bound { inputs: [Some(input)].into_iter().collect(), wanted: Wanted::new(), rows: 1 };
        let request = Request::new(bound, self.runner.now(), Reply::new(self.letters.clone(), key));
        match self.runner.submit(request) {
            Ok((ticket, Admission::Queued | Admission::Lead(_))) => ticket,
            Err((error, _)) => panic!("{error}"),
        }
    }

    fn doubled(&self, key: u64, trips: i64) {
        self.ask(key, trips);
        assert_eq!(self.letters.answer(key).output(0), 2_f32.powi(trips as i32).to_le_bytes());
    }

    fn kind(&self, key: u64) -> Option<ErrorKind> {
        self.letters.answer(key).error().map(|error| error.kind)
    }
}

#[test]
fn a_run_that_nobody_waits_for_ends_and_its_instance_runs_again() {
    let scene = Scene::new();
    for round in 0..4 {
        let endless = [0, 1].map(|key| scene.ask(key, ENDLESS));
        kushi_testkit::until("both instances at work", || scene.runner.occupancy().running == 2);
        assert!(endless.iter().all(Ticket::cancel));
        assert_eq!([0, 1].map(|key| scene.kind(key)), [Some(ErrorKind::Cancelled); 2]);
        (2..5).for_each(|key| scene.doubled(key, 1 + round));
    }
}

/// An order that comes while a run ends by itself must not be there for the next.
#[test]
fn orders_that_come_late_end_no_other_run() {
    let scene = Scene::new();
    thread::scope(|scope| {
        scope.spawn(|| {
            for key in 1000..2000 {
                scene.ask(key, 100).cancel();
                scene.letters.answer(key);
            }
        });
        (0..1000).for_each(|key| scene.doubled(key, 3));
    });
}

#[test]
fn a_model_that_goes_ends_its_runs() {
    let scene = Scene::new();
    let _tickets = [0, 1].map(|key| scene.ask(key, ENDLESS));
    kushi_testkit::until("both instances at work", || scene.runner.occupancy().running == 2);
    assert!(scene.runner.retire(Duration::ZERO));
    for key in [0, 1] {
        let answer = scene.letters.answer(key);
        let error = answer.error().expect("it never ends");
        assert_eq!(error.kind, ErrorKind::ShuttingDown);
        assert!(error.message.starts_with("the run was ended"), "{error}");
    }
}
