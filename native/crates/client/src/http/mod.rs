//! The client of any server that speaks the Open Inference Protocol over HTTP/1.1.
//!
//! What always holds: each call ends exactly once, on the client's own thread or, when there is none, on
//! the caller's; a request is sent at most once; what a server sends cannot make the client panic
//! or grow beyond its limits. The thread takes calls from an inbox, with one wake-up for a burst.

mod address;
mod answer;
mod background;
mod body;
mod connections;
mod fault;
mod headers;
mod infer;
mod metadata;
mod path;
mod request;
mod server;
mod tls;
mod verbs;

use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use kushi_core::Error;

use self::address::Address;
use self::background::{Background, Job};
use self::server::Server;
pub use self::tls::{Tls, TlsOptions};
use crate::{Answer, Call, CallAnswer, InferCall};

#[derive(Clone)]
pub struct HttpOptions {
    /// Sent with every request, and shown nowhere.
    pub headers: Vec<(String, String)>,
    /// For `https`.
    pub tls: TlsOptions,
    /// Open connections, each of which carries one call at a time; further calls wait for one.
    pub max_connections: usize,
    /// Of one answer's body.
    pub max_answer_bytes: usize,
    /// How long opening a connection may take, however patient a call is.
    pub connect_patience: Duration,
    /// A connection that was idle for longer is not used again. Some servers close theirs after five
    /// seconds, and a request that crosses such an end is lost.
    pub idle_patience: Duration,
}

impl Default for HttpOptions {
    fn default() -> Self {
        Self {
            headers: Vec::new(),
            tls: TlsOptions::default(),
            max_connections: 256,
            max_answer_bytes: 2 << 30,
            connect_patience: Duration::from_secs(10),
            idle_patience: Duration::from_secs(4),
        }
    }
}

/// Names a call that is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket(u64);

pub struct HttpClient {
    background: Arc<Background>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl HttpClient {
    /// Connects when the first call comes.
    pub fn new(url: &str, options: HttpOptions) -> Result<Self, Error> {
        let address = Address::parse(url)?;
        let tls = address.secure.then(|| Tls::new(&address.host, &options.tls)).transpose()?;
        let headers = headers::parse(&options.headers)?;
        let (background, thread) = Background::start(move || Server::new(address, tls, headers, &options))?;
        Ok(Self { background, thread: Mutex::new(Some(thread)) })
    }

    /// The call comes back with its answer, so that its buffers are released where `done` puts them.
    pub fn infer(
        &self,
        call: Box<InferCall>,
        done: impl FnOnce(Box<InferCall>, Result<Answer, Error>) + Send + 'static,
    ) -> Ticket {
        let patience = call.patience;
        Ticket(self.background.submit(Job::Infer(call, Box::new(done)), patience))
    }

    pub fn call(&self, call: Call, done: impl FnOnce(Result<CallAnswer, Error>) + Send + 'static) -> Ticket {
        let patience = call.patience;
        Ticket(self.background.submit(Job::Call(call, Box::new(done)), patience))
    }

    /// Closes the connection of a call under way, so that the server frees its place. The call still
    /// ends, as cancelled.
    pub fn cancel(&self, ticket: Ticket) {
        self.background.cancel(ticket.0);
    }

    /// Ends what is under way and closes all connections, before it returns.
    pub fn close(&self) {
        self.background.close();
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if thread.is_some_and(|thread| thread.join().is_err()) {
            log::error!("the thread of an HTTP client has panicked");
        }
    }
}

impl Drop for HttpClient {
    /// The thread ends by itself.
    fn drop(&mut self) {
        self.background.close();
    }
}
