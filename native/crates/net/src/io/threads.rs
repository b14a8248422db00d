//! All io threads, and the one that accepts for them.

use std::sync::{Arc, mpsc};
use std::thread;

use kushi_core::{Drivers, Lease};

use crate::io::duties::Duty;
use crate::io::{CountedConnection, IoThread, Item, SIDE_PATIENCE};
use crate::listen::{Entrance, Guest, Listener, Socket};
use crate::net::Net;

pub struct IoThreads {
    pub(super) threads: Vec<Arc<IoThread>>,
    /// The one that accepts.
    pub(super) reception: Arc<IoThread>,
}

impl IoThreads {
    pub fn spawn(count: usize, net: &Arc<Net>) -> std::io::Result<(Arc<Self>, Vec<thread::JoinHandle<()>>)> {
        let (reception, handle) = IoThread::spawn("kushi-accept".into(), net)?;
        for chore in &net.chores {
            reception.inbox.push_owed(Item::Begin(Duty::Chore(chore.clone())));
        }
        if !net.tls.is_empty() {
            reception.inbox.push_owed(Item::Begin(Duty::WatchTls));
        }
        let mut io = Self { threads: Vec::new(), reception };
        let mut handles = vec![handle];
        for index in 0..count {
            match IoThread::spawn(format!("kushi-io-{index}"), net) {
                Ok((thread, handle)) => {
                    io.threads.push(thread);
                    handles.push(handle);
                }
                Err(error) => {
                    io.stop();
                    for handle in handles {
                        drop(handle.join());
                    }
                    return Err(error);
                }
            }
        }
        Ok((Arc::new(io), handles))
    }

    /// Accepts connections and hands them out to all threads.
    pub fn listen(self: &Arc<Self>, listener: Listener, entrance: Arc<Entrance>) {
        let duty = Duty::Listen(Arc::new(listener), entrance, self.clone());
        self.reception.inbox.push_owed(Item::Begin(duty));
    }

    /// Returns when nobody can connect any more, and all who did have been handed out.
    pub fn close_listeners(&self) {
        let (report, closed) = mpsc::channel();
        self.reception.inbox.push_owed(Item::CloseListeners(report));
        // Without an answer that thread has ended, or stayed behind in the process that was forked.
        let _ = closed.recv_timeout(SIDE_PATIENCE);
    }

    /// Hands a socket to the thread with the fewest connections. Closes it when too many wait there.
    pub fn hand_out(&self, socket: Socket, guest: Guest) -> bool {
        let Some(thread) = self.threads.iter().min_by_key(|thread| thread.connections.get()) else {
            return false;
        };
        thread.inbox.push(Item::Socket(socket, guest, CountedConnection::connection(thread))).is_ok()
    }

    /// Ends a silent connection on each thread, if there is one.
    pub fn make_room(&self) {
        for thread in &self.threads {
            // A thread with so much to do has it another time.
            let _ = thread.inbox.push(Item::MakeRoom);
        }
    }

    pub fn begin_drain(&self) {
        for thread in &self.threads {
            thread.inbox.push_owed(Item::BeginDrain);
        }
    }

    pub fn close_connections(&self) {
        for thread in &self.threads {
            thread.inbox.push_owed(Item::CloseConnections);
        }
    }

    pub fn stop(&self) {
        for thread in self.threads.iter().chain([&self.reception]) {
            thread.inbox.push_owed(Item::Stop);
        }
    }

    pub fn open_connections(&self) -> usize {
        self.threads.iter().map(|thread| thread.connections.get()).sum()
    }

    /// Connections whose answers are written but have not all left.
    pub fn blocked_connections(&self) -> usize {
        self.threads.iter().map(|thread| thread.blocked.get()).sum()
    }
}

/// Second leases go to an io thread that has nothing to run; with none, to an instance thread.
impl Drivers for IoThreads {
    fn offer(&self, lease: Lease) {
        let claim = |thread: &Arc<IoThread>| Some((thread.clone(), CountedConnection::only_lease(thread)?));
        if let Some((thread, counted)) = self.threads.iter().find_map(claim) {
            // A full inbox drops the lease, which passes it on.
            let _ = thread.inbox.push(Item::Lead(lease, counted));
        }
    }
}
