//! The server as the control plane sees it: models in, doors open, drain, close.

use std::path::Path;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use kushi_core::{
    ConfigTexts, Drivers, Error, ErrorKind, ModelSpec, Observer, Parameter, Runner, RunnerOptions,
    Scheduling, os_text,
};
use kushi_dataplane::{
    AskedVersion, Asker, DataPlane, DataPlaneOptions, InFlight, Inference, Memory, MetricHolder, Orders,
    Phase, Registry, RouteKey, RoutesSpec, StepSpec, Traces,
};
use kushi_door_grpc::{Description, Grpc, GrpcOptions};
use kushi_door_http::{Http, HttpOptions};
use kushi_door_local::LocalDoor;
use kushi_net::{Budget, Chore, Door, Entrance, IoThreads, Limits, Listener, Net, NetOptions, Tls};
use kushi_oip::CallAnswer;
use kushi_verbs as verbs;

use crate::after_peak::AfterPeak;
use crate::socket_file::SocketFile;

/// How long connections may take to close once all answers are written. What is open after that has
/// not sent a whole request, or does not read its answer.
const FLUSH_PATIENCE: Duration = Duration::from_secs(1);

/// How long traces may take to be written once nothing more comes.
const TRACE_PATIENCE: Duration = Duration::from_secs(5);
/// How long what was begun on large bodies may take, copies to GPUs and from them as well.
const BODY_PATIENCE: Duration = Duration::from_secs(5);
/// For a call of the driver of GPUs.
const GPU_PATIENCE: Duration = Duration::from_secs(1);

pub struct ServerOptions {
    pub io_threads: usize,
    pub plane: DataPlaneOptions,
    pub limits: Limits,
    pub http: HttpOptions,
    pub grpc: GrpcOptions,
    /// Lets the threads of doors go before the calling one, which works on large bodies.
    pub give_way: fn(),
    /// Gives memory back to the system that the allocator keeps; it may take its time elsewhere.
    pub give_memory_back: fn(),
}

/// Closed when dropped.
pub struct Server {
    plane: Arc<DataPlane>,
    net: Arc<Net>,
    io: Arc<IoThreads>,
    http: Arc<Http>,
    grpc: Arc<Grpc>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    socket_files: Mutex<Vec<SocketFile>>,
    /// When the connections were told to close.
    closing: OnceLock<Instant>,
    /// A forked child has a copy of the server and none of its threads.
    process: u32,
}

impl Server {
    pub fn start(options: &ServerOptions) -> Result<Self, Error> {
        let budget = Arc::new(Budget::new(options.limits.max_inflight_bytes));
        let held = budget.clone();
        let in_flight = move || InFlight { bytes: held.held(), refused: held.refused() };
        let plane = Arc::new(DataPlane::new(&options.plane, Box::new(in_flight)));
        let http = Http::new(&plane, &options.http)?;
        let grpc = Grpc::new(&plane, &options.grpc)?;
        let tls: Vec<Arc<Tls>> = http.tls().into_iter().chain(grpc.tls()).cloned().collect();
        let watched = plane.clone();
        let renew_runs: Chore = Arc::new(move || watched.renew_runs());
        let after_peak = AfterPeak::new(&budget, options.give_memory_back);
        let give_back: Chore = Arc::new(move || after_peak.look());
        let net = Arc::new(Net::new(&NetOptions {
            io_threads: options.io_threads,
            limits: options.limits.clone(),
            budget,
            tls,
            give_way: options.give_way,
            chores: vec![renew_runs, give_back],
        }));
        let (io, threads) = IoThreads::spawn(options.io_threads.max(1), &net).map_err(|error| {
            Error::new(ErrorKind::Internal, format!("cannot start an io thread: {}", os_text(&error)))
        })?;
        Ok(Self {
            plane,
            net,
            io,
            http,
            grpc,
            threads: Mutex::new(threads),
            socket_files: Mutex::default(),
            closing: OnceLock::new(),
            process: std::process::id(),
        })
    }

    pub fn registry(&self) -> &Registry {
        &self.plane.registry
    }

    /// Which requests are traced.
    pub fn traces(&self) -> &Traces {
        &self.plane.traces
    }

    /// What shall be told of a model beside its sums.
    pub fn observer(&self, spec: &ModelSpec) -> Option<Arc<dyn Observer>> {
        self.plane.observer(spec)
    }

    /// Starts a version that is made of other models.
    pub fn start_ensemble(
        &self,
        spec: ModelSpec,
        steps: &[StepSpec],
        options: RunnerOptions,
    ) -> Result<Arc<Runner>, Error> {
        self.plane.start_ensemble(spec, steps, options)
    }

    /// Puts these versions in the place of all that the model had but for those that are `kept`, and lets the others
    /// finish. `routes`: how requests find them, where the model says so.
    pub fn publish(
        &self,
        model: &str,
        runners: Vec<Arc<Runner>>,
        kept: &[u64],
        routes: Option<RoutesSpec>,
    ) -> Result<(), Error> {
        self.plane.publish(model, runners, kept, routes.map(Into::into))
    }

    /// What clients are told of a version that stays as it is, where its configuration has become another one.
    pub fn restate(&self, model: &str, version: u64, config: ConfigTexts) {
        if let Ok(runner) = self.plane.registry.find(model, &AskedVersion::Number(version)) {
            runner.restate(config);
        }
    }

    /// A version that stays as it is schedules its requests in another way from now on.
    pub fn reschedule(&self, model: &str, version: u64, scheduling: Scheduling) {
        if let Ok(servable) = self.plane.registry.find(model, &AskedVersion::Number(version)) {
            servable.reschedule(scheduling);
        }
    }

    /// A version that stays as it is has so many instances from now on.
    pub fn resize(&self, model: &str, version: u64, instances: usize) -> Result<(), Error> {
        match self.plane.registry.find(model, &AskedVersion::Number(version)) {
            Ok(servable) => servable.resize(instances),
            Err(_) => Ok(()),
        }
    }

    /// Takes a model away, and lets its versions finish what they began.
    pub fn unload(&self, model: &str) {
        self.plane.unload(model);
    }

    /// What the doors ask of the control plane. Does not keep the server alive.
    pub fn orders(&self) -> Arc<Orders> {
        self.plane.orders.clone()
    }

    /// Anything but inference, as the local door takes it. Blocks while the control plane carries out an order.
    pub fn call(&self, asker: Asker, verb: &str, arguments: &[u8]) -> CallAnswer {
        let verb = verbs::verb(verb, arguments);
        verbs::call_answer(&verb.and_then(|verb| self.plane.perform_blocking(asker, verb)))
    }

    /// For a call from this process; no version is an empty text.
    pub fn find(
        &self,
        model: &str,
        version: &str,
        parameters: &[(String, Parameter)],
    ) -> Result<Inference, Error> {
        let version = AskedVersion::read(version)?;
        let key = |name: &str| RouteKey::among(parameters, name);
        Inference::find(&self.plane.registry, model, version, key).map_err(|error| match self.plane.phase() {
            Phase::Exiting => Error::new(ErrorKind::ShuttingDown, "the engine is closed"),
            _ => error,
        })
    }

    /// Before one model asks another, on behalf of a request.
    pub fn enter_ring(&self, caller: &str, asked: &str) -> Result<(), Error> {
        self.plane.cycles.enter(caller, asked)
    }

    /// Another version of this model may ask others.
    pub fn forget_ring(&self, caller: &str) {
        self.plane.cycles.forget(caller);
    }

    /// The metrics of one instance of a model.
    pub fn metric_holder(&self, model: &str) -> MetricHolder {
        self.plane.model_metrics.holder(model)
    }

    /// The io threads, for runners to offer their second leases to.
    pub fn drivers(&self) -> Arc<dyn Drivers> {
        self.io.clone()
    }

    /// Answers the port, which the system chooses for 0.
    pub fn serve_http(&self, address: &str, port: u16, reuse_port: bool) -> Result<u16, Error> {
        self.listen_tcp(address, port, reuse_port, self.http.door())
    }

    /// Answers the port, which the system chooses for 0.
    pub fn serve_grpc(&self, address: &str, port: u16, reuse_port: bool) -> Result<u16, Error> {
        self.listen_tcp(address, port, reuse_port, self.grpc.door())
    }

    /// Tells clients of gRPC that ask what the protocol is made of.
    pub fn describe_grpc(&self, description: Description) {
        self.grpc.describe(description);
    }

    pub fn serve_grpc_unix(&self, path: &Path) -> Result<(), Error> {
        self.listen_unix(path, Listener::unix, self.grpc.door())
    }

    /// For connections that other processes of this user have accepted and hand over.
    pub fn serve_grpc_handover(&self, path: &Path) -> Result<(), Error> {
        self.listen_unix(path, Listener::private_unix, self.grpc.handover_door())
    }

    /// `tls`: it speaks what the HTTP port does.
    pub fn serve_metrics(&self, address: &str, port: u16, tls: bool) -> Result<u16, Error> {
        self.listen_tcp(address, port, false, self.http.metrics_door(tls))
    }

    fn listen_tcp(
        &self,
        address: &str,
        port: u16,
        reuse_port: bool,
        door: Arc<dyn Door>,
    ) -> Result<u16, Error> {
        self.check_open()?;
        let (listener, port) = Listener::tcp(address, port, reuse_port)?;
        self.io.listen(listener, self.entrance(door));
        Ok(port)
    }

    pub fn serve_http_unix(&self, path: &Path) -> Result<(), Error> {
        self.listen_unix(path, Listener::unix, self.http.door())
    }

    /// The local door, for processes of the same user.
    pub fn serve_local(&self, path: &Path) -> Result<(), Error> {
        self.listen_unix(path, Listener::private_unix, Arc::new(LocalDoor::new(&self.plane)))
    }

    fn listen_unix(
        &self,
        path: &Path,
        bind: fn(&Path) -> Result<Listener, Error>,
        door: Arc<dyn Door>,
    ) -> Result<(), Error> {
        self.check_open()?;
        let listener = bind(path)?;
        let file = SocketFile::new(path);
        self.socket_files.lock().unwrap_or_else(PoisonError::into_inner).extend(file);
        self.io.listen(listener, self.entrance(door));
        Ok(())
    }

    fn entrance(&self, door: Arc<dyn Door>) -> Arc<Entrance> {
        Entrance::new(door, self.net.limits.max_connections)
    }

    fn check_open(&self) -> Result<(), Error> {
        if self.plane.phase() == Phase::Exiting {
            return Err(Error::new(ErrorKind::ShuttingDown, "the server is closing, it opens no more doors"));
        }
        Ok(())
    }

    /// The start set is loaded: the server is live, and ready if its models are.
    pub fn set_started(&self) {
        self.plane.advance(Phase::Serving);
    }

    /// Refuses new work, orders that have not begun as well, and waits until every request that was
    /// received is answered, then closes the connections, the slow readers' last. Answers how many
    /// requests are left at the end of `patience`; may be called again.
    pub fn drain(&self, patience: Duration) -> usize {
        let until = Instant::now() + patience;
        self.exit();
        let left = self.net.drain.wait_until_none(|| self.net.preparing(), until);
        if left > 0 {
            return left;
        }
        let runners = self.plane.registry.runners();
        for runner in &runners {
            runner.stop_admitting();
        }
        let left = self.net.drain.wait_until_none(|| self.net.answering(), until);
        if left > 0 {
            return left;
        }
        // A request that its client has given up may still be executing.
        let rest = || until.saturating_duration_since(Instant::now());
        let left = runners.iter().map(|runner| runner.drain(rest())).sum::<usize>();
        let left = left + self.plane.wait_until_gone(rest());
        if left > 0 {
            return left;
        }
        self.io.close_listeners();
        self.io.close_connections();
        let flushed = *self.closing.get_or_init(Instant::now) + FLUSH_PATIENCE;
        self.net.drain.wait_until_none(|| self.io.open_connections(), flushed);
        self.net.drain.wait_until_none(|| self.io.blocked_connections(), until)
    }

    /// Ends with an error what models execute, as far as their engines can, and what waits for them: for a
    /// drain that has run out of its time.
    pub fn end_runs(&self) {
        self.plane.end_runs();
    }

    /// From now on new work is refused, and orders that have not begun as well.
    fn exit(&self) {
        self.plane.advance(Phase::Exiting);
        self.net.drain.begin();
        self.io.begin_drain();
    }

    /// Drops every engine, on the calling thread, and stops the io threads. A second call does
    /// nothing, nor does one in a forked child.
    pub fn close(&self) {
        if std::process::id() != self.process {
            return;
        }
        self.exit();
        self.io.close_listeners();
        // While the io threads run: they may hold leases, which have to come home.
        let runners = self.plane.registry.runners();
        // Each may take its time to end, and they all do so at the same time.
        for runner in &runners {
            runner.begin_to_leave();
        }
        for runner in runners {
            if !runner.retire(Duration::ZERO) {
                log::warn!("model '{}' was still executing when the server closed", runner.spec().name);
            }
        }
        if self.plane.wait_until_gone(FLUSH_PATIENCE) > 0 {
            self.plane.end_runs();
        }
        if self.plane.wait_until_gone(FLUSH_PATIENCE) > 0 {
            log::warn!("a model that was unloaded was still executing when the server closed");
        }
        self.io.stop();
        for thread in self.threads.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
            if thread.join().is_err() {
                log::error!("an io thread panicked");
            }
        }
        self.net.pool.close(BODY_PATIENCE);
        if let Some(gpus) = &self.plane.gpus {
            gpus.stop(GPU_PATIENCE);
        }
        self.plane.traces.close(Instant::now() + TRACE_PATIENCE);
        self.plane.regions.unregister_all(Memory::System);
        self.close_cuda_regions();
        for file in self.socket_files.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
            file.remove();
        }
    }

    /// On a thread of its own, which is left behind where the driver hangs.
    fn close_cuda_regions(&self) {
        if self.plane.regions.all_cuda().is_empty() {
            return;
        }
        let regions = self.plane.regions.clone();
        let (at_end, ended) = mpsc::channel::<()>();
        let close = move || {
            regions.unregister_all(Memory::Cuda);
            drop(at_end);
        };
        if thread::Builder::new().name("kushi-regions".into()).spawn(close).is_err() {
            return;
        }
        if ended.recv_timeout(GPU_PATIENCE) == Err(RecvTimeoutError::Timeout) {
            log::warn!("the driver of GPUs has not closed memory of clients before the server closed");
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.close();
    }
}
