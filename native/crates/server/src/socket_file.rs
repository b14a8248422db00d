//! The files of sockets that this server has made.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// A socket file that was made here, known by its inode: another server may have taken the path since.
pub(crate) struct SocketFile {
    path: PathBuf,
    inode: u64,
}

impl SocketFile {
    pub(crate) fn new(path: &Path) -> Option<Self> {
        // A relative path would mean another file after a change of directory.
        let path = path.canonicalize().ok()?;
        let inode = path.metadata().ok()?.ino();
        Some(Self { path, inode })
    }

    pub(crate) fn remove(&self) {
        if self.path.metadata().is_ok_and(|found| found.ino() == self.inode) {
            // Somebody may have been faster.
            let _ = fs::remove_file(&self.path);
        }
    }
}
