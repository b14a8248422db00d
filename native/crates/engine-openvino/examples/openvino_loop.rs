//! How many runs per second a network gets: in a plain loop over OpenVINO's C API, and behind a runner of the core.
//!
//!     openvino_loop LIBRARY MODEL INSTANCES ASKERS ROWS SECONDS PAIRS
//!
//! ROWS may be several numbers with commas between them: the loop takes them in turn, the runner the first.
//! One line for each pair: runs per second of the loop, and through the runner. There are as many threads that run
//! the loop as instances. Those that ask the runner run its short batches by themselves, as io threads do.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use kushi_core::{
    Admission, Bound, Buffer, Engine, ModelSpec, Reply, Request, Runner, RunnerOptions, Shape, Tensor,
    TensorInfo, Wanted,
};
use kushi_engine_openvino::{CompileOptions, CompiledModel, OpenVinoEngine, OpenVinoModel};
use kushi_testkit::{Letterbox, drive, echo_spec, tensor_spec};

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let number = |index: usize| arguments[index].parse::<f64>().expect("a number");
    kushi_engine_openvino::init(Path::new(&arguments[1])).expect("openvino starts");
    let network = OpenVinoModel::read(Path::new(&arguments[2]), None).expect("the network is read");
    let (instances, askers) = (number(3) as usize, number(4) as u64);
    let all_rows: Vec<i64> = arguments[5].split(',').map(|rows| rows.parse().expect("a number")).collect();
    let rows = all_rows[0];
    let seconds = Duration::from_secs_f64(number(6));
    let inputs: Vec<Tensor> = network.inputs().iter().map(|input| zeros(input, rows)).collect();
    let spec = spec(&network, instances, rows as usize);
    // As the control plane compiles them: a thread that runs a network computes it, and each instance has one.
    let engines: Vec<Arc<OpenVinoEngine>> = (0..instances)
        .map(|_| Arc::new(OpenVinoEngine::new(compile(&network), &spec).expect("it fits")))
        .collect();
    let loops: Vec<Arc<CompiledModel>> = (0..instances).map(|_| compile(&network)).collect();
    for pair in 0..number(7) as usize {
        let (raw, served) = if pair % 2 == 0 {
            let raw = in_loops(&loops, &network, &all_rows, seconds);
            (raw, through_runner(&spec, &engines, askers, &inputs, seconds))
        } else {
            let served = through_runner(&spec, &engines, askers, &inputs, seconds);
            (in_loops(&loops, &network, &all_rows, seconds), served)
        };
        println!("{raw:.3} {served:.3}");
    }
}

fn compile(network: &OpenVinoModel) -> Arc<CompiledModel> {
    let property = |key: &str, value: &str| (key.to_owned(), value.to_owned());
    let options = CompileOptions {
        device: "CPU".into(),
        properties: vec![
            property("ENABLE_CPU_PINNING", "NO"),
            property("INFERENCE_NUM_THREADS", "1"),
            property("INFERENCE_PRECISION_HINT", "f32"),
            property("NUM_STREAMS", "0"),
        ],
        requests: 1,
        runs_on_caller: true,
        fixed_rows: None,
    };
    Arc::new(network.compile(&options).expect("the network is compiled"))
}

fn dims(tensor: &TensorInfo) -> &[i64] {
    &tensor.shape.as_deref().expect("the number of dimensions is known")[1..]
}

fn zeros(input: &TensorInfo, rows: i64) -> Tensor {
    let shape: Shape = std::iter::once(rows).chain(dims(input).iter().copied()).collect();
    let count = shape.iter().product::<i64>() as usize;
    let size = input.datatype.size().expect("it has no strings");
    Tensor { datatype: input.datatype, shape, data: Buffer::host(vec![0; count * size]) }
}

fn spec(network: &OpenVinoModel, instances: usize, rows: usize) -> ModelSpec {
    let tensors = |list: &[TensorInfo]| {
        list.iter().map(|tensor| tensor_spec(&tensor.name, tensor.datatype, dims(tensor))).collect()
    };
    ModelSpec {
        name: "looped".into(),
        max_batch_size: rows,
        inputs: tensors(network.inputs()),
        outputs: tensors(network.outputs()),
        instances,
        ..echo_spec()
    }
}

/// Runs per second of all loops together.
fn in_loops(loops: &[Arc<CompiledModel>], network: &OpenVinoModel, rows: &[i64], time: Duration) -> f64 {
    let shapes = rows.iter().map(|&rows| {
        let inputs = network.inputs().iter();
        inputs.map(|input| (input.name.clone(), [&[rows], dims(input)].concat())).collect()
    });
    let shapes: Vec<HashMap<String, Vec<i64>>> = shapes.collect();
    let runs = AtomicUsize::new(0);
    let begun = Instant::now();
    thread::scope(|scope| {
        for model in loops {
            scope.spawn(|| {
                let count = model.run_for(&shapes, time).expect("it runs");
                runs.fetch_add(count, Ordering::Relaxed);
            });
        }
    });
    runs.into_inner() as f64 / begun.elapsed().as_secs_f64()
}

/// The same through a runner that has the engines.
fn through_runner(
    spec: &ModelSpec,
    engines: &[Arc<OpenVinoEngine>],
    askers: u64,
    inputs: &[Tensor],
    time: Duration,
) -> f64 {
    let engines: Vec<Arc<dyn Engine>> =
        engines.iter().map(|engine| engine.clone() as Arc<dyn Engine>).collect();
    let runner = Runner::start(spec.clone(), engines, RunnerOptions::default()).expect("it starts");
    let letters = Arc::new(Letterbox::default());
    let (runs, over) = (AtomicUsize::new(0), AtomicBool::new(false));
    let begun = Instant::now();
    thread::scope(|scope| {
        for asker in 0..askers {
            let (runner, letters, runs, over) = (&runner, &letters, &runs, &over);
            scope.spawn(move || {
                while !over.load(Ordering::Relaxed) {
                    ask(runner, letters, asker, inputs);
                    assert!(letters.answer(asker).error().is_none(), "a run failed");
                    runs.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        thread::sleep(time);
        over.store(true, Ordering::Relaxed);
    });
    let per_second = runs.into_inner() as f64 / begun.elapsed().as_secs_f64();
    runner.retire(Duration::from_secs(10));
    per_second
}

fn ask(runner: &Arc<Runner>, letters: &Arc<Letterbox>, key: u64, inputs: &[Tensor]) {
    let rows = inputs[0].shape[0] as usize;
    let bound = Bound { inputs: inputs.iter().cloned().map(Some).collect(), wanted: Wanted::new(), rows };
    let request = Request::new(bound, runner.now(), Reply::new(letters.clone(), key));
    match runner.submit(request) {
        Ok((_, Admission::Lead(lease))) => _ = drive(lease),
        Ok((_, Admission::Queued)) => (),
        Err((error, _)) => panic!("{error}"),
    }
}
