//! A connection of one client: opened by the first call that needs it, and shared by all of its kind.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use h2::client::{Builder, SendRequest};
use kushi_core::Error;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::Mutex;
use tokio::task::AbortHandle;
use tokio::time::timeout;

use super::fault;
use crate::address::Address;
use crate::remote::RemoteOptions;
use crate::socket::{self, Opened};
use crate::tls::Tls;

/// Of what is read in one piece: answers of this size are not put together.
const FRAME_BYTES: u32 = 1 << 20;
const MAX_HEADERS_BYTES: u32 = 64 << 10;

/// What a server may send before the client has read it: in one call, and in all.
#[derive(Clone, Copy)]
pub(super) struct Windows {
    call: u32,
    all: u32,
}

impl Windows {
    /// Answers are read as they come.
    pub(super) const ANSWERS: Self = Self { call: 4 << 20, all: 32 << 20 };
    /// They are read when somebody takes them, and hold up no others.
    pub(super) const STREAMS: Self = Self { call: 256 << 10, all: 1 << 30 };
}

pub(super) struct Lines {
    tls: Option<Tls>,
    connect_patience: Duration,
    windows: Windows,
    current: RefCell<Option<Rc<Line>>>,
    /// Held by the one call that connects; the others wait for what comes of it. How that failed last.
    opening: Mutex<Option<(Instant, Error)>>,
}

/// An open connection. It closes when the last call on it is over and another one has taken its place.
pub(super) struct Line {
    pub(super) sender: SendRequest<Bytes>,
    driver: AbortHandle,
    has_ended: Rc<Cell<bool>>,
    /// The server speaks gRPC.
    pub(super) has_answered: Cell<bool>,
}

impl Drop for Line {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

impl Lines {
    pub(super) fn new(tls: Option<Tls>, options: &RemoteOptions, windows: Windows) -> Self {
        Self {
            tls,
            connect_patience: options.connect_patience,
            windows,
            current: RefCell::default(),
            opening: Mutex::default(),
        }
    }

    pub(super) async fn get(&self, address: &Address) -> Result<Rc<Line>, Error> {
        match self.kept() {
            Some(line) => Ok(line),
            // Boxed, as all that is rare: every call sets aside the room for it.
            None => Box::pin(self.opened(address)).await,
        }
    }

    async fn opened(&self, address: &Address) -> Result<Rc<Line>, Error> {
        let began = Instant::now();
        let mut failed = self.opening.lock().await;
        if let Some(line) = self.kept() {
            return Ok(line);
        }
        if let Some((when, error)) = &*failed
            && *when > began
        {
            return Err(error.clone());
        }
        match self.connected(address).await {
            Ok(line) => {
                let line = Rc::new(line);
                *self.current.borrow_mut() = Some(line.clone());
                Ok(line)
            }
            Err(error) => {
                *failed = Some((Instant::now(), error.clone()));
                Err(error)
            }
        }
    }

    async fn connected(&self, address: &Address) -> Result<Line, Error> {
        match socket::open(address, self.tls.as_ref(), self.connect_patience).await? {
            Opened::Plain(socket) => self.converse(socket, address).await,
            Opened::Secure(stream) => self.converse(stream, address).await,
        }
    }

    fn kept(&self) -> Option<Rc<Line>> {
        self.current.borrow().as_ref().filter(|line| !line.has_ended.get()).cloned()
    }

    /// It takes no more calls.
    pub(super) fn forget(&self, line: &Rc<Line>) {
        let mut current = self.current.borrow_mut();
        if current.as_ref().is_some_and(|kept| Rc::ptr_eq(kept, line)) {
            *current = None;
        }
    }

    /// Speaks HTTP/2 on `io`.
    async fn converse(
        &self,
        io: impl AsyncRead + AsyncWrite + Unpin + 'static,
        address: &Address,
    ) -> Result<Line, Error> {
        let mut builder = Builder::new();
        builder
            .enable_push(false)
            .initial_window_size(self.windows.call)
            .initial_connection_window_size(self.windows.all)
            .max_frame_size(FRAME_BYTES)
            .max_header_list_size(MAX_HEADERS_BYTES);
        let handshake = timeout(self.connect_patience, builder.handshake(io)).await;
        let (sender, connection) = handshake
            .map_err(|_| fault::silent(address))?
            .map_err(|error| fault::lost(address, &error, false))?;
        let has_ended = Rc::new(Cell::new(false));
        let ends = has_ended.clone();
        let driver = tokio::task::spawn_local(async move {
            // Whoever has a call on it hears of the error there.
            if let Err(error) = connection.await {
                log::debug!("a connection ended: {error}");
            }
            ends.set(true);
        });
        Ok(Line { sender, driver: driver.abort_handle(), has_ended, has_answered: Cell::new(false) })
    }
}
