//! Reading networks, giving them shapes, and what an engine says about a configuration that does not fit.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use kushi_core::{Buffer, DataType, Engine, ErrorKind, ModelSpec, Shape, Tensor, TensorInfo};
use kushi_engine_openvino::{FixedRows, OpenVinoEngine, OpenVinoModel};
use kushi_testkit::{echo_spec, int32, tensor_spec};

use crate::asked::Asked;
use crate::models::{Directory, Graph, element, tensor};
use crate::{compile, options, read};

fn sum(dims: &[i64]) -> Graph {
    let vector = tensor(element(DataType::Int32), dims);
    Graph::default()
        .node("Add", &["A", "B"], &["SUM"])
        .input("A", &vector)
        .input("B", &vector)
        .output("SUM", &vector)
}

fn network(dims: &[i64]) -> OpenVinoModel {
    read(&sum(dims).save(&Directory::new()))
}

fn spec(inputs: &[(&str, DataType)], outputs: &[(&str, DataType)]) -> ModelSpec {
    let tensors =
        |list: &[(&str, DataType)]| list.iter().map(|(name, of)| tensor_spec(name, *of, &[-1])).collect();
    ModelSpec { max_batch_size: 0, inputs: tensors(inputs), outputs: tensors(outputs), ..echo_spec() }
}

#[test]
fn says_what_the_file_declares() {
    let network = network(&[-1, 3]);
    let info =
        |name: &str| TensorInfo { name: name.into(), datatype: DataType::Int32, shape: Some(vec![-1, 3]) };
    assert_eq!(network.inputs(), [info("A"), info("B")]);
    assert_eq!(network.outputs(), [info("SUM")]);
}

#[test]
fn shapes_follow_what_they_are_told() {
    let mut network = network(&[1, 3]);
    let open = |name: &str| (name.to_owned(), vec![-1, 3]);
    network.reshape(&[open("A"), open("B")]).expect("the shapes fit");
    assert_eq!(network.outputs()[0].shape, Some(vec![-1, 3]));
    let error = network.reshape(&[("A".into(), vec![2, 5])]).expect_err("the shapes do not fit");
    assert_eq!(error.kind, ErrorKind::ConfigInvalid);
    assert!(error.message.contains("cannot have the shapes"), "{error}");
    assert_eq!(network.outputs()[0].shape, Some(vec![-1, 3]), "it stays as it was");
    let error = network.reshape(&[("C".into(), vec![1])]).expect_err("there is no such input");
    assert!(error.message.ends_with("has no input 'C'"), "{error}");
}

#[test]
fn what_is_no_network_is_refused_with_the_file_in_one_line() {
    crate::init();
    let directory = Directory::new();
    for (file, content) in [("model.xml", "no network"), ("model.onnx", "neither"), ("model.txt", "text")] {
        let path = directory.join(file);
        std::fs::write(&path, content).expect("the file is written");
        let error = OpenVinoModel::read(&path, None).err().expect("it is no network");
        assert_eq!(error.kind, ErrorKind::ConfigInvalid);
        assert!(
            error.message.starts_with(&format!("openvino model '{}' cannot be loaded: ", path.display())),
            "{error}"
        );
        assert!(!error.message.contains('\n'), "{error}");
    }
    assert!(OpenVinoModel::read(Path::new("/no/such/model.xml"), None).is_err());
}

#[test]
fn names_what_does_not_fit() {
    let compiled = compile(&network(&[-1]), 2);
    let (int, float) = (DataType::Int32, DataType::Fp32);
    for (spec, text) in [
        (spec(&[("A", int), ("D", int)], &[]), "input 'D' is not in the model, which has 'A', 'B'"),
        (
            spec(&[("A", int), ("B", float)], &[]),
            "input 'B' has data-type INT32 in the model, the configuration says FP32",
        ),
        (spec(&[("A", int)], &[]), "the model needs input 'B', which the configuration lacks"),
        (spec(&[("A", int), ("B", int)], &[("A", int)]), "output 'A' is not in the model, which has 'SUM'"),
        (
            ModelSpec { instances: 3, ..spec(&[("A", int), ("B", int)], &[("SUM", int)]) },
            "the model was compiled for 2 instances, the configuration has 3",
        ),
    ] {
        let error =
            OpenVinoEngine::new(compiled.clone(), &spec).err().expect("the configuration does not fit");
        assert_eq!(error.kind, ErrorKind::ConfigInvalid);
        assert!(error.message.contains(text), "'{error}' has no '{text}'");
    }
}

#[test]
fn a_device_that_is_not_there_is_refused() {
    let network = network(&[-1]);
    let mut options = options(1);
    options.device = "NONE".into();
    let error = network.compile(&options).err().expect("there is no such device");
    assert!(error.message.contains("cannot be compiled for device NONE: "), "{error}");
    assert!(kushi_engine_openvino::devices().expect("they are listed").contains(&"CPU".to_owned()));
}

#[test]
fn computes_in_the_precision_that_is_asked_for() {
    let compiled = compile(&network(&[-1]), 2);
    assert_eq!(compiled.property("INFERENCE_PRECISION_HINT").as_deref(), Some("f32"));
    assert_eq!(compiled.property("NUM_STREAMS").as_deref(), Some("2"));
    assert_eq!(compiled.property("NO_SUCH_PROPERTY"), None);
}

#[test]
fn a_run_takes_a_time() {
    let compiled = compile(&network(&[-1, 3]), 1);
    let shape = |rows| ["A", "B"].map(|name| (name.to_owned(), vec![rows, 3])).into();
    let shapes: HashMap<String, Vec<i64>> = shape(4);
    assert!(compiled.measure(&shapes, 3).expect("it runs").as_nanos() > 0);
    let shapes = [("A".to_owned(), vec![1, 3]), ("B".to_owned(), vec![2, 4])].into();
    assert_eq!(compiled.measure(&shapes, 3).expect_err("it does not").kind, ErrorKind::EngineFailed);
    assert!(compiled.measure(&shape(2), 3).is_ok(), "and runs again");
}

#[test]
fn an_integer_that_does_not_fit_is_refused_and_computes_nothing() {
    let directory = Directory::new();
    let pair = tensor(element(DataType::Int64), &[-1]);
    let network = Graph::default().node("Add", &["A", "A"], &["SUM"]).input("A", &pair).output("SUM", &pair);
    let spec = spec(&[("A", DataType::Int64)], &[("SUM", DataType::Int64)]);
    let engine = OpenVinoEngine::new(compile(&read(&network.save(&directory)), 1), &spec).expect("it fits");
    let asked = Asked::new(spec, Arc::new(engine));
    let ask = |key, values: &[i64]| {
        let data = Buffer::host(values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<u8>>());
        let shape = Shape::from_slice(&[values.len() as i64]);
        asked.ask(key, vec![Tensor { datatype: DataType::Int64, shape, data }]);
        asked.answer(key)
    };
    let doubled = |value: i64| Ok((2 * value).to_le_bytes().to_vec());
    assert_eq!(ask(0, &[-7]), doubled(-7));
    assert_eq!(ask(1, &[1 << 29]), doubled(1 << 29));
    let text = "input 'A' has the value 2147483648, and OpenVINO computes INT64 in 32 bits on a CPU";
    assert_eq!(ask(2, &[1, 1 << 31, 1 << 40]), Err(text.to_owned()));
    assert_eq!(ask(3, &[3]), doubled(3));
}

/// The sums of each row with itself, by a network of four rows and no others.
fn fixed(fixed_rows: FixedRows, rows: i64) -> Result<Vec<u8>, String> {
    let mut network = network(&[1, 2]);
    let four = |name: &str| (name.to_owned(), vec![4, 2]);
    network.reshape(&[four("A"), four("B")]).expect("the shapes fit");
    let mut options = options(1);
    options.fixed_rows = Some(fixed_rows);
    let compiled = Arc::new(network.compile(&options).expect("it is compiled"));
    let tensor = |name| tensor_spec(name, DataType::Int32, &[2]);
    let spec = ModelSpec {
        max_batch_size: 4,
        inputs: vec![tensor("A"), tensor("B")],
        outputs: vec![tensor("SUM")],
        inline: false,
        ..echo_spec()
    };
    let engine: Arc<dyn Engine> = Arc::new(OpenVinoEngine::new(compiled, &spec).expect("it fits"));
    let asked = Asked::new(spec, engine);
    let values = int32(&[rows, 2], 0..2 * rows as i32);
    asked.ask(0, vec![values.clone(), values]);
    asked.answer(0)
}

#[test]
fn rows_are_added_where_a_network_takes_so_many_and_no_others() {
    for rows in 1..=4 {
        let doubled = int32(&[rows, 2], (0..2 * rows as i32).map(|value| 2 * value));
        assert_eq!(fixed(FixedRows::Pad, rows), Ok(doubled.data.as_bytes().to_vec()));
    }
    assert_eq!(fixed(FixedRows::Refuse, 4), fixed(FixedRows::Pad, 4));
    let text = fixed(FixedRows::Refuse, 3).expect_err("three are too few");
    assert!(text.starts_with("expected requests with batch size '4', got '3'... this error can be avoided"));
}
