//! The server as the control plane sees it: models in, doors open, drain, close.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use kushi_core::{Drivers, Error, ErrorKind, Registry};

use crate::house::{House, Phase};
use crate::http::metadata;
use crate::io::{IoThreads, Purpose};
use crate::listen::Listener;

/// How long answers may take to leave once they are all written. What is open after that has not
/// sent a whole request.
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
    socket_files: Mutex<Vec<std::path::PathBuf>>,
}

impl Server {
    pub fn start(options: &ServerOptions) -> Result<Self, Error> {
        let house = Arc::new(House::new(options));
        let (io, threads) = IoThreads::spawn(options.io_threads.max(1), &house).map_err(|error| {
            Error::new(ErrorKind::Internal, format!("cannot start an io thread: {error}"))
        })?;
        Ok(Self { house, io, threads: Mutex::new(threads), socket_files: Mutex::default() })
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
        let (listener, port) = Listener::tcp(address, port, reuse_port)?;
        self.io.listen(listener, purpose);
        Ok(port)
    }

    pub fn serve_http_unix(&self, path: &Path) -> Result<(), Error> {
        let listener = Listener::unix(path)?;
        self.socket_files.lock().unwrap_or_else(PoisonError::into_inner).push(path.to_owned());
        self.io.listen(listener, Purpose::Inference);
        Ok(())
    }

    /// The start set is loaded: the server is live, and ready if its models are.
    pub fn set_started(&self) {
        self.house.advance(Phase::Serving);
    }

    /// Refuses new work and waits until every request that was received is answered, then closes the
    /// connections. Answers how many requests are left at the end of `patience`; may be called again.
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
        if left == 0 {
            self.io.close_listeners();
            self.io.close_connections();
            let until = Instant::now() + FLUSH_PATIENCE;
            self.house.wait_until_none(|| self.io.open_connections(), until);
        }
        left
    }

    /// Requests inside the models.
    pub fn inside(&self) -> usize {
        self.house.registry.runners().iter().map(|runner| runner.inside()).sum()
    }

    pub fn statistics(&self) -> Vec<u8> {
        metadata::statistics(&self.house.registry.runners())
    }

    /// Stops the io threads and drops every engine, on the calling thread.
    pub fn close(&self) {
        self.house.advance(Phase::Exiting);
        self.io.close_listeners();
        self.io.stop();
        for thread in self.threads.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
            if thread.join().is_err() {
                log::error!("an io thread panicked");
            }
        }
        for runner in self.house.registry.runners() {
            if !runner.retire(Duration::ZERO) {
                log::warn!("model '{}' was still executing when the server closed", runner.spec().name);
            }
        }
        for path in self.socket_files.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
            // Somebody may have removed it already.
            let _ = std::fs::remove_file(path);
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.close();
    }
}
