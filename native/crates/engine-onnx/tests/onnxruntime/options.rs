//! Options of a session, by what they change.

use std::path::{Path, PathBuf};

use kushi_core::{Error, ErrorKind};
use kushi_engine_onnx::{
    Accelerator, OnnxSession, Provider, SessionOptions, available_providers, register_provider_library,
};

use crate::models::{Directory, Graph, tensor};

const FLOAT: i64 = 1;

fn entry(key: &str, value: &str) -> Vec<(String, String)> {
    vec![(key.to_owned(), value.to_owned())]
}

fn doubled() -> Graph {
    let vector = tensor(FLOAT, &[-1]);
    Graph::default().node("Add", &["X", "X"], &["Y"]).input("X", &vector).output("Y", &vector)
}

fn load(directory: &Directory, options: &SessionOptions) -> Result<OnnxSession, Error> {
    crate::init();
    OnnxSession::load(&doubled().save(directory), options)
}

fn run(session: &OnnxSession) -> Result<(), Error> {
    let shapes = [("X".to_owned(), vec![4])].into();
    session.measure(&shapes, 1).map(drop)
}

fn assert_refused(options: &SessionOptions, texts: &[&str]) {
    let directory = Directory::new();
    let error = load(&directory, options).err().expect("the session must not open");
    assert_eq!(error.kind, ErrorKind::ConfigInvalid);
    for text in texts {
        assert!(error.message.contains(text), "'{}' has no '{text}'", error.message);
    }
}

#[test]
fn hands_session_configuration_to_onnx_runtime() {
    let session_entries = entry("session.disable_cpu_ep_fallback", "1");
    let texts = ["fallback to CPU EP has been explicitly disabled"];
    assert_refused(&SessionOptions { session_entries, ..SessionOptions::default() }, &texts);
    let session_entries = entry("session.\0", "1");
    assert_refused(
        &SessionOptions { session_entries, ..SessionOptions::default() },
        &[r"'session.\u{0}' has a zero"],
    );
}

#[test]
fn hands_run_configuration_to_onnx_runtime() {
    let key = "memory.enable_memory_arena_shrinkage";
    let options = |value, memory_arena| SessionOptions {
        run_entries: entry(key, value),
        memory_arena,
        ..SessionOptions::default()
    };
    let directory = Directory::new();
    let session = load(&directory, &options("cpu:0", true)).expect("the session opens");
    run(&session).expect("there is an arena to shrink");
    let session = load(&directory, &options("cpu:0", false)).expect("the session opens");
    let error = run(&session).expect_err("there is no arena");
    assert!(error.message.contains("arena"), "{error}");
}

#[test]
fn writes_the_profile_of_a_session_at_its_end() {
    let directory = Directory::new();
    let profile = Some(directory.join("profile"));
    let session = load(&directory, &SessionOptions { profile, ..SessionOptions::default() });
    let session = session.expect("the session opens");
    run(&session).expect("the model runs");
    drop(session);
    let files = std::fs::read_dir(&*directory).expect("the directory is there").flatten();
    let profiles: Vec<PathBuf> = files
        .map(|file| file.path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "json"))
        .collect();
    let [profile] = &profiles[..] else { panic!("expected one profile, got {profiles:?}") };
    let text = std::fs::read_to_string(profile).expect("the profile is read");
    assert!(text.contains("model_run") && text.trim_end().ends_with(']'), "{text}");
}

fn example(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("../debug/examples").join(name);
    path.canonicalize().expect("the example is built")
}

#[test]
fn computes_with_operators_of_a_library() {
    let vector = tensor(FLOAT, &[-1]);
    let graph = || Graph::default().custom_node("Triple", "X", "Y").input("X", &vector).output("Y", &vector);
    let directory = Directory::new();
    let path = graph().save(&directory);
    crate::init();
    let operator_libraries = vec![example("libkushi_custom_op.so")];
    let with_library = SessionOptions { operator_libraries, ..SessionOptions::default() };
    let session = OnnxSession::load(&path, &with_library).expect("the model loads");
    run(&session).expect("the model runs");
    let error = OnnxSession::load(&path, &SessionOptions::default()).err().expect("nobody knows Triple");
    assert!(error.message.contains("Triple"), "{error}");
}

#[test]
fn names_a_library_of_operators_that_is_none() {
    let directory = Directory::new();
    let path = directory.join("operators.so");
    std::fs::write(&path, "not a library").expect("the file is written");
    let options = SessionOptions { operator_libraries: vec![path], ..SessionOptions::default() };
    assert_refused(&options, &["operators.so' cannot be used", "onnx model"]);
}

#[test]
fn never_computes_on_the_cpu_in_the_place_of_a_provider() {
    crate::init();
    let available = available_providers().expect("the library is loaded");
    assert!(available.iter().any(|name| name == "CPUExecutionProvider"), "{available:?}");
    for (accelerator, name) in [
        (Accelerator::Cuda, "CUDA"),
        (Accelerator::TensorRt, "TensorRT"),
        (Accelerator::OpenVino, "OpenVINO"),
    ] {
        let provider = Provider { accelerator, options: entry("device_id", "0") };
        let options = SessionOptions { providers: vec![provider], ..SessionOptions::default() };
        assert_refused(&options, &[&format!("the {name} execution provider cannot be used: ")]);
    }
}

#[test]
fn never_computes_with_a_provider_that_is_registered_but_not_asked_for() {
    crate::init();
    register_provider_library(&example("libkushi_provider.so")).expect("the library is registered");
    let available = available_providers().expect("the library is loaded");
    assert!(available.iter().any(|name| name == "KushiExecutionProvider"), "{available:?}");
    let session = load(&Directory::new(), &SessionOptions::default()).expect("the session opens");
    run(&session).expect("the CPU computes");
}

#[test]
fn names_a_library_of_providers_that_is_none() {
    crate::init();
    let directory = Directory::new();
    let text = directory.join("text.so");
    std::fs::write(&text, "not a library").expect("the file is written");
    for path in [directory.join("missing.so"), text] {
        let error = register_provider_library(&path).expect_err("there are no providers");
        assert_eq!(error.kind, ErrorKind::ConfigInvalid);
        let expected = format!("the providers of '{}' cannot be used: ", path.display());
        assert!(error.message.starts_with(&expected), "{error}");
    }
}
