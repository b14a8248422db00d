//! A server's local door as one client sees it: where it is, and what all connections to it share.

use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use kushi_core::Error;

use super::connect;
use super::connection::Connection;
use super::slots::Arena;
use super::texts::{client_closed, closed};

/// May be used by any thread.
pub struct Door {
    path: PathBuf,
    arena: Arena,
    closed: AtomicBool,
    /// Numbers of calls are used once, whatever the connection.
    next_id: AtomicU64,
    /// Of all connections, whoever drives them.
    streams: Mutex<Vec<Weak<UnixStream>>>,
}

impl Door {
    /// Connects to nothing yet.
    pub fn new(path: PathBuf) -> Arc<Self> {
        Arc::new(Self {
            path,
            arena: Arena::default(),
            closed: AtomicBool::new(false),
            next_id: AtomicU64::new(1),
            streams: Mutex::default(),
        })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn arena(&self) -> &Arena {
        &self.arena
    }

    pub(crate) fn next_id(&self) -> u64 {
        self.next_id.fetch_add(1, Ordering::Relaxed)
    }

    /// With `patience` waits for its turn while a busy server has not taken the connections before; without, it is now
    /// or never.
    pub fn connect<T>(self: &Arc<Self>, patience: Option<Duration>) -> Result<Connection<T>, Error> {
        self.check()?;
        let stream = Arc::new(connect::open(&self.path, patience)?);
        let mut streams = self.streams.lock().unwrap_or_else(PoisonError::into_inner);
        self.check()?;
        if streams.len() == streams.capacity() {
            streams.retain(|stream| stream.strong_count() > 0);
        }
        streams.push(Arc::downgrade(&stream));
        drop(streams);
        Ok(Connection::new(stream, self.clone(), Instant::now()))
    }

    /// Fails once the client has been closed.
    pub fn check(&self) -> Result<(), Error> {
        if self.closed.load(Ordering::Acquire) { Err(client_closed()) } else { Ok(()) }
    }

    /// A connection has ended that nobody has told of.
    pub fn lost(&self) -> Error {
        self.explain(closed(&self.path, true))
    }

    /// Why a connection ended: `error`, unless we ended it.
    pub fn explain(&self, error: Error) -> Error {
        self.check().err().unwrap_or(error)
    }

    /// No call begins any more. Those in flight end as if the server had closed the connection, which whoever drives
    /// it notices at the socket.
    pub fn close(&self) {
        let streams = {
            let mut streams = self.streams.lock().unwrap_or_else(PoisonError::into_inner);
            self.closed.store(true, Ordering::Release);
            std::mem::take(&mut *streams)
        };
        for stream in streams.iter().filter_map(Weak::upgrade) {
            // One that the server has closed already is as good.
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}
