//! The connections of one client: kept alive, at most so many, one call at a time on each.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use kushi_core::{Error, ErrorKind};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::task::AbortHandle;
use tokio::time::timeout;

use super::body::OutgoingBody;
use super::fault;
use crate::address::Address;
use crate::remote::RemoteOptions;
use crate::socket::{self, Opened};
use crate::tls::Tls;

/// What a connection may need to come to rest after an answer.
const READY_PATIENCE: Duration = Duration::from_secs(1);
/// Connections in use and idle ones together never exceed the limit: a new one is opened only when
/// none is idle, and each in use holds a permit.
pub(super) struct Connections {
    tls: Option<Tls>,
    idle: RefCell<VecDeque<(Line, Instant)>>,
    permits: Semaphore,
    connect_patience: Duration,
    idle_patience: Duration,
}

/// An open connection. Dropping it closes the socket, whatever goes on there.
pub(super) struct Line {
    pub sender: SendRequest<OutgoingBody>,
    driver: AbortHandle,
}

impl Drop for Line {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

/// The right to use one connection.
pub(super) struct Turn<'a> {
    connections: &'a Connections,
    _permit: SemaphorePermit<'a>,
}

impl Connections {
    pub(super) fn new(tls: Option<Tls>, options: &RemoteOptions) -> Self {
        Self {
            tls,
            idle: RefCell::default(),
            permits: Semaphore::new(options.max_connections.max(1)),
            connect_patience: options.connect_patience,
            idle_patience: options.idle_patience,
        }
    }

    /// First come, first served.
    pub(super) async fn turn(&self) -> Result<Turn<'_>, Error> {
        let permit = self.permits.acquire().await;
        let permit = permit.map_err(|_| Error::new(ErrorKind::Internal, "the connections are closed"))?;
        Ok(Turn { connections: self, _permit: permit })
    }
}

impl Turn<'_> {
    /// The connection that was used last, when it is still open. `went_stale` hears of each that is not.
    pub(super) async fn kept(&self, mut went_stale: impl FnMut()) -> Option<Line> {
        loop {
            let (mut line, since) = self.connections.idle.borrow_mut().pop_back()?;
            if since.elapsed() > self.connections.idle_patience {
                continue;
            }
            if line.sender.is_ready()
                || matches!(timeout(READY_PATIENCE, line.sender.ready()).await, Ok(Ok(())))
            {
                return Some(line);
            }
            went_stale();
        }
    }

    pub(super) async fn open(&self, address: &Address) -> Result<Line, Error> {
        let (tls, patience) = (self.connections.tls.as_ref(), self.connections.connect_patience);
        match socket::open(address, tls, patience).await? {
            Opened::Plain(socket) => converse(socket, address).await,
            Opened::Secure(stream) => converse(stream, address).await,
        }
    }

    /// Gives back a connection on which nothing is left to send or to read.
    pub(super) fn keep(&self, line: Line) {
        let now = Instant::now();
        let mut idle = self.connections.idle.borrow_mut();
        idle.push_back((line, now));
        let patience = self.connections.idle_patience;
        while idle.front().is_some_and(|(_, since)| now.duration_since(*since) > patience) {
            idle.pop_front();
        }
    }
}

/// Speaks HTTP on `io`.
async fn converse(
    io: impl AsyncRead + AsyncWrite + Unpin + 'static,
    address: &Address,
) -> Result<Line, Error> {
    let handshake = http1::handshake(TokioIo::new(io));
    let (sender, connection) = handshake.await.map_err(|error| fault::lost(address, &error))?;
    let driver = tokio::task::spawn_local(async move {
        // Whoever has a request on it hears of the error there.
        if let Err(error) = connection.await {
            log::debug!("a connection ended: {error}");
        }
    });
    Ok(Line { sender, driver: driver.abort_handle() })
}
