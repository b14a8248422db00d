//! The local door: the Open Inference Protocol in frames over a Unix socket, for processes of the same
//! user on the same host.
//!
//! One task per connection does everything: it reads what has come, submits it, and writes the answers
//! of a batch in one go. There is no task and no wake-up per request. Large tensors travel in shared
//! memory beside the socket. A client is trusted to be of the same user and with nothing else: whatever
//! it sends, it can only end its own connection, and everything that belonged to it goes with it.
#![forbid(unsafe_code)]

mod alarm;
mod answer;
mod answer_slots;
mod calls;
mod choices;
mod client_slots;
mod connection;
mod incoming;
mod outgoing;
mod request;
mod requests;
mod tasks;

use std::fmt;
use std::os::fd::AsFd;
use std::rc::Rc;
use std::sync::Arc;

use kushi_core::os_text;
use kushi_dataplane::{DataPlane, DoorKind};
use kushi_net::{Door, Guest, IoContext, Serving, Socket};

use crate::connection::Connection;

/// Copying more than this takes so long that others would wait: it is for another thread.
const LONG_COPY_BYTES: usize = 1 << 20;

/// The door for processes of the same user.
pub struct LocalDoor {
    plane: Arc<DataPlane>,
}

/// What a connection is served with: the door's own, and the io thread that it came to.
#[derive(Clone)]
struct LocalContext {
    plane: Arc<DataPlane>,
    io: Rc<IoContext>,
}

impl LocalDoor {
    pub fn new(plane: &Arc<DataPlane>) -> Self {
        Self { plane: plane.clone() }
    }
}

impl Door for LocalDoor {
    fn serve<'a>(&'a self, io: &'a Rc<IoContext>, socket: Socket, guest: &'a Guest) -> Serving<'a> {
        let context = LocalContext { plane: self.plane.clone(), io: io.clone() };
        Box::pin(async move { serve(&context, socket, guest).await })
    }

    fn answers_when_full(&self) -> bool {
        false
    }
}

/// The client broke the protocol; nothing behind it can be believed.
#[derive(Debug)]
struct Violation(String);

impl Violation {
    fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Serves one connection until it ends.
async fn serve(context: &LocalContext, socket: Socket, guest: &Guest) {
    let Socket::Unix(stream) = socket else { return };
    let peer = match kushi_shm::peer(stream.as_fd()) {
        Ok(peer) => peer,
        Err(error) => return log::debug!("a local connection was lost: {}", os_text(&error)),
    };
    let own = rustix::process::geteuid().as_raw();
    if peer.user != own && peer.user != 0 {
        let (process, user) = (peer.process, peer.user);
        return context.io.net.complaints.warn("stranger", || {
            format!("refused process {process} at the local door: it runs as user {user}, expected {own}")
        });
    }
    let _open = context.plane.traffic.connection(DoorKind::Local);
    let connection = match tokio::net::UnixStream::from_std(stream) {
        Ok(stream) => Connection::new(context, stream),
        Err(error) => return log::debug!("a local connection was lost: {}", os_text(&error)),
    };
    match connection.run(guest).await {
        Ok(()) => {}
        Err(violation) => {
            context.io.net.complaints.warn("violation", || {
                format!("closed the local connection of process {}: it sent {violation}", peer.process)
            });
        }
    }
}
