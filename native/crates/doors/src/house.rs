//! What all doors share: the models, the limits, and whether the server is starting, serving or
//! going away.

use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use kushi_core::Registry;

use crate::machine::MachineMeter;
use crate::http::metadata;
use crate::server::ServerOptions;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Phase {
    Starting = 0,
    Serving = 1,
    Exiting = 2,
}

pub(crate) struct House {
    pub registry: Registry,
    pub server_metadata: Bytes,
    pub strict_readiness: bool,
    pub max_input_bytes: usize,
    /// `None`: not asked for.
    pub machine: Option<MachineMeter>,
    phase: AtomicU8,
    quiet: Mutex<()>,
    changed: Condvar,
}

impl House {
    pub(crate) fn new(options: &ServerOptions) -> Self {
        let about = metadata::server(&options.server_name, &options.server_version, &options.extensions);
        Self {
            registry: Registry::default(),
            server_metadata: about.into(),
            strict_readiness: options.strict_readiness,
            max_input_bytes: options.max_input_bytes,
            machine: options.cpu_metrics.then(|| MachineMeter::new(options.metrics_interval)),
            phase: AtomicU8::new(Phase::Starting as u8),
            quiet: Mutex::new(()),
            changed: Condvar::new(),
        }
    }

    pub(crate) fn phase(&self) -> Phase {
        match self.phase.load(Ordering::Acquire) {
            0 => Phase::Starting,
            1 => Phase::Serving,
            _ => Phase::Exiting,
        }
    }

    /// Phases only go forward.
    pub(crate) fn advance(&self, phase: Phase) {
        self.phase.fetch_max(phase as u8, Ordering::AcqRel);
    }

    pub(crate) fn is_ready(&self) -> bool {
        self.phase() == Phase::Serving && (!self.strict_readiness || self.registry.all_ready())
    }

    pub(crate) fn connection_ended(&self) {
        if self.phase() == Phase::Exiting {
            drop(self.quiet.lock().unwrap_or_else(PoisonError::into_inner));
            self.changed.notify_all();
        }
    }

    /// Waits until `open` is zero, looking again whenever a connection ends; answers what is left.
    pub(crate) fn wait_for_connections(&self, open: impl Fn() -> usize, until: Instant) -> usize {
        let mut quiet = self.quiet.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let open = open();
            if open == 0 || left == Duration::ZERO {
                return open;
            }
            (quiet, _) = self.changed.wait_timeout(quiet, left).unwrap_or_else(PoisonError::into_inner);
        }
    }
}
