//! The index of the repository: what the core knows, and by their names alone the models that are there to be loaded.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;

use kushi_core::{State, os_text};

use crate::{DataPlane, IndexEntry};

impl DataPlane {
    /// Sorted by name and version. Reads the directories of the repositories.
    pub(super) fn index(&self, ready_only: bool) -> Vec<IndexEntry> {
        let there = self.models_there();
        let mut models: BTreeMap<String, Vec<IndexEntry>> = BTreeMap::new();
        for row in self.registry.rows() {
            let gone = row.state == State::Unloaded && !there.contains_key(&row.model);
            if !gone && (!ready_only || row.state == State::Ready) {
                let name = row.model.clone();
                models.entry(row.model).or_default().push(IndexEntry {
                    name,
                    version: row.version,
                    state: Some(row.state),
                    reason: row.reason,
                });
            }
        }
        if !ready_only {
            for (name, repositories) in there {
                let entries = models.entry(name.clone()).or_default();
                if entries.is_empty() {
                    entries.push(not_loaded(name, repositories));
                }
            }
        }
        models.into_values().flatten().collect()
    }

    /// The models that lie in the repositories, and in how many of them. A repository that is gone has none: what
    /// was loaded from it serves all the same.
    fn models_there(&self) -> BTreeMap<String, usize> {
        let mut names = BTreeMap::new();
        for repository in &self.repositories {
            let found = models_in(repository).unwrap_or_else(|error| {
                let (path, error) = (repository.display(), os_text(&error));
                let text = || format!("model repository '{path}' cannot be read: {error}");
                self.complaints.warn("repository", text);
                Vec::new()
            });
            for name in found {
                *names.entry(name).or_default() += 1;
            }
        }
        names
    }
}

fn not_loaded(name: String, repositories: usize) -> IndexEntry {
    if repositories == 1 {
        return IndexEntry { name, version: None, state: None, reason: String::new() };
    }
    let reason = "model appears in two or more repositories".into();
    IndexEntry { name, version: None, state: Some(State::Failed), reason }
}

/// A repository is a directory of models, or one model file that goes by its stem.
fn models_in(repository: &Path) -> io::Result<Vec<String>> {
    if !repository.metadata()?.is_dir() {
        return Ok(repository.file_stem().map(|stem| stem.to_string_lossy().into()).into_iter().collect());
    }
    let mut names = Vec::new();
    for found in fs::read_dir(repository)? {
        let found = found?;
        let name = found.file_name().to_string_lossy().into_owned();
        // Through links: a model may be one.
        if !name.starts_with('.') && found.path().is_dir() {
            names.push(name);
        }
    }
    Ok(names)
}
