//! What an engine says about a configuration that does not fit its model.

use std::sync::Arc;

use kushi_core::{DataType, Engine, ErrorKind, ModelSpec};
use kushi_engine_onnx::{OnnxEngine, OnnxSession, SessionOptions};
use kushi_testkit::{echo_spec, tensor_spec};

use crate::models::{Directory, Graph, element, tensor};

fn session(options: &SessionOptions) -> Arc<OnnxSession> {
    crate::init();
    let vector = tensor(element(DataType::Int32), &[-1]);
    let graph = Graph::default()
        .node("Add", &["A", "B"], &["SUM"])
        .node("Add", &["SUM", "C"], &["TOTAL"])
        .input("A", &vector)
        .input("B", &vector)
        .input("C", &vector)
        .output("SUM", &vector)
        .output("TOTAL", &vector)
        .initializer("C", element(DataType::Int32), &[1], &[1, 0, 0, 0]);
    Arc::new(OnnxSession::load(&graph.save(&Directory::new()), options).expect("the model loads"))
}

fn spec(inputs: &[(&str, DataType)], outputs: &[(&str, DataType)]) -> ModelSpec {
    let tensors =
        |list: &[(&str, DataType)]| list.iter().map(|(name, of)| tensor_spec(name, *of, &[-1])).collect();
    ModelSpec { max_batch_size: 0, inputs: tensors(inputs), outputs: tensors(outputs), ..echo_spec() }
}

#[test]
fn takes_names_in_any_order_and_outputs_in_part() {
    let session = session(&SessionOptions::default());
    let int = DataType::Int32;
    for spec in [
        spec(&[("A", int), ("B", int)], &[("SUM", int), ("TOTAL", int)]),
        spec(&[("C", int), ("B", int), ("A", int)], &[("TOTAL", int)]),
    ] {
        assert!(OnnxEngine::new(session.clone(), &spec).is_ok());
    }
}

#[test]
fn names_what_does_not_fit() {
    let session = session(&SessionOptions::default());
    let (int, float) = (DataType::Int32, DataType::Fp32);
    for (spec, text) in [
        (spec(&[("A", int), ("D", int)], &[]), "input 'D' is not in the model, which has 'A', 'B', 'C'"),
        (
            spec(&[("A", int), ("B", float)], &[]),
            "input 'B' has data-type INT32 in the model, the configuration says FP32",
        ),
        (spec(&[("A", int)], &[]), "the model needs input 'B', which the configuration lacks"),
        (
            spec(&[("A", int), ("B", int)], &[("A", int)]),
            "output 'A' is not in the model, which has 'SUM', 'TOTAL'",
        ),
        (spec(&[("A", int), ("B", int)], &[("SUM", float)]), "output 'SUM' has data-type INT32 in the model"),
    ] {
        let error = OnnxEngine::new(session.clone(), &spec).err().expect("the configuration does not fit");
        assert_eq!(error.kind, ErrorKind::ConfigInvalid);
        assert!(error.message.starts_with("model 'echo': "), "{error}");
        assert!(error.message.contains(text), "'{error}' has no '{text}'");
    }
}

#[test]
fn may_run_inline_on_one_thread_only() {
    let spec = spec(&[("A", DataType::Int32), ("B", DataType::Int32)], &[("SUM", DataType::Int32)]);
    let inline = |intra_op_threads, parallel| {
        let options = SessionOptions { intra_op_threads, parallel, ..SessionOptions::default() };
        let engine = OnnxEngine::new(session(&options), &spec).expect("the configuration fits");
        assert!(engine.capability().concurrent);
        engine.capability().inline
    };
    assert!(inline(1, false));
    assert!(!inline(2, false));
    assert!(!inline(0, false));
    assert!(!inline(1, true));
}
