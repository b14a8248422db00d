//! The suite that every engine passes, on ONNX Runtime.

use std::sync::Arc;

use kushi_core::{Engine, ModelSpec, TensorSpec};
use kushi_engine_onnx::{OnnxEngine, OnnxSession, SessionOptions};
use kushi_testkit::conformance::{Model, Subject};

use crate::models::{Directory, Graph, Message, element, tensor};

struct OnnxRuntime;

impl Subject for OnnxRuntime {
    fn engine(&self, model: Model, spec: &ModelSpec) -> Arc<dyn Engine> {
        crate::init();
        let directory = Directory::new();
        let path = declare(graph(model), spec).save(&directory);
        let session = OnnxSession::load(&path, &SessionOptions::default()).expect("the model loads");
        Arc::new(OnnxEngine::new(Arc::new(session), spec).expect("the specification fits the model"))
    }
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

fn declare(graph: Graph, spec: &ModelSpec) -> Graph {
    let declared = |tensor_spec: &TensorSpec| -> Message {
        let batch = (spec.max_batch_size > 0).then_some(-1);
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
