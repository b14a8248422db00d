//! Batches whose rows have places: sequence i has row i, rows without a request are padding, and the
//! scheduler tells the model by an input of its own which rows are taken.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use kushi_core::{
    Action, Backlog, Batch, Buffer, Capability, DataType, Due, Engine, Entry, Error, ErrorKind, FreeSlots,
    ModelSpec, Next, Parameter, Plan, Queue, Request, Runner, RunnerOptions, Scheduler, Seat, Shape, Slot,
    Tensor,
};
use kushi_testkit::{PATIENCE, Scene, copy_inputs, echo_spec, int32, tensor_spec};

const ROWS: usize = 4;

/// One queue for each row; a batch takes the first of each, once there are `company`.
struct Direct {
    rows: Vec<Queue>,
    company: usize,
}

impl Direct {
    fn ready(&self) -> usize {
        self.rows.iter().filter(|row| row.backlog().requests > 0).count()
    }
}

impl Scheduler for Direct {
    fn admit(&mut self, entry: Entry) -> Result<(), (Error, Entry)> {
        let Some((_, Parameter::Int(row))) = entry.request().parameters.first() else {
            return Err((Error::new(ErrorKind::InvalidInput, "a row is missing"), entry));
        };
        self.rows[*row as usize].admit(entry)
    }

    fn next(&mut self, _now: Instant, _slot: usize) -> Next {
        if self.ready() < self.company {
            return Next { action: Action::Idle, dropped: vec![] };
        }
        let ready = self.rows.iter().map(|row| i32::from(row.backlog().requests > 0));
        let ready = int32(&[ROWS as i64, 1], ready.collect::<Vec<_>>());
        let seat = |row: &mut Queue| row.take(1).seats.pop().unwrap_or_else(|| Seat::padding(1));
        let plan = Plan { seats: self.rows.iter_mut().map(seat).collect(), inputs: vec![(1, ready)] };
        Next { action: Action::Run(plan), dropped: vec![] }
    }

    fn due(&self, _now: Instant, _free: &FreeSlots) -> Due {
        if self.ready() < self.company { Due::Nothing } else { Due::Any { whole_batch: true } }
    }

    fn done(&mut self, _slot: usize) {}

    fn cancel(&mut self, number: u64) -> Option<Entry> {
        self.rows.iter_mut().find_map(|row| row.cancel(number))
    }

    fn clear(&mut self) -> Vec<Entry> {
        self.rows.iter_mut().flat_map(Queue::clear).collect()
    }

    fn backlog(&self) -> Backlog {
        let requests = self.rows.iter().map(|row| row.backlog().requests).sum();
        Backlog { requests, rows: requests, bytes: 0 }
    }

    fn oldest(&self) -> Option<Instant> {
        self.rows.iter().filter_map(Queue::oldest).min()
    }
}

/// Echoes, and shows what it saw.
#[derive(Default)]
struct Mirror {
    saw: Mutex<Vec<Vec<Tensor>>>,
    fails: bool,
}

impl Engine for Mirror {
    fn capability(&self) -> Capability {
        Capability { concurrent: true, inline: true, keeps_slots: false }
    }

    fn execute(&self, slot: &mut Slot, mut batch: Batch) {
        assert_eq!((batch.len(), batch.rows()), (ROWS, ROWS));
        let (inputs, _) = copy_inputs(&mut batch, &mut slot.scratch);
        self.saw
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(inputs.iter().flatten().cloned().collect());
        if self.fails {
            slot.fail(batch, &Error::new(ErrorKind::EngineFailed, "told to"));
        } else {
            slot.scatter(batch, &inputs);
        }
    }
}

struct Stage {
    scene: Scene,
    mirror: Arc<Mirror>,
    runner: Arc<Runner>,
}

impl Stage {
    fn new(datatype: DataType, company: usize, fails: bool) -> Self {
        let mut spec = ModelSpec { max_batch_size: ROWS, ..echo_spec() };
        spec.inputs =
            vec![tensor_spec("INPUT", datatype, &[-1]), tensor_spec("READY", DataType::Int32, &[1])];
        spec.inputs[1].optional = true;
        spec.outputs =
            vec![tensor_spec("OUTPUT", datatype, &[-1]), tensor_spec("SAW", DataType::Int32, &[1])];
        let rows = (0..ROWS).map(|_| Queue::new(&spec.queue)).collect();
        let mirror = Arc::new(Mirror { fails, ..Mirror::default() });
        let scheduler = Box::new(Direct { rows, company });
        let started = Runner::start_with(spec, scheduler, vec![mirror.clone()], RunnerOptions::default());
        let runner = started.unwrap_or_else(|error| panic!("{error}"));
        Self { scene: Scene::new(echo_spec()), mirror, runner }
    }

    fn ask(&self, row: i64, input: Tensor) {
        let parameters = vec![("row".into(), Parameter::Int(row))];
        let mut request = Request { parameters, ..self.scene.request_of(row as u64, input) };
        request.inputs.push(None);
        assert!(self.runner.submit(request).is_ok());
    }

    fn saw(&self) -> Vec<Vec<Tensor>> {
        self.mirror.saw.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        assert!(self.runner.retire(PATIENCE));
    }
}

#[test]
fn each_request_has_its_row_and_the_others_are_zero() {
    let stage = Stage::new(DataType::Int32, 2, false);
    stage.ask(3, int32(&[1, 2], [7, 8]));
    stage.ask(1, int32(&[1, 2], [5, 6]));
    for (row, values) in [(1, [5, 6]), (3, [7, 8])] {
        let answer = stage.scene.letters.answer(row);
        assert_eq!(answer.output(0), int32(&[1, 2], values).data.as_bytes());
        assert_eq!(
            answer.output(1),
            int32(&[1, 1], [1]).data.as_bytes(),
            "what the scheduler made is split, too"
        );
    }
    let saw = stage.saw();
    assert_eq!(saw.len(), 1);
    assert_eq!(saw[0][0].shape.as_slice(), [4, 2]);
    assert_eq!(saw[0][0].data.as_bytes(), int32(&[4, 2], [0, 0, 5, 6, 0, 0, 7, 8]).data.as_bytes());
    assert_eq!(saw[0][1].data.as_bytes(), int32(&[4, 1], [0, 1, 0, 1]).data.as_bytes());
}

#[test]
fn padding_of_strings_is_empty_strings() {
    let stage = Stage::new(DataType::Bytes, 1, false);
    let data = Buffer::host(b"\x01\0\0\0a\x02\0\0\0bc".to_vec());
    stage.ask(1, Tensor { datatype: DataType::Bytes, shape: Shape::from_slice(&[1, 2]), data: data.clone() });
    assert_eq!(stage.scene.letters.answer(1).output(0), data.as_bytes());
    let (before, behind) = ([0; 8], [0; 16]);
    assert_eq!(stage.saw()[0][0].data.as_bytes(), [&before, data.as_bytes(), &behind].concat());
}

#[test]
fn padding_is_not_counted() {
    let stage = Stage::new(DataType::Int32, 3, false);
    for row in [0, 2, 3] {
        stage.ask(row, int32(&[1, 1], [7]));
    }
    stage.scene.letters.answers(3);
    let statistics = stage.runner.statistics();
    assert_eq!((statistics.inference_count, statistics.execution_count), (3, 1));
    assert_eq!(statistics.batches.keys().collect::<Vec<_>>(), [&3]);
    assert_eq!(stage.runner.drain(PATIENCE), 0);
}

#[test]
fn a_batch_whose_rows_have_places_fails_as_a_whole() {
    let stage = Stage::new(DataType::Int32, 2, true);
    stage.ask(0, int32(&[1, 1], [7]));
    stage.ask(2, int32(&[1, 1], [7]));
    let errors = stage.scene.letters.answers(2);
    assert!(errors.iter().all(|answer| answer.error().is_some_and(|error| error.message == "told to")));
    assert_eq!(stage.saw().len(), 1, "none of its requests runs alone");
}
