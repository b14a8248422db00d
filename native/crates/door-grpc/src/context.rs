//! What the gRPC doors of a server share, and what a call is served with.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, OnceLock};

use kushi_core::Error;
use kushi_dataplane::DataPlane;
use kushi_net::{Inside, IoContext, SmallRequests, Tls};
use kushi_oip::{Forwarding, Restricted, Restrictions};

use crate::description::Description;
use crate::options::{GrpcLimits, GrpcOptions, KeepAlive};

const INSIDE: Inside = Inside { name: "grpc", protocol: b"h2" };

pub struct Grpc {
    pub(crate) plane: Arc<DataPlane>,
    pub(crate) limits: GrpcLimits,
    pub(crate) keep_alive: KeepAlive,
    /// Which metadata becomes parameters.
    pub(crate) forwarding: Option<Forwarding>,
    pub(crate) restrictions: Restrictions,
    /// Of connections over TCP; those on this host are plain.
    pub(crate) tls: Option<Arc<Tls>>,
    pub(crate) compression_level: Option<u32>,
    /// What clients may ask about the protocol itself.
    pub(crate) description: OnceLock<Description>,
    /// Of health, that are open.
    pub(crate) watches: AtomicUsize,
}

/// What a call is served with: the door's own, its connection's, and the io thread that this came to.
pub(crate) struct GrpcContext {
    pub(crate) grpc: Arc<Grpc>,
    pub(crate) io: Rc<IoContext>,
    /// Of its connection.
    pub(crate) small_requests: SmallRequests,
    /// Of health, that are open on its connection.
    pub(crate) watches: Cell<usize>,
}

impl GrpcContext {
    /// Of a new connection.
    pub(crate) fn new(grpc: &Arc<Grpc>, io: &Rc<IoContext>) -> Rc<Self> {
        Rc::new(Self {
            grpc: grpc.clone(),
            io: io.clone(),
            small_requests: SmallRequests::default(),
            watches: Cell::new(0),
        })
    }
}

impl Grpc {
    pub fn new(plane: &Arc<DataPlane>, options: &GrpcOptions) -> Result<Arc<Self>, Error> {
        let pattern = options.header_forward_pattern.as_deref();
        let tls = |files| Tls::new(files, INSIDE).map(Arc::new);
        Ok(Arc::new(Self {
            plane: plane.clone(),
            limits: options.limits.clone(),
            keep_alive: options.keep_alive,
            forwarding: pattern.map(Forwarding::new).transpose()?,
            restrictions: Restrictions::new(Restricted::Protocol, &options.restrictions)?,
            tls: options.tls.as_ref().map(tls).transpose()?,
            compression_level: options.compression_level,
            description: OnceLock::new(),
            watches: AtomicUsize::new(0),
        }))
    }

    /// To be looked at when its files change.
    pub fn tls(&self) -> Option<&Arc<Tls>> {
        self.tls.as_ref()
    }

    /// From now on clients may ask about the protocol. The first description stays.
    pub fn describe(&self, description: Description) {
        let _ = self.description.set(description);
    }
}
