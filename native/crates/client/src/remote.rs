//! The client of any server that speaks the Open Inference Protocol, over HTTP/1.1 or gRPC as its url says.
//!
//! What always holds: each call ends exactly once, on the client's own thread or, when there is none, on
//! the caller's; a request is sent at most once; what a server sends cannot make the client panic
//! or grow beyond its limits. The thread takes calls from an inbox, with one wake-up for a burst.

use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use kushi_core::Error;

use crate::address::{Address, Protocol};
use crate::background::{Background, Job};
use crate::tls::{Tls, TlsOptions};
use crate::{Answer, Call, CallAnswer, InferCall, Streamed, grpc, headers, http, local};

#[derive(Clone)]
pub struct RemoteOptions {
    /// Sent with every request, and shown nowhere.
    pub headers: Vec<(String, String)>,
    /// For `https` and `grpcs`.
    pub tls: TlsOptions,
    /// Open connections, each of which carries one call at a time over HTTP; further calls wait for one. gRPC needs
    /// no more than one.
    pub max_connections: usize,
    /// Of one answer's body.
    pub max_answer_bytes: usize,
    /// How long opening a connection may take, however patient a call is.
    pub connect_patience: Duration,
    /// A connection that was idle for longer is not used again. Some servers close theirs after five
    /// seconds, and a request that crosses such an end is lost.
    pub idle_patience: Duration,
}

impl Default for RemoteOptions {
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

pub struct RemoteClient {
    background: Arc<Background>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl RemoteClient {
    /// Connects when the first call comes.
    pub fn new(url: &str, options: RemoteOptions) -> Result<Self, Error> {
        let address = Address::parse(url)?;
        let spoken = match address.protocol {
            Protocol::Http => kushi_tls::HTTP_1_1,
            Protocol::Grpc => kushi_tls::HTTP_2,
        };
        let tls = address.secure.then(|| Tls::speaking(spoken, &address.host, &options.tls)).transpose()?;
        let headers = headers::parse(&options.headers)?;
        let (background, thread) = match address.protocol {
            Protocol::Http => Background::start(move || http::Server::new(address, tls, headers, &options)),
            Protocol::Grpc => Background::start(move || grpc::Server::new(address, tls, headers, &options)),
        }?;
        Ok(Self { background, thread: Mutex::new(Some(thread)) })
    }

    /// The same through a local door.
    pub fn local(door: &Arc<local::Door>) -> Result<Self, Error> {
        let door = door.clone();
        let (background, thread) = Background::start(move || local::Server::new(door))?;
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

    /// `deliver` hears of every answer, and at last of the end.
    pub fn stream(&self, call: Box<InferCall>, deliver: impl Fn(Streamed) + Send + 'static) -> Ticket {
        let patience = call.patience;
        Ticket(self.background.submit(Job::Stream(call, Box::new(deliver)), patience))
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
            log::error!("the thread of a client has panicked");
        }
    }
}

impl Drop for RemoteClient {
    /// The thread ends by itself.
    fn drop(&mut self) {
        self.background.close();
    }
}
