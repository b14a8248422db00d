//! Finds the OpenVINO that the tests run on.

use std::path::{Path, PathBuf};

/// The library that the environment variable names, or else the one of the project's environment.
pub fn library() -> PathBuf {
    if let Some(library) = std::env::var_os("KUSHI_TEST_OPENVINO") {
        return library.into();
    }
    let environment = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../.venv/lib");
    let entries = |directory: &Path| -> Vec<PathBuf> {
        let entries = std::fs::read_dir(directory).into_iter().flatten();
        entries.filter_map(|entry| entry.ok().map(|entry| entry.path())).collect()
    };
    let is_library = |path: &PathBuf| {
        path.file_name()
            .and_then(|name| name.to_str())
            .is_some_and(|name| name.starts_with("libopenvino_c.so"))
    };
    entries(&environment)
        .iter()
        .flat_map(|python| entries(&python.join("site-packages/openvino/libs")))
        .find(is_library)
        .unwrap_or_else(|| panic!("no libopenvino_c.so under {}: run `make setup`", environment.display()))
}
