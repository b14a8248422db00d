use std::path::{Path, PathBuf};

/// The library that tests of an engine run on: the one that the environment variable names, or else the one of a package
/// in the project's environment, whose folder in there and whose name without a version are given.
pub fn library(variable: &str, folder: &str, name: &str) -> PathBuf {
    if let Some(library) = std::env::var_os(variable) {
        return library.into();
    }
    let environment = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../.venv/lib");
    let entries = |directory: &Path| -> Vec<PathBuf> {
        let entries = std::fs::read_dir(directory).into_iter().flatten();
        entries.filter_map(|entry| entry.ok().map(|entry| entry.path())).collect()
    };
    let is_library = |path: &PathBuf| {
        path.file_name().and_then(|found| found.to_str()).is_some_and(|found| found.starts_with(name))
    };
    entries(&environment)
        .iter()
        .flat_map(|python| entries(&python.join("site-packages").join(folder)))
        .find(is_library)
        .unwrap_or_else(|| panic!("no {name} under {}: run `make setup`", environment.display()))
}
