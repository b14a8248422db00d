//! Io threads: each a current-thread runtime that owns the connections handed to it.
//!
//! Everything reaches a thread through its inbox: sockets, leases and answers. The thread with the
//! fewest connections gets the next socket.

use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};

use kushi_core::{Drivers, Inbox, Lease, Mail, Mailbox, Step};
use tokio::runtime::LocalOptions;
use tokio::sync::Notify;
use tokio::task::AbortHandle;

use crate::connections::Connections;
use crate::crowd::Crowd;
use crate::handshakes::Handshakes;
use crate::house::House;
use crate::http::body_memory::BodyMemory;
use crate::listen::{Door, Guest, Listener, Socket, accept};
use crate::pending::Pending;

/// Sockets and leases that may wait for a thread to look at them.
pub(crate) const INBOX_CAPACITY: usize = 4096;
/// Of each io thread, for what would keep its connections waiting.
const SIDE_THREADS: usize = 4;
/// Connections over the bound of their door that one io thread keeps, to answer their questions after its
/// health and to tell them that it is full.
const SURPLUS: usize = 64;

/// What a connection is for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    Http(HttpDoor),
    Local,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum HttpDoor {
    Inference,
    Metrics,
}

enum Item {
    Listen(Listener, Arc<Door>, Arc<IoThreads>),
    CloseListeners,
    Socket(Socket, Guest),
    /// There are no descriptors for new connections.
    MakeRoom,
    Lead(Lease),
    Mail(Vec<Mail>),
    /// Connections finish what they are at and close.
    CloseConnections,
    Stop,
}

/// One io thread, as others see it.
pub(crate) struct IoThread {
    inbox: Inbox<Item>,
    connections: AtomicUsize,
    /// Connections with bytes that their clients have not made room for.
    blocked: AtomicUsize,
    /// Leases that are being driven here.
    leading: AtomicUsize,
}

pub(crate) struct IoThreads {
    threads: Vec<Arc<IoThread>>,
}

/// What tasks on an io thread share.
pub(crate) struct Desk {
    pub house: Arc<House>,
    pub pending: Rc<Pending>,
    pub mailbox: Arc<dyn Mailbox>,
    pub connections: Connections,
    pub handshakes: Handshakes,
    pub body_memory: BodyMemory,
    surplus: Crowd,
    thread: Arc<IoThread>,
}

impl Mailbox for IoThread {
    fn deliver(&self, mail: Vec<Mail>) {
        self.inbox.push_owed(Item::Mail(mail));
    }
}

impl IoThreads {
    pub(crate) fn spawn(
        count: usize,
        house: &Arc<House>,
    ) -> std::io::Result<(Arc<Self>, Vec<JoinHandle<()>>)> {
        let mut threads = Vec::new();
        let mut handles = Vec::new();
        for index in 0..count {
            let arrived = Arc::new(Notify::new());
            let bell = arrived.clone();
            let thread = Arc::new(IoThread {
                inbox: Inbox::new(INBOX_CAPACITY, move || bell.notify_one()),
                connections: AtomicUsize::new(0),
                blocked: AtomicUsize::new(0),
                leading: AtomicUsize::new(0),
            });
            let (own, house) = (thread.clone(), house.clone());
            let (report, started) = mpsc::channel();
            let work = move || match tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .max_blocking_threads(SIDE_THREADS)
                .build_local(LocalOptions::default())
            {
                Ok(runtime) => {
                    let _ = report.send(Ok(()));
                    // As a task like the others: waking the runtime's main future costs a look at the
                    // sockets, for every request that runs inline.
                    let attending = runtime.spawn_local(attend(Rc::new(Desk::new(house, own)), arrived));
                    if let Err(error) = runtime.block_on(attending) {
                        log::error!("an io thread ended: {error}");
                    }
                }
                Err(error) => {
                    let _ = report.send(Err(error));
                }
            };
            handles.push(thread::Builder::new().name(format!("kushi-io-{index}")).spawn(work)?);
            started.recv().map_err(std::io::Error::other)??;
            threads.push(thread);
        }
        Ok((Arc::new(Self { threads }), handles))
    }

    /// Accepts on the first thread and hands the sockets out to all.
    pub(crate) fn listen(self: &Arc<Self>, listener: Listener, door: Arc<Door>) {
        self.threads[0].inbox.push_owed(Item::Listen(listener, door, self.clone()));
    }

    pub(crate) fn close_listeners(&self) {
        self.threads[0].inbox.push_owed(Item::CloseListeners);
    }

    /// Hands a socket to the thread with the fewest connections. Closes it when too many wait there.
    pub(crate) fn hand_out(&self, socket: Socket, guest: Guest) -> bool {
        let Some(thread) =
            self.threads.iter().min_by_key(|thread| thread.connections.load(Ordering::Relaxed))
        else {
            return false;
        };
        thread.connections.fetch_add(1, Ordering::Relaxed);
        let handed = thread.inbox.push(Item::Socket(socket, guest)).is_ok();
        if !handed {
            thread.connections.fetch_sub(1, Ordering::Relaxed);
        }
        handed
    }

    /// Ends a silent connection on each thread, if there is one.
    pub(crate) fn make_room(&self) {
        for thread in &self.threads {
            // A thread with so much to do has it another time.
            let _ = thread.inbox.push(Item::MakeRoom);
        }
    }

    pub(crate) fn close_connections(&self) {
        for thread in &self.threads {
            thread.inbox.push_owed(Item::CloseConnections);
        }
    }

    pub(crate) fn stop(&self) {
        for thread in &self.threads {
            thread.inbox.push_owed(Item::Stop);
        }
    }

    /// Lets go of what came after the threads had ended: nobody will look at it.
    pub(crate) fn clear(&self) {
        for thread in &self.threads {
            thread.inbox.drain(&mut Vec::new());
        }
    }

    pub(crate) fn open_connections(&self) -> usize {
        self.threads.iter().map(|thread| thread.connections.load(Ordering::Relaxed)).sum()
    }

    /// Connections whose answers are written but have not all left.
    pub(crate) fn blocked_connections(&self) -> usize {
        self.threads.iter().map(|thread| thread.blocked.load(Ordering::Relaxed)).sum()
    }
}

/// Second leases go to an io thread that has nothing to run; with none, to an instance thread.
impl Drivers for IoThreads {
    fn offer(&self, lease: Lease) {
        let idle = self.threads.iter().find(|thread| thread.leading.load(Ordering::Acquire) == 0);
        if let Some(thread) = idle {
            // A full inbox drops the lease, which passes it on.
            let _ = thread.inbox.push(Item::Lead(lease));
        }
    }
}

async fn attend(desk: Rc<Desk>, arrived: Arc<Notify>) {
    let mut listeners: Vec<AbortHandle> = Vec::new();
    let mut burst = Vec::new();
    loop {
        arrived.notified().await;
        desk.thread.inbox.drain(&mut burst);
        for item in burst.drain(..) {
            match item {
                Item::Mail(mail) => mail.into_iter().for_each(|mail| desk.pending.deliver(mail)),
                Item::Socket(socket, guest) => desk.welcome(socket, guest),
                Item::MakeRoom => {
                    desk.connections.end_one_silent(None);
                }
                Item::Lead(lease) => desk.lead(lease),
                Item::Listen(listener, door, threads) => {
                    listeners.push(tokio::task::spawn_local(accept(listener, door, threads)).abort_handle());
                }
                Item::CloseListeners => listeners.drain(..).for_each(|listener| listener.abort()),
                Item::CloseConnections => {
                    desk.connections.close();
                    desk.handshakes.end();
                }
                Item::Stop => return,
            }
        }
    }
}

impl Desk {
    fn new(house: Arc<House>, thread: Arc<IoThread>) -> Self {
        Self {
            house,
            pending: Rc::new(Pending::default()),
            mailbox: thread.clone(),
            connections: Connections::default(),
            handshakes: Handshakes::default(),
            body_memory: BodyMemory::default(),
            surplus: Crowd::of(SURPLUS),
            thread,
        }
    }

    /// Drives a lease as a task of its own: it runs after all connections that are ready in this
    /// round have brought their requests, and survives the connection that began it.
    pub(crate) fn lead(self: &Rc<Self>, lease: Lease) {
        let thread = self.thread.clone();
        tokio::task::spawn_local(async move {
            thread.leading.fetch_add(1, Ordering::AcqRel);
            let _led = Finally(|| {
                thread.leading.fetch_sub(1, Ordering::AcqRel);
            });
            let mut next = lease;
            while let Step::Again(lease) = next.run() {
                next = lease;
                tokio::task::yield_now().await;
            }
        });
    }

    fn welcome(self: &Rc<Self>, socket: Socket, mut guest: Guest) {
        // A silent connection gives its place to one that may have a request.
        if guest.surplus && self.connections.end_one_silent(Some(guest.door())) {
            guest.surplus = false;
        }
        let desk = self.clone();
        tokio::task::spawn_local(async move {
            let _ended = Finally(|| {
                desk.thread.connections.fetch_sub(1, Ordering::Relaxed);
                desk.house.something_ended();
            });
            if guest.surplus {
                // Boxed: the others do not set aside the room for it.
                let place = desk.surplus.enter();
                if Box::pin(place.keep(desk.serve(socket, &guest))).await.is_none() {
                    log::debug!("a connection over the bound gave way to another");
                }
            } else {
                desk.serve(socket, &guest).await;
            }
        });
    }

    async fn serve(self: &Rc<Self>, socket: Socket, guest: &Guest) {
        match guest.purpose() {
            Purpose::Http(door) => crate::http::serve(self, socket, door, guest).await,
            Purpose::Local => crate::local::serve(self, socket).await,
        }
    }

    /// From now on connections are looked over.
    pub(crate) fn look_over_connections(self: &Rc<Self>) {
        if self.connections.need_looks() {
            let desk = self.clone();
            tokio::task::spawn_local(async move { desk.connections.look_over(&desk.house.limits).await });
        }
    }

    /// A connection's client has stopped reading, or reads again.
    pub(crate) fn count_blocked(&self, blocked: bool) {
        if blocked {
            self.thread.blocked.fetch_add(1, Ordering::Relaxed);
        } else {
            self.thread.blocked.fetch_sub(1, Ordering::Relaxed);
            self.house.something_ended();
        }
    }
}

/// Runs when it goes, after a panic too.
struct Finally<F: Fn()>(F);

impl<F: Fn()> Drop for Finally<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}
