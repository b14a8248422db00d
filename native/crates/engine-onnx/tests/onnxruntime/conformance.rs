//! The suite that every engine passes, on ONNX Runtime.

use std::collections::BTreeSet;
use std::sync::Arc;

use kushi_core::{Engine, ModelSpec, TensorSpec};
use kushi_engine_onnx::{OnnxEngine, OnnxSession, SessionOptions, Sessions};
use kushi_testkit::conformance::{Model, Subject};

use crate::models::{Directory, Graph, Message, element, tensor};

struct OnnxRuntime;

impl Subject for OnnxRuntime {
    fn engine(&self, model: Model, spec: &ModelSpec) -> Arc<dyn Engine> {
        Arc::new(OnnxEngine::new(session(model, spec, -1), spec).expect("the specification fits the model"))
    }
}

/// Sessions that take batches of one size each, and no other.
struct OfRows;

impl Subject for OfRows {
    fn engine(&self, model: Model, spec: &ModelSpec) -> Arc<dyn Engine> {
        let most = spec.max_batch_size;
        if most == 0 {
            return OnnxRuntime.engine(model, spec);
        }
        let sizes = [1, 2, 4, most].into_iter().filter(|size| *size <= most).collect::<BTreeSet<_>>();
        let sessions = sizes.into_iter().map(|rows| (rows, session(model, spec, rows as i64))).collect();
        let engine = OnnxEngine::new(Sessions::OfRows(sessions), spec);
        Arc::new(engine.expect("the specification fits the model"))
    }
}

/// -1: of any number of rows.
fn session(model: Model, spec: &ModelSpec, rows: i64) -> Arc<OnnxSession> {
    crate::init();
    let directory = Directory::new();
    let path = declare(graph(model), spec, rows).save(&directory);
    Arc::new(OnnxSession::load(&path, &SessionOptions::default()).expect("the model loads"))
}

fn graph(model: Model) -> Graph {
    let graph = Graph::default();
    match model {
        Model::Identity => graph.node("Identity", &["IN"], &["OUT"]),
        Model::HandThrough => graph,
        Model::SumAndDifference => {
            graph.node("Add", &["A", "B"], &["SUM"]).node("Sub", &["A", "B"], &["DIFFERENCE"])
        }
        Model::OptionalAddend => {
            graph.node("Add", &["A", "B"], &["OUT"]).initializer("B", 6, &[1], &10_i32.to_le_bytes())
        }
        Model::SmallNumbersOnly => {
            let table: Vec<u8> = (0..8_i64).flat_map(i64::to_le_bytes).collect();
            graph.node("Gather", &["TABLE", "IN"], &["OUT"]).initializer("TABLE", 7, &[8], &table)
        }
        Model::NonZero => graph.node("NonZero", &["IN"], &["OUT"]),
    }
}

fn declare(graph: Graph, spec: &ModelSpec, rows: i64) -> Graph {
    let declared = |tensor_spec: &TensorSpec| -> Message {
        let batch = (spec.max_batch_size > 0).then_some(rows);
        let dims = tensor_spec.engine_dims();
        let dims: Vec<i64> = batch.into_iter().chain(dims.iter().copied()).collect();
        tensor(element(tensor_spec.datatype), &dims)
    };
    let graph = spec.inputs.iter().fold(graph, |graph, input| graph.input(&input.name, &declared(input)));
    spec.outputs.iter().fold(graph, |graph, output| graph.output(&output.name, &declared(output)))
}

kushi_testkit::conformance_tests!(OnnxRuntime);

mod on_kept_slots {
    kushi_testkit::conformance_tests!(kushi_testkit::conformance::Aside(super::OnnxRuntime));
}

mod in_sizes {
    kushi_testkit::conformance_tests!(super::OfRows);
}
