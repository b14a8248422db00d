//! Loading and looking into model files.

use std::collections::HashMap;
use std::path::Path;

use kushi_core::{DataType, Error, ErrorKind, TensorInfo};
use kushi_engine_onnx::{OnnxSession, SessionOptions};

use crate::models::{Directory, Graph, sequence, tensor, tensor_of_any_rank};

const FLOAT: i64 = 1;
const INT64: i64 = 7;
const FLOAT8: i64 = 17;

fn load(path: &Path) -> Result<OnnxSession, Error> {
    load_with(path, &SessionOptions::default())
}

fn load_graph(graph: Graph) -> Result<OnnxSession, Error> {
    load(&graph.save(&Directory::new()))
}

fn load_with(path: &Path, options: &SessionOptions) -> Result<OnnxSession, Error> {
    crate::init();
    OnnxSession::load(path, options)
}

fn assert_refused(path: &Path, texts: &[&str]) {
    let error = load(path).err().expect("the model must not load");
    assert_eq!(error.kind, ErrorKind::ConfigInvalid);
    for text in texts.iter().copied().chain([&*path.to_string_lossy()]) {
        assert!(error.message.contains(text), "'{}' has no '{text}'", error.message);
    }
}

fn shapes(list: &[(&str, &[i64])]) -> HashMap<String, Vec<i64>> {
    list.iter().map(|(name, shape)| ((*name).to_owned(), shape.to_vec())).collect()
}

fn matrix_product() -> Graph {
    let weights: Vec<u8> = (0..12).flat_map(|n| (n as f32).to_le_bytes()).collect();
    Graph::default()
        .node("MatMul", &["X", "W"], &["Y"])
        .input("X", &tensor(FLOAT, &[-1, 3]))
        .output("Y", &tensor(FLOAT, &[-1, 4]))
        .initializer("W", FLOAT, &[3, 4], &weights)
}

#[test]
fn describes_inputs_and_outputs() {
    let graph = Graph::default()
        .node("Add", &["A", "B"], &["C"])
        .node("Shape", &["C"], &["S"])
        .input("A", &tensor(FLOAT, &[-1, 3]))
        .input("B", &tensor(FLOAT, &[]))
        .output("C", &tensor(FLOAT, &[-1, 3]))
        .output("S", &tensor(INT64, &[2]))
        .initializer("B", FLOAT, &[], &[0; 4]);
    let session = load_graph(graph).expect("the model loads");
    let info = |name: &str, datatype, shape: &[i64]| TensorInfo {
        name: name.into(),
        datatype,
        shape: Some(shape.into()),
    };
    assert_eq!(session.inputs(), [info("A", DataType::Fp32, &[-1, 3])]);
    assert_eq!(session.outputs(), [info("C", DataType::Fp32, &[-1, 3]), info("S", DataType::Int64, &[2])]);
    assert_eq!(session.defaulted_inputs(), [info("B", DataType::Fp32, &[])]);
}

#[test]
fn a_tensor_of_unknown_rank_is_no_scalar() {
    let graph = Graph::default()
        .node("Identity", &["X"], &["Y"])
        .node("Identity", &["N"], &["M"])
        .input("X", &tensor_of_any_rank(FLOAT))
        .input("N", &tensor(FLOAT, &[]))
        .output("Y", &tensor_of_any_rank(FLOAT))
        .output("M", &tensor(FLOAT, &[]));
    let session = load_graph(graph).expect("the model loads");
    let shapes =
        |tensors: &[TensorInfo]| tensors.iter().map(|tensor| tensor.shape.clone()).collect::<Vec<_>>();
    assert_eq!(shapes(session.inputs()), [None, Some(vec![])]);
    assert_eq!(shapes(session.outputs()), [None, Some(vec![])]);
}

#[test]
fn finds_external_weights_beside_the_model() {
    let directory = Directory::new();
    let graph = || {
        Graph::default()
            .node("Add", &["X", "W"], &["Y"])
            .input("X", &tensor(FLOAT, &[2]))
            .output("Y", &tensor(FLOAT, &[2]))
            .external_initializer("W", FLOAT, &[2], "weights.bin")
    };
    let path = directory.join("model.onnx");
    std::fs::write(&path, graph().encode()).expect("the model is written");
    assert_refused(&path, &["weights.bin"]);
    std::fs::write(directory.join("weights.bin"), [0; 8]).expect("the weights are written");
    let session = load(&path).expect("the model loads");
    session.measure(&shapes(&[("X", &[2])]), 1).expect("the model runs");
}

#[test]
fn weights_are_never_read_from_beyond_the_directory_of_the_model() {
    let (directory, elsewhere) = (Directory::new(), Directory::new());
    let secret = elsewhere.join("secret.bin");
    std::fs::write(&secret, [0; 8]).expect("the file is written");
    std::fs::write(directory.join("inside.bin"), [0; 8]).expect("the file is written");
    let link = |target: &Path, name: &str| {
        std::os::unix::fs::symlink(target, directory.join(name)).expect("the link is made");
    };
    link(&secret, "file.bin");
    link(&elsewhere, "folder");
    link(Path::new("inside.bin"), "again.bin");
    let name = elsewhere.file_name().and_then(|name| name.to_str()).expect("a name");
    let path = directory.join("model.onnx");
    let write = |location: &str| {
        let graph = Graph::default()
            .node("Add", &["X", "W"], &["Y"])
            .input("X", &tensor(FLOAT, &[2]))
            .output("Y", &tensor(FLOAT, &[2]))
            .external_initializer("W", FLOAT, &[2], location);
        std::fs::write(&path, graph.encode()).expect("the model is written");
    };
    for inside in ["inside.bin", "./inside.bin", "again.bin"] {
        write(inside);
        load(&path).expect("the weights are beside the model");
    }
    let absolute = secret.to_str().expect("a path of text");
    for outside in [&format!("../{name}/secret.bin"), absolute, "file.bin", "folder/secret.bin"] {
        write(outside);
        assert_refused(&path, &["xternal data"]);
    }
}

#[test]
fn names_a_file_that_does_not_load() {
    let directory = Directory::new();
    assert_refused(&directory.join("missing.onnx"), &["does not exist"]);
    let corrupt = directory.join("corrupt.onnx");
    let mut model = matrix_product().encode();
    for content in [&[][..], b"nonsense", &[0xff; 100]] {
        std::fs::write(&corrupt, content).expect("the file is written");
        assert_refused(&corrupt, &[]);
    }
    model.truncate(model.len() / 2);
    std::fs::write(&corrupt, model).expect("the file is written");
    assert_refused(&corrupt, &[]);
}

#[test]
fn refuses_types_that_the_protocol_does_not_have() {
    let directory = Directory::new();
    let list = sequence(&tensor(FLOAT, &[2]));
    let graph = Graph::default().node("SequenceConstruct", &["X"], &["LIST"]);
    let graph = graph.input("X", &tensor(FLOAT, &[2])).output("LIST", &list);
    assert_refused(&graph.save(&directory), &["output 'LIST' is a sequence, expected a tensor"]);
    let float8 = tensor(FLOAT8, &[2]);
    let graph = Graph::default().input("X", &float8).output("X", &float8);
    assert_refused(&graph.save(&directory), &["'X' has elements of type f8_e4m3fn"]);
}

#[test]
fn honours_every_option() {
    let directory = Directory::new();
    let path = matrix_product().save(&directory);
    for graph_level in [0, 1, 2, 99] {
        for (threads, parallel) in [(0, false), (1, false), (2, false), (1, true)] {
            let options = SessionOptions {
                intra_op_threads: threads,
                inter_op_threads: threads,
                parallel,
                graph_level,
                memory_arena: parallel,
                memory_pattern: parallel,
                ..SessionOptions::default()
            };
            let session = load_with(&path, &options).expect("the model loads");
            assert_eq!(session.runs_on_caller(), threads == 1 && !parallel);
            session.measure(&shapes(&[("X", &[5, 3])]), 1).expect("the model runs");
        }
    }
    let error = load_with(&path, &SessionOptions { graph_level: 7, ..SessionOptions::default() });
    assert!(error.is_err_and(|error| error.message.contains("level 7 is not known")));
}

#[test]
fn measures_with_zeros_of_any_shape() {
    let session = load_graph(matrix_product()).expect("the model loads");
    for rows in [1, 32, 0] {
        let took = session.measure(&shapes(&[("X", &[rows, 3])]), 3).expect("the model runs");
        assert!(took.as_secs() < 60);
    }
    let refused = |given: &[(&str, &[i64])]| session.measure(&shapes(given), 1).expect_err("it must not run");
    assert_eq!(refused(&[]).kind, ErrorKind::InvalidInput);
    assert_eq!(refused(&[("X", &[-1, 3])]).kind, ErrorKind::InvalidInput);
    let error = refused(&[("X", &[2, 4])]);
    assert_eq!(error.kind, ErrorKind::EngineFailed);
    assert!(error.message.starts_with("onnx runtime error 2: "), "{error}");
}

#[test]
fn does_not_try_inputs_that_are_too_large() {
    let session = load_graph(matrix_product()).expect("the model loads");
    for rows in [1 << 24, 1 << 36, 1 << 60] {
        let error = session.measure(&shapes(&[("X", &[rows, 3])]), 1).expect_err("it must not run");
        assert_eq!(error.kind, ErrorKind::EngineFailed);
        assert!(error.message.contains("is too large for a trial"), "{error}");
    }
}

#[test]
fn measures_a_model_of_strings() {
    let strings = tensor(8, &[-1]);
    let graph =
        Graph::default().node("Identity", &["IN"], &["OUT"]).input("IN", &strings).output("OUT", &strings);
    let session = load_graph(graph).expect("the model loads");
    session.measure(&shapes(&[("IN", &[4])]), 1).expect("the model runs");
}
