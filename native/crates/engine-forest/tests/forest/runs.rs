//! A forest behind a runner.

use std::ops::Range;
use std::sync::{Arc, Mutex};

use kushi_core::{
    Batch, Batching, Bound, Buffer, Capability, DataType, Engine, ErrorKind, ModelSpec, Reply, Request,
    Shape, Slot, Tensor,
};
use kushi_engine_forest::{Answer, Forest, ForestEngine, ForestModel, ForestOptions};
use kushi_testkit::{echo_spec, tensor_spec};

use crate::asked::Asked;
use crate::written::{Place, checkpoint, small};

fn model(bytes: &[u8], contributions: bool, threads: usize) -> Arc<ForestModel> {
    let forest = Arc::new(Forest::read(bytes).expect("it is a forest"));
    let options = ForestOptions { answer: Answer::Values, contributions, threads };
    Arc::new(ForestModel::new(forest, options).expect("it is a model"))
}

fn spec(features: i64, most: usize) -> ModelSpec {
    ModelSpec {
        max_batch_size: most,
        inputs: vec![tensor_spec("input__0", DataType::Fp32, &[features])],
        outputs: vec![tensor_spec("output__0", DataType::Fp32, &[1])],
        inline: false,
        ..echo_spec()
    }
}

fn rows(values: &[[f32; 2]]) -> Vec<Tensor> {
    let bytes: Vec<u8> = values.iter().flatten().flat_map(|value| value.to_le_bytes()).collect();
    let shape = Shape::from_slice(&[values.len() as i64, 2]);
    vec![Tensor { datatype: DataType::Fp32, shape, data: Buffer::host(bytes) }]
}

fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes.chunks_exact(4).map(|bytes| f32::from_le_bytes(bytes.try_into().expect("four bytes"))).collect()
}

#[test]
fn requests_of_one_batch_get_their_own_rows_back() {
    let spec = spec(2, 64);
    let engine = ForestEngine::new(model(&small(), false, 1), &spec).expect("it fits");
    let asked = Asked::new(spec, Arc::new(engine));
    let all = [[0.0, -1.0], [0.5, -1.0], [1.0, 0.0], [f32::NAN, f32::NAN]];
    for (key, count) in [(0, 1), (1, 3), (2, 4)] {
        asked.ask(key, rows(&all[..count]));
    }
    for (key, count) in [(0, 1), (1, 3), (2, 4)] {
        let answer = floats(&asked.answer(key).expect("it is answered"));
        assert_eq!(answer, [11.0, 21.0, 22.0, 22.0][..count]);
    }
}

#[test]
fn an_input_of_another_width_is_refused() {
    let spec = spec(-1, 64);
    let engine = ForestEngine::new(model(&small(), false, 1), &spec).expect("it fits");
    let asked = Asked::new(spec, Arc::new(engine));
    let wide = Tensor {
        datatype: DataType::Fp32,
        shape: Shape::from_slice(&[1, 3]),
        data: Buffer::host(vec![0; 12]),
    };
    asked.ask(0, vec![wide]);
    let refused = asked.answer(0).expect_err("it has a value too many");
    assert_eq!(refused, "input 'input__0' has the shape [1, 3], expected [-1, 2]");
}

#[test]
fn contributions_are_the_way_from_the_average_to_the_answer() {
    let contributions = model(&small(), true, 1);
    let stop = std::sync::atomic::AtomicBool::new(false);
    let row: Vec<u8> = [0.0_f32, 1.0].iter().flat_map(|value| value.to_le_bytes()).collect();
    let mut room = contributions.room(1, 1).expect("there is memory");
    contributions.write(1, &row, &mut room, &stop).expect("it is explained");
    let found = floats(&room);
    // the average of the leaves of both trees is 16.5
    assert_eq!(found, [-5.0, 0.5, 16.5]);
}

/// Twenty thousand trees, so that a batch takes seconds.
#[test]
fn a_run_that_nobody_waits_for_is_ended() {
    let tree = vec![Place::Less(0, 0.5, 1, 2), Place::Leaf(1.0), Place::Leaf(2.0)];
    let bytes = checkpoint(2, &vec![tree; 20_000]);
    for threads in [1, 2] {
        let spec = spec(2, 1 << 20);
        let engine = ForestEngine::new(model(&bytes, false, threads), &spec).expect("it fits");
        let asked = Asked::new(spec, Arc::new(engine));
        let ticket = asked.ask(0, rows(&vec![[0.0, 0.0]; 1 << 19]));
        kushi_testkit::until("the run", || asked.runner.occupancy().running == 1);
        assert!(ticket.cancel());
        let ended = asked.letters.answer(0);
        assert_eq!(ended.error().map(|error| error.kind), Some(ErrorKind::Cancelled));
        asked.ask(1, rows(&[[0.0, 0.0]]));
        assert_eq!(floats(&asked.answer(1).expect("it is answered")), [20_000.0]);
    }
}

/// From, to.
type Rows = Vec<(usize, usize)>;

/// The engine, and of each batch the rows that want each output.
struct Watched(ForestEngine, Mutex<Vec<[Rows; 2]>>);

impl Engine for Watched {
    fn capability(&self) -> Capability {
        self.0.capability()
    }

    fn execute(&self, slot: &mut Slot, batch: Batch) {
        let ends = |rows: &Range<usize>| (rows.start, rows.end);
        let wanted = [0, 1].map(|output| batch.rows_that_want(output).iter().map(ends).collect());
        self.1.lock().expect("nobody panics").push(wanted);
        self.0.execute(slot, batch);
    }
}

#[test]
fn contributions_are_computed_for_the_rows_that_want_them() {
    let mut spec = spec(2, 8);
    spec.outputs.push(tensor_spec("treeshap_output", DataType::Fp32, &[3]));
    spec.batching = Some(Batching {
        preferred_batch_sizes: vec![8],
        max_queue_delay_us: 600_000_000,
        preserve_ordering: false,
    });
    let engine = ForestEngine::new(model(&small(), true, 1), &spec).expect("it fits");
    let engine = Arc::new(Watched(engine, Mutex::default()));
    let asked = Asked::new(spec, engine.clone());
    let row = [0.0, 1.0];
    for (key, (count, wanted)) in [(2, &[0_u16][..]), (1, &[1]), (3, &[]), (2, &[0])].into_iter().enumerate()
    {
        let inputs = rows(&vec![row; count]).into_iter().map(Some).collect();
        let bound = Bound { inputs, wanted: wanted.iter().copied().collect(), rows: count };
        let request = Request::new(bound, asked.runner.now(), Reply::new(asked.letters.clone(), key as u64));
        asked.runner.submit(request).map_err(|(error, _)| error).expect("it is admitted");
    }
    for (key, output, expected) in
        [(0, 0, &[12.0; 2][..]), (1, 1, &[-5.0, 0.5, 16.5]), (2, 0, &[12.0; 3]), (3, 0, &[12.0; 2])]
    {
        assert_eq!(floats(asked.letters.answer(key).output(output)), expected);
    }
    let wanted = [vec![(0, 2), (3, 8)], vec![(2, 6)]];
    assert_eq!(*engine.1.lock().expect("nobody panics"), [wanted]);
}
