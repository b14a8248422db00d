//! The connections of one client: kept alive, at most so many, one call at a time on each.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use kushi_core::{Error, ErrorKind};
use rustix::net::{Shutdown, shutdown, sockopt};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::task::AbortHandle;
use tokio::time::{timeout, timeout_at};

use super::HttpOptions;
use super::address::Address;
use super::body::Outgoing;
use super::fault;
use super::tls::Tls;

/// What a connection may need to come to rest after an answer.
const READY_PATIENCE: Duration = Duration::from_secs(1);
/// A peer that vanished without a word is noticed after about half a minute.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(15);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(5);
const KEEPALIVE_PROBES: u32 = 3;

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
    pub sender: SendRequest<Outgoing>,
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
    pub(super) fn new(tls: Option<Tls>, options: &HttpOptions) -> Self {
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
        let until = Instant::now() + self.connections.connect_patience;
        let within = |error| fault::not_connected(address, &error);
        let connect = TcpStream::connect((address.host.as_str(), address.port));
        let stream = in_time(until, connect).await.map_err(within)?;
        prepare(&stream).map_err(within)?;
        let socket = Socket(stream);
        match &self.connections.tls {
            None => converse(socket, address).await,
            Some(tls) => {
                let stream = in_time(until, tls.connect(socket)).await.map_err(within)?;
                converse(stream, address).await
            }
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

async fn in_time<T>(until: Instant, work: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    timeout_at(until.into(), work).await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
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

fn prepare(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, KEEPALIVE_IDLE)?;
    sockopt::set_tcp_keepintvl(stream, KEEPALIVE_INTERVAL)?;
    sockopt::set_tcp_keepcnt(stream, KEEPALIVE_PROBES)?;
    Ok(())
}

/// Ends the connection when it is dropped, also when a forked child has inherited the socket.
pub(super) struct Socket(TcpStream);

impl Drop for Socket {
    fn drop(&mut self) {
        let _ = shutdown(&self.0, Shutdown::Both);
    }
}

impl AsyncRead for Socket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(context, buffer)
    }
}

impl AsyncWrite for Socket {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(context)
    }

    fn is_write_vectored(&self) -> bool {
        self.0.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write_vectored(context, pieces)
    }
}
