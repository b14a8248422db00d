//! Libraries of custom operators. A process has one library at a path: another that takes its place there is
//! opened only after the first is gone.

use std::collections::HashMap;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{LazyLock, Mutex, PoisonError};

use libloading::os::unix::Library;

/// The files that were opened, as they were then.
static OPENED: LazyLock<Mutex<HashMap<PathBuf, Identity>>> = LazyLock::new(Mutex::default);

type Identity = (u64, u64, u64, i64, i64);

/// Refuses a library that is not the one which the process has in memory under its path: the system's
/// loader goes by the path alone, so that a model would compute with operators of an older file.
pub(crate) fn check_unchanged(path: &Path) -> Result<(), String> {
    // What is not there is the loader's to say.
    let Ok(metadata) = path.metadata() else { return Ok(()) };
    let found = identity(&metadata);
    let mut opened = OPENED.lock().unwrap_or_else(PoisonError::into_inner);
    let before = opened.insert(path.to_owned(), found);
    if let Some(before) = before.filter(|before| *before != found && is_open(path)) {
        opened.insert(path.to_owned(), before);
        return Err(
            "the process still has an older file of this path in memory: give the new one another name, \
                    or start the server again"
                .to_owned(),
        );
    }
    Ok(())
}

fn identity(metadata: &Metadata) -> Identity {
    (metadata.dev(), metadata.ino(), metadata.size(), metadata.mtime(), metadata.mtime_nsec())
}

fn is_open(path: &Path) -> bool {
    // SAFETY: nothing is loaded, so that no code of a library runs.
    unsafe { Library::open(Some(path), libc::RTLD_LAZY | libc::RTLD_NOLOAD) }.is_ok()
}
