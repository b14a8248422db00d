//! Clients that leave, noticed while nothing is read from them.
//!
//! Whoever reads from a connection sees its end. What a client has sent behind its request is not read before the
//! answer, and with it the end of the connection: the kernel tells of that, whatever is still unread.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use kushi_core::os_text;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::time::Timespec;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::connections::{Connections, Key};

/// Told of at a time.
const BURST: usize = 64;

pub struct Departures {
    epoll: OwnedFd,
}

impl Departures {
    pub fn new() -> io::Result<Self> {
        Ok(Self { epoll: epoll::create(CreateFlags::CLOEXEC)? })
    }

    /// Until it is closed.
    pub fn watch(&self, socket: impl AsFd, key: Key) {
        // Once: the other end does not come back.
        let flags = EventFlags::RDHUP | EventFlags::ONESHOT;
        if let Err(error) = epoll::add(&self.epoll, socket, EventData::new_u64(key.0), flags) {
            log::debug!("the end of a connection may be noticed late: {}", os_text(&error.into()));
        }
    }

    /// Tells `connections` whose clients have left, for as long as there are any.
    pub async fn attend(&self, connections: &Connections) -> io::Result<()> {
        #[allow(
            deprecated,
            reason = "what takes its place is unsafe; this descriptor is open until it is dropped"
        )]
        let bell = AsyncFd::with_interest(self.epoll.as_fd(), Interest::READABLE)?;
        let mut left: Vec<Event> = Vec::with_capacity(BURST);
        loop {
            let mut ready = bell.readable().await?;
            left.clear();
            epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut left), Some(&Timespec::default()))?;
            for event in &left {
                connections.has_left(Key(event.data.u64()));
            }
            if left.len() < BURST {
                ready.clear_ready();
            }
            drop(ready);
            tokio::task::yield_now().await;
        }
    }
}
