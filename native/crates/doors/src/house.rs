//! What all doors share: the models, the limits, and whether the server is starting, serving or
//! going away.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use bytes::Bytes;
use kushi_core::{Complaints, Count, Drain, Error};
use kushi_dataplane::Registry;
use kushi_shm::Regions;

use crate::budget::{Budget, COUNTED_BYTES, Reservation};
use crate::http::forwarding::Forwarding;
use crate::http::restrictions::Restrictions;
use crate::limits::Limits;
use crate::log_switch::LogSwitch;
use crate::machine::MachineMeter;
use crate::manage::{TraceSettings, metadata};
use crate::orders::Orders;
use crate::pool::Pool;
use crate::server::ServerOptions;
use crate::tls::Tls;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Phase {
    Starting = 0,
    Serving = 1,
    Exiting = 2,
}

pub(crate) struct House {
    pub registry: Registry,
    pub server_version: String,
    pub server_metadata: Bytes,
    pub strict_readiness: bool,
    pub limits: Limits,
    /// What requests in flight hold.
    pub budget: Arc<Budget>,
    /// For what would keep an io thread from its connections.
    pub pool: Pool,
    /// Which headers become parameters.
    pub forwarding: Option<Forwarding>,
    /// Where models are looked for.
    pub repositories: Vec<PathBuf>,
    /// Whether the doors take orders to load and unload models.
    pub explicit_control: bool,
    pub orders: Arc<Orders>,
    /// For the HTTP doors; the local door is for this user alone.
    pub restrictions: Restrictions,
    /// Of connections over TCP; those on this host are plain.
    pub tls: Option<Tls>,
    /// What clients have registered; nothing unless they may.
    pub regions: Arc<Regions>,
    pub allow_client_regions: bool,
    pub log: Arc<dyn LogSwitch>,
    /// About what clients may cause again and again.
    pub complaints: Complaints,
    pub traces: TraceSettings,
    /// `None`: not asked for.
    pub machine: Option<MachineMeter>,
    phase: AtomicU8,
    /// Requests received whole whose answers have not been written yet.
    pub answering: Count,
    /// Those of them that have still to be read aside before a runner can take them in.
    pub preparing: Count,
    /// Has begun when the phase is [`Phase::Exiting`].
    pub drain: Drain,
}

/// Held from the moment that a request has been received until its answer has been written.
pub(crate) struct Answering {
    house: Arc<House>,
    preparing: bool,
    /// Of a large body or answer.
    pub reservation: Option<Reservation>,
}

impl House {
    pub(crate) fn new(options: &ServerOptions) -> Result<Self, Error> {
        let about = metadata::server(&options.server_name, &options.server_version, &options.extensions);
        let pattern = options.header_forward_pattern.as_deref();
        Ok(Self {
            registry: Registry::default(),
            server_version: options.server_version.clone(),
            server_metadata: about.into(),
            strict_readiness: options.strict_readiness,
            limits: options.limits.clone(),
            budget: Arc::new(Budget::new(options.limits.max_inflight_bytes)),
            pool: Pool::new(options.io_threads.div_ceil(2), options.give_way),
            forwarding: pattern.map(Forwarding::new).transpose()?,
            repositories: options.repositories.clone(),
            explicit_control: options.explicit_control,
            orders: Arc::default(),
            restrictions: Restrictions::new(&options.restrictions)?,
            tls: options.tls.as_ref().map(Tls::new).transpose()?,
            regions: Arc::default(),
            allow_client_regions: options.allow_client_regions,
            log: options.log.clone(),
            complaints: Complaints::default(),
            traces: TraceSettings::default(),
            machine: options.cpu_metrics.then(|| MachineMeter::new(options.metrics_interval)),
            phase: AtomicU8::new(Phase::Starting as u8),
            answering: Count::default(),
            preparing: Count::default(),
            drain: Drain::default(),
        })
    }

    pub(crate) fn phase(&self) -> Phase {
        match self.phase.load(Ordering::SeqCst) {
            0 => Phase::Starting,
            1 => Phase::Serving,
            _ => Phase::Exiting,
        }
    }

    /// Phases only go forward.
    pub(crate) fn advance(&self, phase: Phase) {
        self.phase.fetch_max(phase as u8, Ordering::SeqCst);
        if phase == Phase::Exiting {
            self.drain.begin();
        }
    }

    pub(crate) fn is_ready(&self) -> bool {
        self.phase() == Phase::Serving && (!self.strict_readiness || self.registry.all_ready())
    }

    pub(crate) fn begin_answer(self: &Arc<Self>) -> Answering {
        self.answering.begin();
        Answering { house: self.clone(), preparing: false, reservation: None }
    }

    /// For a request that takes a while to read: a drain that begins meanwhile lets it get in.
    pub(crate) fn begin_long_answer(self: &Arc<Self>) -> Answering {
        let mut answering = self.begin_answer();
        answering.prepare();
        answering
    }
}

impl Answering {
    /// It takes a while to read the request. What comes after a drain has begun does not keep it waiting.
    pub(crate) fn prepare(&mut self) {
        self.preparing = self.preparing || self.house.drain.admit(&self.house.preparing);
    }

    /// The request has been taken in or refused.
    pub(crate) fn prepared(&mut self) {
        if std::mem::take(&mut self.preparing) {
            self.house.preparing.end(1);
            self.house.drain.something_ended();
        }
    }

    /// Counts a body of so many bytes, if there is room for it.
    pub(crate) fn cover(&mut self, bytes: usize) -> Result<(), Error> {
        if bytes < COUNTED_BYTES {
            return Ok(());
        }
        let reservation = self.reservation.get_or_insert_with(|| self.house.budget.open());
        reservation.cover(bytes)?;
        reservation.settle(bytes);
        Ok(())
    }

    /// For work that goes on, and holds memory, even if the answer is given up meanwhile.
    pub(crate) fn take_reservation(&mut self) -> Reservation {
        self.reservation.take().unwrap_or_else(|| self.house.budget.open())
    }

    /// Counts an answer of so many bytes, which stays until it has been written, in the place of what was counted
    /// before.
    pub(crate) fn owe_in_all(&mut self, bytes: usize) {
        if bytes >= COUNTED_BYTES || self.reservation.is_some() {
            self.reservation.get_or_insert_with(|| self.house.budget.open()).owe_in_all(bytes);
        }
    }

    /// Counts an answer of so many bytes beside what is counted already.
    pub(crate) fn owe(&mut self, bytes: usize) {
        self.reservation.get_or_insert_with(|| self.house.budget.open()).owe(bytes);
    }
}

impl Drop for Answering {
    fn drop(&mut self) {
        self.prepared();
        self.house.answering.end(1);
        self.house.drain.something_ended();
    }
}
