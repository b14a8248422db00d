//! The server as the control plane sees it: models in, doors open, drain, close.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use kushi_core::{Drivers, Error, ErrorKind, Registry};

use crate::house::{House, Phase};
use crate::http::metadata;
use crate::io::{IoThreads, Purpose};
use crate::listen::Listener;

/// How long connections may take to close once all answers are written. What is open after that has
/// not sent a whole request, or does not read its answer.
const FLUSH_PATIENCE: Duration = Duration::from_secs(1);

pub struct ServerOptions {
    pub io_threads: usize,
    pub server_name: String,
    pub server_version: String,
    pub extensions: Vec<String>,
    /// Ready only when every model is.
    pub strict_readiness: bool,
    /// For the JSON of a request and for each tensor in it.
    pub max_input_bytes: usize,
    /// Whether the metrics tell of the machine's processors and memory, and how old they may be.
    pub cpu_metrics: bool,
    pub metrics_interval: Duration,
}

/// Closed when dropped.
pub struct Server {
    house: Arc<House>,
    io: Arc<IoThreads>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    socket_files: Mutex<Vec<SocketFile>>,
    /// When the connections were told to close.
    closing: OnceLock<Instant>,
    /// A forked child has a copy of the server and none of its threads.
    process: u32,
}

impl Server {
    pub fn start(options: &ServerOptions) -> Result<Self, Error> {
        let house = Arc::new(House::new(options));
        let (io, threads) = IoThreads::spawn(options.io_threads.max(1), &house).map_err(|error| {
            Error::new(ErrorKind::Internal, format!("cannot start an io thread: {error}"))
        })?;
        Ok(Self {
            house,
            io,
            threads: Mutex::new(threads),
            socket_files: Mutex::default(),
            closing: OnceLock::new(),
            process: std::process::id(),
        })
    }

    pub fn registry(&self) -> &Registry {
        &self.house.registry
    }

    /// The io threads, for runners to offer their second leases to.
    pub fn drivers(&self) -> Arc<dyn Drivers> {
        self.io.clone()
    }

    /// Answers the port, which the system chooses for 0.
    pub fn serve_http(&self, address: &str, port: u16, reuse_port: bool) -> Result<u16, Error> {
        self.listen_tcp(address, port, reuse_port, Purpose::Inference)
    }

    pub fn serve_metrics(&self, address: &str, port: u16) -> Result<u16, Error> {
        self.listen_tcp(address, port, false, Purpose::Metrics)
    }

    fn listen_tcp(&self, address: &str, port: u16, reuse_port: bool, purpose: Purpose) -> Result<u16, Error> {
        self.check_open()?;
        let (listener, port) = Listener::tcp(address, port, reuse_port)?;
        self.io.listen(listener, purpose);
        Ok(port)
    }

    pub fn serve_http_unix(&self, path: &Path) -> Result<(), Error> {
        self.check_open()?;
        let listener = Listener::unix(path)?;
        let file = SocketFile::new(path);
        self.socket_files.lock().unwrap_or_else(PoisonError::into_inner).extend(file);
        self.io.listen(listener, Purpose::Inference);
        Ok(())
    }

    fn check_open(&self) -> Result<(), Error> {
        if self.house.phase() == Phase::Exiting {
            return Err(Error::new(ErrorKind::ShuttingDown, "the server is closing, it opens no more doors"));
        }
        Ok(())
    }

    /// The start set is loaded: the server is live, and ready if its models are.
    pub fn set_started(&self) {
        self.house.advance(Phase::Serving);
    }

    /// Refuses new work and waits until every request that was received is answered, then closes the
    /// connections, the slow readers' last. Answers how many requests are left at the end of
    /// `patience`; may be called again.
    pub fn drain(&self, patience: Duration) -> usize {
        let until = Instant::now() + patience;
        self.house.advance(Phase::Exiting);
        let runners = self.house.registry.runners();
        for runner in &runners {
            runner.stop_admitting();
        }
        let left = self.house.wait_until_none(|| self.house.answering(), until);
        if left > 0 {
            return left;
        }
        // A request that its client has given up may still be executing.
        let rest = || until.saturating_duration_since(Instant::now());
        let left = runners.iter().map(|runner| runner.drain(rest())).sum();
        if left > 0 {
            return left;
        }
        self.io.close_listeners();
        self.io.close_connections();
        let flushed = *self.closing.get_or_init(Instant::now) + FLUSH_PATIENCE;
        self.house.wait_until_none(|| self.io.open_connections(), flushed);
        self.house.wait_until_none(|| self.io.blocked_connections(), until)
    }

    pub fn statistics(&self) -> Vec<u8> {
        metadata::statistics(&self.house.registry.runners())
    }

    /// Drops every engine, on the calling thread, and stops the io threads. A second call does
    /// nothing, nor does one in a forked child.
    pub fn close(&self) {
        if std::process::id() != self.process {
            return;
        }
        self.house.advance(Phase::Exiting);
        self.io.close_listeners();
        // While the io threads run: they may hold leases, which have to come home.
        for runner in self.house.registry.runners() {
            if !runner.retire(Duration::ZERO) {
                log::warn!("model '{}' was still executing when the server closed", runner.spec().name);
            }
        }
        self.io.stop();
        for thread in self.threads.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
            if thread.join().is_err() {
                log::error!("an io thread panicked");
            }
        }
        self.io.clear();
        for file in self.socket_files.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
            file.remove();
        }
    }
}

/// A socket file that was made here, known by its inode: another server may have taken the path since.
struct SocketFile {
    path: PathBuf,
    inode: u64,
}

impl SocketFile {
    fn new(path: &Path) -> Option<Self> {
        // A relative path would mean another file after a change of directory.
        let path = path.canonicalize().ok()?;
        let inode = path.metadata().ok()?.ino();
        Some(Self { path, inode })
    }

    fn remove(&self) {
        if self.path.metadata().is_ok_and(|found| found.ino() == self.inode) {
            // Somebody may have been faster.
            let _ = fs::remove_file(&self.path);
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.close();
    }
}
