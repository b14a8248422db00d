//! The suite that every engine passes, on OpenVINO.

use std::sync::Arc;

use kushi_core::{DataType, Engine, ModelSpec, TensorSpec};
use kushi_engine_openvino::OpenVinoEngine;
use kushi_testkit::conformance::{Model, Subject};

use crate::models::{Directory, Graph, Message, element, tensor};
use crate::{compile, read};

struct OpenVino;

impl Subject for OpenVino {
    fn engine(&self, model: Model, spec: &ModelSpec) -> Arc<dyn Engine> {
        let directory = Directory::new();
        let network = read(&declare(graph(model), spec).save(&directory));
        let engine = OpenVinoEngine::new(compile(&network, spec.instances), spec);
        Arc::new(engine.expect("the specification fits the network"))
    }

    fn takes(&self, datatype: DataType) -> bool {
        // On a CPU it computes in 32 bits, and only operators that are made for strings leave the process alive.
        !matches!(datatype, DataType::Int64 | DataType::Uint64 | DataType::Bytes)
    }

    fn has_optional_inputs(&self) -> bool {
        false
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
        Model::OptionalAddend => unreachable!("its inputs are never optional"),
        // OpenVINO takes any index. It refuses to add tensors of other sizes: here one that has an element more for
        // each number that is too large.
        Model::SmallNumbersOnly => {
            let number = |graph: Graph, name, dims: &[i64], value: i64| {
                let count = dims.iter().product::<i64>() as usize;
                graph.initializer(name, 7, dims, &value.to_le_bytes().repeat(count))
            };
            let graph = graph
                .node("GreaterOrEqual", &["IN", "EIGHT"], &["IS_LARGE"])
                .node("Where", &["IS_LARGE", "ONE", "ZERO"], &["LARGE"])
                .node("ReduceSum", &["LARGE"], &["TOTAL"])
                .node("Squeeze", &["TOTAL"], &["COUNT"])
                .node("Add", &["COUNT", "ONE"], &["LENGTH"])
                .node("Range", &["ZERO", "LENGTH", "ONE"], &["NUMBERS"])
                .node("Add", &["NUMBERS", "WIDE"], &["SUMS"])
                .node("ReduceSum", &["SUMS"], &["SUM"])
                .node("Mul", &["SUM", "ZERO"], &["NOTHING"])
                .node("Add", &["IN", "NOTHING"], &["OUT"]);
            let graph = number(number(graph, "EIGHT", &[], 8), "ONE", &[], 1);
            number(number(graph, "ZERO", &[], 0), "WIDE", &[100], 0)
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

kushi_testkit::conformance_tests!(OpenVino);

mod on_kept_slots {
    kushi_testkit::conformance_tests!(kushi_testkit::conformance::Aside(super::OpenVino));
}
