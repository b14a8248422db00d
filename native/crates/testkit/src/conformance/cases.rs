//! The cases. Each runs alone, on engines of its own.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::thread::{self, ThreadId};

use kushi_core::{
    Batch, Buffer, Capability, DataType, Engine, ErrorKind, FailureReason, ModelSpec, Runner, Slot,
    SlotToken, Tensor, Ticket,
};

use crate::lock;

use super::data::{int32, int64, some_input, strings_of};
use super::probe::{Input, Probe, input, only};
use super::{FULL, Model, Subject, patient, spec, unbatched};

fn probe(subject: &dyn Subject, model: Model, spec: ModelSpec) -> Probe {
    let engine = subject.engine(model, &spec);
    Probe::new(spec, engine)
}

fn identity(datatype: DataType, dims: &[i64]) -> ModelSpec {
    spec(&[("IN", datatype, dims)], &[("OUT", datatype, dims)])
}

fn taken<const N: usize>(subject: &dyn Subject, datatypes: [DataType; N]) -> impl Iterator<Item = DataType> {
    datatypes.into_iter().filter(|datatype| subject.takes(*datatype))
}

fn assert_same(sent: &Input<'_>, got: &Tensor) {
    assert_eq!(got.datatype, sent.datatype);
    assert_eq!(got.shape.as_slice(), sent.shape, "shape of {}", sent.datatype);
    assert_eq!(got.data.as_bytes(), sent.data.as_bytes(), "elements of {}", sent.datatype);
}

pub fn every_datatype_passes_unchanged(subject: &dyn Subject) {
    for datatype in taken(subject, DataType::ALL) {
        let probe = probe(subject, Model::Identity, identity(datatype, &[-1]));
        for seed in 1..4 {
            let sent = some_input(datatype, &[1, 7], seed);
            assert_same(&sent, &probe.ask_one(&sent));
        }
    }
}

pub fn strings_keep_zero_bytes_and_other_encodings(subject: &dyn Subject) {
    if !subject.takes(DataType::Bytes) {
        return;
    }
    let probe = probe(subject, Model::Identity, identity(DataType::Bytes, &[-1]));
    let long = vec![b'x'; 100_000];
    let strings: [&[u8]; 8] =
        [b"", b"plain", b"\0", b"a\0b\0", b"\xff\xfe\x80", "žluťoučký".as_bytes(), &long, b""];
    let sent = input("IN", DataType::Bytes, &[2, 4], strings_of(&strings));
    assert_same(&sent, &probe.ask_one(&sent));
}

pub fn empty_tensors_pass(subject: &dyn Subject) {
    for datatype in taken(subject, [DataType::Fp32, DataType::Bool, DataType::Bytes]) {
        let batched = probe(subject, Model::Identity, identity(datatype, &[-1]));
        let sent = input("IN", datatype, &[2, 0], []);
        assert_same(&sent, &batched.ask_one(&sent));
        let unbatched = probe(subject, Model::Identity, unbatched(identity(datatype, &[-1, 3])));
        let sent = input("IN", datatype, &[0, 3], []);
        assert_same(&sent, &unbatched.ask_one(&sent));
    }
}

pub fn scalars_pass(subject: &dyn Subject) {
    for datatype in taken(subject, [DataType::Fp64, DataType::Int8, DataType::Bytes]) {
        let probe = probe(subject, Model::Identity, unbatched(identity(datatype, &[])));
        let sent = some_input(datatype, &[], 5);
        assert_same(&sent, &probe.ask_one(&sent));
    }
}

pub fn a_request_of_several_rows_keeps_their_order(subject: &dyn Subject) {
    for datatype in taken(subject, [DataType::Int16, DataType::Bytes]) {
        let probe = probe(subject, Model::Identity, identity(datatype, &[3]));
        let sent = some_input(datatype, &[FULL as i64, 3], 6);
        assert_same(&sent, &probe.ask_one(&sent));
    }
}

pub fn joined_requests_get_their_own_rows_back(subject: &dyn Subject) {
    for datatype in taken(subject, DataType::ALL) {
        let probe = probe(subject, Model::Identity, patient(identity(datatype, &[-1])));
        for round in 0..3 {
            let sent = [1, 3, 2, 2].map(|rows| some_input(datatype, &[rows, 5], 10 * round + rows as u64));
            let keys = sent.each_ref().map(|sent| probe.send(std::slice::from_ref(sent), &[]));
            for (sent, key) in sent.iter().zip(keys) {
                assert_same(sent, &only(probe.wait(key)));
            }
        }
        assert_eq!(probe.executions(), (3, 3 * FULL as u64), "every round is one batch of {datatype}");
    }
}

pub fn requests_of_other_shapes_run_apart(subject: &dyn Subject) {
    let probe = probe(subject, Model::Identity, identity(DataType::Fp32, &[-1, -1]));
    let sent =
        [[2, 3, 4], [2, 4, 3], [1, 3, 4], [2, 0, 4]].map(|shape| some_input(DataType::Fp32, &shape, 7));
    let keys = sent.each_ref().map(|sent| probe.send(std::slice::from_ref(sent), &[]));
    for (sent, key) in sent.iter().zip(keys) {
        assert_same(sent, &only(probe.wait(key)));
    }
}

pub fn the_engine_sees_the_reshaped_tensor(subject: &dyn Subject) {
    let cases: [(&[i64], &[i64], [i64; 2]); 3] =
        [(&[4], &[2, 2], [3, 4]), (&[1], &[], [3, 1]), (&[-1], &[-1, 1], [3, 6])];
    for (dims, reshape, shape) in cases {
        let mut spec = identity(DataType::Uint32, dims);
        spec.inputs[0].reshape = Some(reshape.into());
        spec.outputs[0].reshape = Some(reshape.into());
        let probe = probe(subject, Model::Identity, spec);
        let sent = some_input(DataType::Uint32, &shape, 8);
        assert_same(&sent, &probe.ask_one(&sent));
    }
}

pub fn an_optional_input_may_be_left_out(subject: &dyn Subject) {
    if !subject.has_optional_inputs() {
        return;
    }
    let tensor = |name| (name, DataType::Int32, &[1][..]);
    let mut spec = spec(&[tensor("A"), tensor("B")], &[tensor("OUT")]);
    spec.inputs[1].optional = true;
    let probe = probe(subject, Model::OptionalAddend, unbatched(spec));
    let a = input("A", DataType::Int32, &[1], int32(&[1]));
    let b = input("B", DataType::Int32, &[1], int32(&[2]));
    assert_eq!(only(probe.ask(&[a.clone(), b.clone()])).data.as_bytes(), int32(&[3]));
    assert_eq!(only(probe.ask(std::slice::from_ref(&a))).data.as_bytes(), int32(&[11]));
    assert_eq!(only(probe.ask(&[b, a])).data.as_bytes(), int32(&[3]));
}

pub fn only_wanted_outputs_come_back(subject: &dyn Subject) {
    let tensor = |name| (name, DataType::Int32, &[2][..]);
    let spec = spec(&[tensor("A"), tensor("B")], &[tensor("SUM"), tensor("DIFFERENCE")]);
    let inputs = |a: i32, rows: i64| {
        let values = |first| (first..).take(2 * rows as usize).collect::<Vec<i32>>();
        let b = vec![1; 2 * rows as usize];
        [
            input("A", DataType::Int32, &[rows, 2], int32(&values(a))),
            input("B", DataType::Int32, &[rows, 2], int32(&b)),
        ]
    };
    let alone = probe(subject, Model::SumAndDifference, spec.clone());
    let difference = alone.wait(alone.send(&inputs(5, 1), &["DIFFERENCE"])).expect("the engine answers");
    assert_eq!(difference.len(), 1);
    assert_eq!((difference[0].0, difference[0].1.data.as_bytes()), (1, &*int32(&[4, 5])));

    let joined = probe(subject, Model::SumAndDifference, patient(spec));
    let wanted: [&[&str]; 3] = [&["SUM"], &[], &["DIFFERENCE"]];
    let rows = [2, 2, 4];
    let keys = [0, 1, 2].map(|n| joined.send(&inputs(10 * n as i32, rows[n]), wanted[n]));
    for (n, key) in keys.into_iter().enumerate() {
        let got = joined.wait(key).expect("the engine answers");
        let positions: Vec<u16> = got.iter().map(|(position, _)| *position).collect();
        assert_eq!(positions, [&[0][..], &[0, 1], &[1]][n]);
        for (position, tensor) in got {
            let change = if position == 0 { 1 } else { -1 };
            let expected: Vec<i32> = (10 * n as i32 + change..).take(2 * rows[n] as usize).collect();
            assert_eq!(tensor.data.as_bytes(), int32(&expected));
        }
    }
}

fn small_numbers_only() -> ModelSpec {
    let tensor = |name| (name, DataType::Int64, &[1][..]);
    patient(spec(&[tensor("IN")], &[tensor("OUT")]))
}

pub fn an_engine_error_fails_the_request_that_caused_it_and_no_other(subject: &dyn Subject) {
    let probe = probe(subject, Model::SmallNumbersOnly, small_numbers_only());
    for round in 0..3 {
        for bad in [false, true] {
            let values = [3, 1, if bad { 1000 } else { round }, 7];
            let sent = values.map(|value| input("IN", DataType::Int64, &[2, 1], int64(&[value, 2])));
            let keys = sent.each_ref().map(|sent| probe.send(std::slice::from_ref(sent), &[]));
            for ((sent, key), value) in sent.iter().zip(keys).zip(values) {
                match probe.wait(key) {
                    Err(error) => {
                        assert_eq!(value, 1000, "an innocent request failed: {error}");
                        assert_eq!(error.kind, ErrorKind::EngineFailed);
                        assert!(!error.message.is_empty());
                    }
                    answer => {
                        assert_ne!(value, 1000, "the engine must refuse this number");
                        assert_same(sent, &only(answer));
                    }
                }
            }
        }
    }
    let statistics = probe.statistics();
    assert_eq!((statistics.success.count, statistics.fail.count), (3 * (4 + 3), 3));
    assert_eq!(statistics.failures(FailureReason::Backend), 3);
    assert_eq!(
        probe.executions(),
        (3 * (1 + 3), 3 * (8 + 6)),
        "each request that runs alone is an execution"
    );
}

pub fn requests_of_a_failed_batch_that_nobody_waits_for_do_not_run_again(subject: &dyn Subject) {
    struct Watched {
        engine: Arc<dyn Engine>,
        tickets: Mutex<Vec<Ticket>>,
        seen: Mutex<Vec<usize>>,
    }
    impl Engine for Watched {
        fn capability(&self) -> Capability {
            self.engine.capability()
        }

        fn execute(&self, slot: &mut Slot, batch: Batch) {
            lock(&self.seen).push(batch.len());
            self.engine.execute(slot, batch);
            self.cancel();
        }

        fn begin(&self, slot: SlotToken, batch: Batch) {
            lock(&self.seen).push(batch.len());
            self.engine.begin(slot, batch);
            self.cancel();
        }
    }
    impl Watched {
        fn cancel(&self) {
            for ticket in lock(&self.tickets).drain(..) {
                assert!(ticket.cancel(), "nothing is answered yet");
            }
        }
    }
    let spec = small_numbers_only();
    let engine = subject.engine(Model::SmallNumbersOnly, &spec);
    let watched = Arc::new(Watched { engine, tickets: Mutex::default(), seen: Mutex::default() });
    let probe = Probe::new(spec, watched.clone());
    let sent = [1000, 3, 4, 5].map(|value| input("IN", DataType::Int64, &[2, 1], int64(&[value, 2])));
    let mut held = lock(&watched.tickets);
    let keys = sent.each_ref().map(|sent| {
        let (key, ticket) = probe.submit(std::slice::from_ref(sent), &[]);
        if key % 2 == 1 {
            held.push(ticket);
        }
        key
    });
    drop(held);
    let kinds = keys.map(|key| probe.wait(key).err().map(|error| error.kind));
    let cancelled = Some(ErrorKind::Cancelled);
    assert_eq!(kinds, [Some(ErrorKind::EngineFailed), cancelled, None, cancelled]);
    assert_eq!(*lock(&watched.seen), [4, 1, 1], "only those run again that somebody waits for");
    assert_eq!(probe.statistics().failures(FailureReason::Canceled), 2);
}

pub fn a_panic_fails_its_batch_and_no_other(subject: &dyn Subject) {
    struct Bomb {
        engine: Arc<dyn Engine>,
        armed: AtomicBool,
    }
    impl Engine for Bomb {
        fn capability(&self) -> Capability {
            self.engine.capability()
        }

        fn execute(&self, slot: &mut Slot, mut batch: Batch) {
            self.go_off(slot, &mut batch);
            self.engine.execute(slot, batch);
        }

        fn begin(&self, mut slot: SlotToken, mut batch: Batch) {
            self.go_off(&mut slot, &mut batch);
            self.engine.begin(slot, batch);
        }
    }
    impl Bomb {
        fn go_off(&self, slot: &mut Slot, batch: &mut Batch) {
            if self.armed.swap(false, Ordering::Relaxed) {
                let _ = batch.gather(&mut slot.scratch);
                panic!("this panic is part of the test");
            }
        }
    }
    let spec = identity(DataType::Uint8, &[-1]);
    let engine = subject.engine(Model::Identity, &spec);
    let bomb = Arc::new(Bomb { engine, armed: AtomicBool::new(false) });
    let probe = Probe::new(spec, bomb.clone());
    for seed in 0..3 {
        let sent = some_input(DataType::Uint8, &[2, 3], seed);
        bomb.armed.store(true, Ordering::Relaxed);
        let error = probe.ask(std::slice::from_ref(&sent)).expect_err("a panic is an error to the client");
        assert_eq!(error.kind, ErrorKind::EngineFailed);
        assert_same(&sent, &probe.ask_one(&sent));
    }
}

pub fn outputs_may_depend_on_the_data_in_size(subject: &dyn Subject) {
    let spec = spec(&[("IN", DataType::Int32, &[-1])], &[("OUT", DataType::Int64, &[1, -1])]);
    let probe = probe(subject, Model::NonZero, unbatched(spec));
    let cases: [(&[i32], &[i64]); 4] =
        [(&[0, 5, 0, -1], &[1, 3]), (&[0, 0], &[]), (&[], &[]), (&[1, 1, 1], &[0, 1, 2])];
    for (values, expected) in cases {
        let sent = input("IN", DataType::Int32, &[values.len() as i64], int32(values));
        let got = probe.ask_one(&sent);
        assert_eq!(got.shape.as_slice(), [1, expected.len() as i64]);
        assert_eq!(got.data.as_bytes(), int64(expected));
    }
}

pub fn slots_run_side_by_side(subject: &dyn Subject) {
    const SLOTS: usize = 4;
    let tensor = |name| (name, DataType::Int32, &[64][..]);
    let mut spec = spec(&[tensor("A"), tensor("B")], &[tensor("SUM"), tensor("DIFFERENCE")]);
    spec.batching = None;
    spec.instances = SLOTS;
    let first = subject.engine(Model::SumAndDifference, &spec);
    let concurrent = first.capability().concurrent;
    let more = |_| {
        if concurrent { first.clone() } else { subject.engine(Model::SumAndDifference, &spec) }
    };
    let engines = (1..SLOTS).map(more).chain([first.clone()]).collect();
    let probe = Probe::with_slots(spec.clone(), engines);
    std::thread::scope(|scope| {
        for client in 0..SLOTS as i32 {
            let probe = &probe;
            scope.spawn(move || {
                for round in 0..200 {
                    let a: Vec<i32> = (0..64).map(|n| n * client + round).collect();
                    let b: Vec<i32> = (0..64).map(|n| n - round).collect();
                    let with = |name, values: &[i32]| input(name, DataType::Int32, &[1, 64], int32(values));
                    let got = probe.ask(&[with("A", &a), with("B", &b)]).expect("the engine answers");
                    let sum: Vec<i32> = a.iter().zip(&b).map(|(a, b)| a + b).collect();
                    let difference: Vec<i32> = a.iter().zip(&b).map(|(a, b)| a - b).collect();
                    assert_eq!(got[0].1.data.as_bytes(), int32(&sum));
                    assert_eq!(got[1].1.data.as_bytes(), int32(&difference));
                }
            });
        }
    });
}

/// What an engine says of itself, as far as a caller can see it.
pub fn the_capability_is_true(subject: &dyn Subject) {
    struct Watched {
        engine: Arc<dyn Engine>,
        runner: Mutex<Weak<Runner>>,
        /// By which thread it was called, and how many requests were unanswered when it returned.
        calls: Mutex<Vec<(ThreadId, usize)>>,
    }
    impl Engine for Watched {
        fn capability(&self) -> Capability {
            self.engine.capability()
        }

        fn execute(&self, slot: &mut Slot, batch: Batch) {
            self.engine.execute(slot, batch);
            let inside = lock(&self.runner).upgrade().map_or(0, |runner| runner.inside());
            lock(&self.calls).push((thread::current().id(), inside));
        }

        fn begin(&self, slot: SlotToken, batch: Batch) {
            self.engine.begin(slot, batch);
        }
    }
    let spec = identity(DataType::Int32, &[-1]);
    let engine = subject.engine(Model::Identity, &spec);
    let capability = engine.capability();
    let watched = Arc::new(Watched { engine, runner: Mutex::default(), calls: Mutex::default() });
    let probe = Probe::new(spec, watched.clone());
    *lock(&watched.runner) = Arc::downgrade(probe.runner());
    for seed in 0..3 {
        let key = probe.send(&[some_input(DataType::Int32, &[1, 4], seed)], &[]);
        let answered_by = probe.answered_by(key);
        if capability.keeps_slots {
            continue;
        }
        crate::until("the engine's return", || lock(&watched.calls).len() as u64 > seed);
        let (called_by, unanswered) = lock(&watched.calls)[seed as usize];
        assert_eq!(unanswered, 0, "an engine that answers later keeps its slots");
        assert!(!capability.inline || called_by == answered_by, "it computes on the calling thread");
    }
}

pub fn large_tensors_pass(subject: &dyn Subject) {
    let probe = probe(subject, Model::Identity, patient(identity(DataType::Fp32, &[-1])));
    let width = 1 << 19;
    let sent = [some_input(DataType::Fp32, &[3, width], 1), some_input(DataType::Fp32, &[5, width], 2)];
    let keys = sent.each_ref().map(|sent| probe.send(std::slice::from_ref(sent), &[]));
    for (sent, key) in sent.iter().zip(keys) {
        assert_same(sent, &only(probe.wait(key)));
    }
}

pub fn inputs_may_lie_unaligned(subject: &dyn Subject) {
    for datatype in taken(subject, DataType::ALL) {
        let probe = probe(subject, Model::Identity, identity(datatype, &[-1]));
        let sent = some_input(datatype, &[1, 9], 4);
        let length = sent.data.len();
        for offset in 0..8 {
            let mut body = vec![0; offset];
            body.extend_from_slice(sent.data.as_bytes());
            let data = Buffer::host(body).slice(offset..offset + length);
            let sent = Input { data, ..sent.clone() };
            assert_same(&sent, &probe.ask_one(&sent));
        }
    }
}

pub fn answers_do_not_share_memory_with_inputs(subject: &dyn Subject) {
    for datatype in taken(subject, [DataType::Fp32, DataType::Bytes]) {
        let tensor = ("X", datatype, &[-1][..]);
        for patience in [false, true] {
            let spec = spec(&[tensor], &[tensor]);
            let spec = if patience { patient(spec) } else { spec };
            let probe = probe(subject, Model::HandThrough, spec);
            // What the first answers show must not change when the next batches use the same memory.
            let rounds = (0..6).map(|seed| {
                let sent = [2, 6]
                    .map(|rows| Input { name: "X", ..some_input(datatype, &[rows, 40], seed + rows as u64) });
                let keys = sent.each_ref().map(|sent| probe.send(std::slice::from_ref(sent), &[]));
                let expected = sent.each_ref().map(|sent| sent.data.as_bytes().to_vec());
                drop(sent);
                (expected, keys.map(|key| only(probe.wait(key))))
            });
            for (expected, got) in rounds.collect::<Vec<_>>() {
                assert_eq!(expected, got.each_ref().map(|got| got.data.as_bytes().to_vec()));
            }
        }
    }
}

pub fn answers_outlive_the_engine(subject: &dyn Subject) {
    for datatype in taken(subject, [DataType::Fp32, DataType::Bytes]) {
        let probe = probe(subject, Model::Identity, identity(datatype, &[-1]));
        let sent = some_input(datatype, &[4, 1000], 9);
        let got = probe.ask_one(&sent);
        drop(probe);
        assert_same(&sent, &got);
    }
}
