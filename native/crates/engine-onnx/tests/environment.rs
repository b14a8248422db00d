//! Loading the library: once per process, so in one test.

mod library;

use std::path::Path;

use kushi_core::{Error, ErrorKind};
use kushi_engine_onnx::{GlobalThreads, OnnxSession, SessionOptions, init};

fn assert_refused(answer: Result<String, Error>, texts: &[&str]) {
    let error = answer.expect_err("there is no ONNX Runtime there");
    assert_eq!(error.kind, ErrorKind::ConfigInvalid);
    for text in texts {
        assert!(error.message.contains(text), "'{}' has no '{text}'", error.message);
    }
}

#[test]
fn a_process_loads_one_library_and_says_what_is_wrong_with_others() {
    let early = OnnxSession::load(Path::new("model.onnx"), &SessionOptions::default());
    assert_eq!(early.err().map(|error| error.kind), Some(ErrorKind::Internal));

    let directory = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let text = directory.join("libonnxruntime.so.text");
    std::fs::write(&text, "not a library").expect("the file is written");
    assert_refused(init(&directory.join("libmissing.so"), None), &["libmissing.so", "cannot be opened"]);
    assert_refused(init(&text, None), &["libonnxruntime.so.text", "cannot be loaded", "file too short"]);
    assert_refused(init(Path::new("/proc/self/exe"), None), &["cannot be loaded", "cannot dynamically load"]);

    let library = library::library();
    let version = init(&library, None).expect("onnxruntime starts");
    assert!(version.starts_with("1."), "{version}");
    assert_eq!(init(&library, None).as_deref(), Ok(&*version));
    let way_round = library
        .parent()
        .expect("it is in a directory")
        .join("../capi")
        .join(library.file_name().expect("a file"));
    assert_eq!(init(&way_round, None).as_deref(), Ok(&*version));
    assert_refused(init(&text, None), &["already loaded", "libonnxruntime.so.text"]);
    let threads = Some(GlobalThreads { intra_op: 2, inter_op: 1 });
    let texts = [
        "onnxruntime already runs without a global thread pool in this process",
        "it cannot run with a global thread pool of 2 intra-op and 1 inter-op threads",
    ];
    assert_refused(init(&library, threads), &texts);
}
