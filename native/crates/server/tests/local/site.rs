//! A server with one model `echo` on a puppet, at a socket of its own.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use kushi_core::{DataType, Engine, ModelSpec, Runner, RunnerOptions};
use kushi_server::{Asker, Server, ServerOptions};
use kushi_testkit::{PuppetEngine, echo_spec, tensor_spec};

use crate::client::Client;
use crate::options::options;

/// Tests that count what the process holds run while no other does.
static COUNTING: RwLock<()> = RwLock::new(());

#[allow(dead_code, reason = "held")]
enum Company {
    Shared(RwLockReadGuard<'static, ()>),
    Alone(RwLockWriteGuard<'static, ()>),
}

/// Keeps the tests that count away from one that makes its servers itself.
pub fn company() -> RwLockReadGuard<'static, ()> {
    COUNTING.read().unwrap_or_else(PoisonError::into_inner)
}

pub struct Site {
    pub server: Server,
    pub puppet: Arc<PuppetEngine>,
    pub runner: Arc<Runner>,
    pub path: PathBuf,
    _company: Company,
}

pub fn server(io_threads: usize) -> Server {
    Server::start(&options(io_threads)).unwrap_or_else(|error| panic!("{error}"))
}

/// A path that no other test has.
pub fn temporary(name: &str) -> PathBuf {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    std::env::temp_dir().join(format!("kushi-local-{}-{number}-{name}", std::process::id()))
}

/// The same model with another type of tensor.
pub fn echo_of(datatype: DataType) -> ModelSpec {
    let mut spec = echo_spec();
    spec.inputs = vec![tensor_spec("INPUT", datatype, &[-1])];
    spec.outputs = vec![tensor_spec("OUTPUT", datatype, &[-1])];
    spec
}

impl Default for Site {
    fn default() -> Self {
        Self::new(echo_spec())
    }
}

impl Site {
    pub fn new(spec: ModelSpec) -> Self {
        Self::started_with(&options(1), spec)
    }

    pub fn started_with(options: &ServerOptions, spec: ModelSpec) -> Self {
        Self::with(options, spec, Company::Shared(company()))
    }

    /// While no other test of this program runs.
    pub fn alone(spec: ModelSpec) -> Self {
        let company = Company::Alone(COUNTING.write().unwrap_or_else(PoisonError::into_inner));
        Self::with(&options(1), spec, company)
    }

    fn with(options: &ServerOptions, spec: ModelSpec, company: Company) -> Self {
        let server = Server::start(options).unwrap_or_else(|error| panic!("{error}"));
        let puppet = Arc::new(PuppetEngine::default());
        let engines = (0..spec.instances).map(|_| puppet.clone() as Arc<dyn Engine>).collect();
        let options = RunnerOptions { drivers: Some(server.drivers()), ..RunnerOptions::default() };
        let runner = Runner::start(spec, engines, options).unwrap_or_else(|error| panic!("{error}"));
        let replaced = server.registry().publish("echo", vec![runner.clone()]);
        assert!(replaced.is_empty());
        server.set_started();
        let path = temporary("site");
        server.serve_local(&path).unwrap_or_else(|error| panic!("{error}"));
        Self { server, puppet, runner, path, _company: company }
    }

    /// A client that has said hello.
    pub fn connect(&self) -> Client {
        let mut client = Client::connect(&self.path);
        client.greet();
        client
    }

    /// What large requests and answers in flight hold, as the metrics tell.
    pub fn inflight_bytes(&self) -> usize {
        let text =
            String::from_utf8_lossy(&self.server.call(Asker::Client, "Metrics", b"").body).into_owned();
        let value = text.lines().find_map(|line| line.strip_prefix("kushi_inflight_bytes "));
        value.and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("{text}"))
    }

    /// Whether a client of its own gets its answer.
    pub fn answers(&self) -> bool {
        self.connect().asks(77)
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        self.puppet.release_all();
    }
}

pub fn open_descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count)
}

/// Mappings of slots, the clients' and the server's.
pub fn mapped_slots() -> usize {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    maps.lines().filter(|line| line.contains("kushi-slot")).count()
}

pub fn socket_is_there(path: &Path) -> bool {
    path.symlink_metadata().is_ok()
}
