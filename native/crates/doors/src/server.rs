//! The server as the control plane sees it: models in, doors open, drain, close.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use bytes::Bytes;
use kushi_core::{Drivers, Error, ErrorKind, Runner, os_text};
use kushi_dataplane::{Inference, Registry};

use crate::house::{House, Phase};
use crate::http::restrictions::Restriction;
use crate::io::{HttpDoor, IoThreads, Purpose};
use crate::leaving::Leaving;
use crate::limits::Limits;
use crate::listen::{Door, Listener};
use crate::log_switch::LogSwitch;
use crate::manage::{self, metadata};
use crate::orders::Orders;
use crate::tls::TlsOptions;

/// How long connections may take to close once all answers are written. What is open after that has
/// not sent a whole request, or does not read its answer.
const FLUSH_PATIENCE: Duration = Duration::from_secs(1);

#[allow(clippy::struct_excessive_bools, reason = "each is a choice of its own")]
pub struct ServerOptions {
    pub io_threads: usize,
    pub server_name: String,
    pub server_version: String,
    pub extensions: Vec<String>,
    /// Ready only when every model is.
    pub strict_readiness: bool,
    pub limits: Limits,
    /// A regular expression: headers with such names become parameters of their requests.
    pub header_forward_pattern: Option<String>,
    /// Where models are looked for: directories of models, or model files.
    pub repositories: Vec<PathBuf>,
    /// Whether the doors take orders to load and unload models.
    pub explicit_control: bool,
    /// Which routes of the HTTP doors ask for a token.
    pub restrictions: Vec<Restriction>,
    /// For what listens on TCP; `None`: plain.
    pub tls: Option<TlsOptions>,
    /// Whether clients may register shared memory for their tensors.
    pub allow_client_regions: bool,
    /// What clients may change about the log.
    pub log: Arc<dyn LogSwitch>,
    /// Whether the metrics tell of the machine's processors and memory, and how old they may be.
    pub cpu_metrics: bool,
    pub metrics_interval: Duration,
    /// Lets the threads of doors go before the calling one, which works on large bodies.
    pub give_way: fn(),
}

/// Closed when dropped.
pub struct Server {
    house: Arc<House>,
    io: Arc<IoThreads>,
    leaving: Leaving,
    threads: Mutex<Vec<JoinHandle<()>>>,
    socket_files: Mutex<Vec<SocketFile>>,
    /// When the connections were told to close.
    closing: OnceLock<Instant>,
    /// A forked child has a copy of the server and none of its threads.
    process: u32,
}

impl Server {
    pub fn start(options: &ServerOptions) -> Result<Self, Error> {
        let house = Arc::new(House::new(options)?);
        let (io, threads) = IoThreads::spawn(options.io_threads.max(1), &house).map_err(|error| {
            Error::new(ErrorKind::Internal, format!("cannot start an io thread: {}", os_text(&error)))
        })?;
        Ok(Self {
            house,
            io,
            leaving: Leaving::default(),
            threads: Mutex::new(threads),
            socket_files: Mutex::default(),
            closing: OnceLock::new(),
            process: std::process::id(),
        })
    }

    pub fn registry(&self) -> &Registry {
        &self.house.registry
    }

    /// Puts these versions in the place of all that the model had, and lets those finish. A server that
    /// closes retires them at once.
    pub fn publish(&self, model: &str, runners: Vec<Arc<Runner>>) -> Result<(), Error> {
        let new = runners.clone();
        self.leaving.retire(&self.house.registry.publish(model, runners));
        // Whoever closes has looked at the registry after this phase began, or retires these as well.
        if self.house.phase() == Phase::Exiting {
            self.leaving.retire(&new);
            return Err(Error::new(ErrorKind::ShuttingDown, "the engine is closed"));
        }
        Ok(())
    }

    /// Takes a model away, and lets its versions finish what they began.
    pub fn unload(&self, model: &str) {
        self.leaving.retire(&self.house.registry.remove(model));
    }

    /// What the doors ask of the control plane. Does not keep the server alive.
    pub fn orders(&self) -> Arc<Orders> {
        self.house.orders.clone()
    }

    /// Any request but inference, as the doors take it: status, name of the error's kind or nothing,
    /// and body. Blocks while the control plane carries out an order.
    pub fn call(&self, method: &str, path: &str, body: Vec<u8>) -> (u16, &'static str, Bytes) {
        let reply = manage::call_blocking(&self.house, method, path, &body.into());
        (reply.status, reply.kind.map_or("", ErrorKind::name), reply.body)
    }

    /// For a call from this process; the empty text as version means the latest.
    pub fn find(&self, model: &str, version: &str) -> Result<Inference, Error> {
        let version = manage::version_number(Some(version).filter(|text| !text.is_empty()))?;
        Inference::find(&self.house.registry, model, version).map_err(|error| match self.house.phase() {
            Phase::Exiting => Error::new(ErrorKind::ShuttingDown, "the engine is closed"),
            _ => error,
        })
    }

    /// The io threads, for runners to offer their second leases to.
    pub fn drivers(&self) -> Arc<dyn Drivers> {
        self.io.clone()
    }

    /// Answers the port, which the system chooses for 0.
    pub fn serve_http(&self, address: &str, port: u16, reuse_port: bool) -> Result<u16, Error> {
        self.listen_tcp(address, port, reuse_port, HttpDoor::Inference)
    }

    pub fn serve_metrics(&self, address: &str, port: u16) -> Result<u16, Error> {
        self.listen_tcp(address, port, false, HttpDoor::Metrics)
    }

    fn listen_tcp(&self, address: &str, port: u16, reuse_port: bool, door: HttpDoor) -> Result<u16, Error> {
        self.check_open()?;
        let (listener, port) = Listener::tcp(address, port, reuse_port)?;
        self.io.listen(listener, self.door(Purpose::Http(door)));
        Ok(port)
    }

    pub fn serve_http_unix(&self, path: &Path) -> Result<(), Error> {
        self.listen_unix(path, Listener::unix, Purpose::Http(HttpDoor::Inference))
    }

    /// The local door, for processes of the same user.
    pub fn serve_local(&self, path: &Path) -> Result<(), Error> {
        self.listen_unix(path, Listener::private_unix, Purpose::Local)
    }

    fn listen_unix(
        &self,
        path: &Path,
        bind: fn(&Path) -> Result<Listener, Error>,
        purpose: Purpose,
    ) -> Result<(), Error> {
        self.check_open()?;
        let listener = bind(path)?;
        let file = SocketFile::new(path);
        self.socket_files.lock().unwrap_or_else(PoisonError::into_inner).extend(file);
        self.io.listen(listener, self.door(purpose));
        Ok(())
    }

    fn door(&self, purpose: Purpose) -> Arc<Door> {
        Door::new(purpose, self.house.limits.max_connections)
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

    /// Refuses new work, orders that have not begun as well, and waits until every request that was
    /// received is answered, then closes the connections, the slow readers' last. Answers how many
    /// requests are left at the end of `patience`; may be called again.
    pub fn drain(&self, patience: Duration) -> usize {
        let until = Instant::now() + patience;
        self.house.advance(Phase::Exiting);
        self.house.orders.close();
        let left = self.house.drain.wait_until_none(|| self.house.preparing.get(), until);
        if left > 0 {
            return left;
        }
        let runners = self.house.registry.runners();
        for runner in &runners {
            runner.stop_admitting();
        }
        let left = self.house.drain.wait_until_none(|| self.house.answering.get(), until);
        if left > 0 {
            return left;
        }
        // A request that its client has given up may still be executing.
        let rest = || until.saturating_duration_since(Instant::now());
        let left = runners.iter().map(|runner| runner.drain(rest())).sum::<usize>();
        let left = left + self.leaving.wait_until_gone(rest());
        if left > 0 {
            return left;
        }
        self.io.close_listeners();
        self.io.close_connections();
        let flushed = *self.closing.get_or_init(Instant::now) + FLUSH_PATIENCE;
        self.house.drain.wait_until_none(|| self.io.open_connections(), flushed);
        self.house.drain.wait_until_none(|| self.io.blocked_connections(), until)
    }

    /// Ends with an error what models execute, as far as their engines can, and what waits for them: for a
    /// drain that has run out of its time.
    pub fn end_runs(&self) {
        for runner in self.house.registry.runners() {
            runner.end_runs();
        }
        self.leaving.end_runs();
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
        self.house.orders.close();
        self.io.close_listeners();
        // While the io threads run: they may hold leases, which have to come home.
        for runner in self.house.registry.runners() {
            if !runner.retire(Duration::ZERO) {
                log::warn!("model '{}' was still executing when the server closed", runner.spec().name);
            }
        }
        if self.leaving.wait_until_gone(FLUSH_PATIENCE) > 0 {
            self.leaving.end_runs();
        }
        if self.leaving.wait_until_gone(FLUSH_PATIENCE) > 0 {
            log::warn!("a model that was unloaded was still executing when the server closed");
        }
        self.io.stop();
        for thread in self.threads.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
            if thread.join().is_err() {
                log::error!("an io thread panicked");
            }
        }
        self.house.pool.close();
        self.house.regions.unregister_all();
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
