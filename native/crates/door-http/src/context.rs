//! What the HTTP doors of a server share, and what a request is served with.

use std::rc::Rc;
use std::sync::Arc;

use kushi_core::Error;
use kushi_dataplane::DataPlane;
use kushi_net::{Inside, IoContext, Tls, TlsFiles};
use kushi_oip::{Forwarding, Restricted, Restriction, Restrictions};

use crate::HttpLimits;

pub struct HttpOptions {
    pub limits: HttpLimits,
    /// A regular expression: headers with such names become parameters of their requests.
    pub header_forward_pattern: Option<String>,
    /// Which routes ask for a token.
    pub restrictions: Vec<Restriction>,
    /// For what listens on TCP; `None`: plain.
    pub tls: Option<TlsFiles>,
    /// Whether there is a page at `/`.
    pub playground: bool,
}

const INSIDE: Inside = Inside { name: "http", protocol: b"http/1.1" };

/// What the HTTP doors of a server share.
pub struct Http {
    pub(crate) plane: Arc<DataPlane>,
    pub(crate) limits: HttpLimits,
    /// Which headers become parameters.
    pub(crate) forwarding: Option<Forwarding>,
    pub(crate) restrictions: Restrictions,
    /// Of connections over TCP; those on this host are plain.
    pub(crate) tls: Option<Arc<Tls>>,
    pub(crate) playground: bool,
}

/// What a request is served with: the doors' own, and the io thread that it came to.
pub(crate) struct HttpContext {
    pub http: Arc<Http>,
    pub io: Rc<IoContext>,
}

/// What a connection is for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    Inference,
    Metrics,
}

impl Http {
    pub fn new(plane: &Arc<DataPlane>, options: &HttpOptions) -> Result<Arc<Self>, Error> {
        let tls = |files| Tls::new(files, INSIDE).map(Arc::new);
        let pattern = options.header_forward_pattern.as_deref();
        Ok(Arc::new(Self {
            plane: plane.clone(),
            limits: options.limits.clone(),
            forwarding: pattern.map(Forwarding::new).transpose()?,
            restrictions: Restrictions::new(Restricted::Api, &options.restrictions)?,
            tls: options.tls.as_ref().map(tls).transpose()?,
            playground: options.playground,
        }))
    }

    /// To be looked at when its files change.
    pub fn tls(&self) -> Option<&Arc<Tls>> {
        self.tls.as_ref()
    }
}
