//! Io threads: each a current-thread runtime that owns the connections handed to it.
//!
//! What others have for a thread reaches it through its inbox: sockets, leases and answers. The thread with the
//! fewest connections gets the next socket. One more thread of the same kind has no connections: it accepts
//! them, whatever the others compute.

mod driver;
mod duties;
mod threads;
mod watching;

use std::cell::{OnceCell, RefCell};
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use kushi_core::{Count, Inbox, Lease, Mail, Mailbox, Reply, WatchingThread, os_text};
use tokio::runtime::{LocalOptions, LocalRuntime};
use tokio::sync::Notify;

use crate::body_memory::BodyMemory;
use crate::connections::Connections;
use crate::departures::Departures;
use crate::handshakes::Handshakes;
use crate::io::driver::Driver;
use crate::io::duties::{Duties, Duty};
use crate::io::watching::Tasks;
use crate::listen::{Guest, Socket};
use crate::net::Net;
use crate::pending::{Pending, Waiting};
use crate::waiting_limit::WaitingLimit;

pub use crate::io::threads::IoThreads;

/// Sockets and leases that may wait for a thread to look at them.
pub const INBOX_CAPACITY: usize = 4096;
/// Of each io thread, for what would keep its connections waiting.
const SIDE_THREADS: usize = 4;
/// How long the end of a thread waits for them. What a hung disk keeps is left behind.
const SIDE_PATIENCE: Duration = Duration::from_secs(1);
/// There are no descriptors for the next life of a thread: try again after this.
const RESTART_PAUSE: Duration = Duration::from_millis(50);
/// Connections over the bound of their door that one io thread keeps, to answer their questions after its
/// health and to tell them that it is full.
const OVER_LIMIT: usize = 64;

enum Item {
    Begin(Duty),
    /// Answered when they are closed.
    CloseListeners(mpsc::Sender<()>),
    Socket(Socket, Guest, CountedConnection),
    /// There are no descriptors for new connections.
    MakeRoom,
    Lead(Lease, CountedConnection),
    Mail(Vec<Mail>),
    /// New requests are refused.
    BeginDrain,
    /// Connections finish what they are at and close.
    CloseConnections,
    Stop,
}

/// One io thread, as others see it.
pub struct IoThread {
    inbox: Inbox<Item>,
    connections: Count,
    /// Connections with bytes that their clients have not made room for.
    blocked: Count,
    /// Leases that are being driven here, or are on their way.
    leading: Count,
}

/// One of a thread's connections or leases, until it is dropped.
struct CountedConnection {
    thread: Arc<IoThread>,
    count: fn(&IoThread) -> &Count,
}

/// What tasks on an io thread share.
pub struct IoContext {
    pub net: Arc<Net>,
    pub(crate) pending: Rc<Pending>,
    pub mailbox: Arc<dyn Mailbox>,
    pub connections: Connections,
    pub departures: Departures,
    pub handshakes: Handshakes,
    pub body_memory: BodyMemory,
    over_limit: WaitingLimit,
    driver: Rc<Driver>,
    thread: Arc<IoThread>,
}

thread_local! {
    /// Where the io thread that runs here has its mail.
    static OWN: OnceCell<OwnMail> = const { OnceCell::new() };
}

struct OwnMail {
    thread: Arc<IoThread>,
    pub(crate) pending: Rc<Pending>,
    burst: Rc<RefCell<VecDeque<Item>>>,
}

impl OwnMail {
    /// Whether nothing has come from other threads that would be overtaken.
    fn is_next(&self, thread: &IoThread) -> bool {
        Arc::as_ptr(&self.thread) == std::ptr::from_ref(thread)
            && self.burst.borrow().is_empty()
            && thread.inbox.is_empty()
    }
}

impl Mailbox for IoThread {
    /// What this very thread has computed needs no way through the inbox.
    fn deliver(&self, mail: Vec<Mail>) {
        let left = OWN.with(|own| match own.get() {
            Some(own) if own.is_next(self) => {
                for mail in mail {
                    own.pending.deliver(mail);
                }
                None
            }
            _ => Some(mail),
        });
        if let Some(mail) = left {
            self.inbox.push_owed(Item::Mail(mail));
        }
    }
}

impl CountedConnection {
    fn connection(thread: &Arc<IoThread>) -> Self {
        thread.connections.begin();
        Self { thread: thread.clone(), count: |thread| &thread.connections }
    }

    fn lease(thread: &Arc<IoThread>) -> Self {
        thread.leading.begin();
        Self { thread: thread.clone(), count: |thread| &thread.leading }
    }

    /// The only lease of a thread that has none.
    fn only_lease(thread: &Arc<IoThread>) -> Option<Self> {
        let claimed = thread.leading.begin_only_one();
        claimed.then(|| Self { thread: thread.clone(), count: |thread| &thread.leading })
    }
}

impl Drop for CountedConnection {
    fn drop(&mut self) {
        (self.count)(&self.thread).end(1);
    }
}

/// What a life of a thread begins with, and may lack descriptors for.
struct Base {
    runtime: LocalRuntime,
    departures: Departures,
}

impl Base {
    fn new() -> std::io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .max_blocking_threads(SIDE_THREADS)
            .build_local(LocalOptions::default())?;
        Ok(Self { runtime, departures: Departures::new()? })
    }
}

impl IoThread {
    fn spawn(name: String, net: &Arc<Net>) -> std::io::Result<(Arc<Self>, thread::JoinHandle<()>)> {
        let arrived = Arc::new(Notify::new());
        let bell = arrived.clone();
        let thread = Arc::new(Self {
            inbox: Inbox::new(INBOX_CAPACITY, move || bell.notify_one()),
            connections: Count::default(),
            blocked: Count::default(),
            leading: Count::default(),
        });
        let (own, net) = (thread.clone(), net.clone());
        let (report, started) = mpsc::channel();
        let work = move || match Base::new() {
            Ok(base) => {
                let _ = report.send(Ok(()));
                own.live(base, &net, &arrived);
            }
            Err(error) => {
                let _ = report.send(Err(error));
            }
        };
        let handle = thread::Builder::new().name(name).spawn(work)?;
        started.recv().map_err(std::io::Error::other)??;
        Ok((thread, handle))
    }

    /// Until it is told to stop. After a panic it begins again: its connections are lost, those of the other
    /// threads are not.
    fn live(self: &Arc<Self>, mut base: Base, net: &Arc<Net>, arrived: &Arc<Notify>) {
        // What has come and has not been done yet.
        let burst = Rc::<RefCell<VecDeque<Item>>>::default();
        // The same for all lives: mail for requests of the one before finds nobody.
        let pending = Rc::new(Pending::new(net.budget.clone()));
        OWN.with(|own| {
            let (thread, pending, burst) = (self.clone(), pending.clone(), burst.clone());
            let _ = own.set(OwnMail { thread, pending, burst });
        });
        let duties = Rc::<Duties>::default();
        let mut closing = false;
        loop {
            let Base { runtime, departures } = base;
            let context = Rc::new(IoContext::new(net.clone(), self.clone(), pending.clone(), departures));
            if closing {
                context.connections.close();
            }
            let (own, burst, duties) = (context.clone(), burst.clone(), duties.clone());
            let ended = catch_unwind(AssertUnwindSafe(|| {
                // As a task like the others: waking the runtime's main future costs a look at the
                // sockets, for every request that runs inline.
                let attending = runtime.spawn_local(attend(context, burst, duties, arrived.clone()));
                let _watching = WatchingThread::begin(Rc::new(Tasks));
                runtime.block_on(attending).is_ok()
            }));
            runtime.shutdown_timeout(SIDE_PATIENCE);
            if matches!(ended, Ok(true)) {
                break;
            }
            net.complaints.error("io thread", || {
                "an io thread panicked: its connections are closed, and it begins again".to_owned()
            });
            closing = own.connections.is_closing();
            // With the leases that waited there: others drive them.
            drop(own);
            base = loop {
                match Base::new() {
                    Ok(base) => break base,
                    Err(error) => net.complaints.error("base", || {
                        format!("an io thread cannot begin again yet: {}", os_text(&error))
                    }),
                }
                thread::sleep(RESTART_PAUSE);
            };
            // For what has come meanwhile.
            arrived.notify_one();
        }
        self.inbox.close();
    }
}

async fn attend(
    context: Rc<IoContext>,
    burst: Rc<RefCell<VecDeque<Item>>>,
    duties: Rc<Duties>,
    arrived: Arc<Notify>,
) {
    duties.begin_again(&context.net);
    tokio::task::spawn_local(context.driver.clone().attend());
    let mut come = Vec::new();
    let own = context.clone();
    tokio::task::spawn_local(async move {
        if let Err(error) = own.departures.attend(&own.connections).await {
            log::warn!("clients that leave may be noticed late: {}", os_text(&error));
        }
    });
    loop {
        arrived.notified().await;
        context.thread.inbox.drain(&mut come);
        burst.borrow_mut().extend(come.drain(..));
        // One by one: a panic leaves the others to the next life.
        while let Some(item) = next(&burst) {
            match item {
                Item::Mail(mail) => mail.into_iter().for_each(|mail| context.pending.deliver(mail)),
                Item::Socket(socket, guest, counted) => context.welcome(socket, guest, counted),
                Item::MakeRoom => {
                    context.connections.end_one_silent(None);
                }
                Item::Lead(lease, counted) => context.driver.add(lease, counted),
                Item::Begin(duty) => duties.begin(duty, &context.net),
                Item::CloseListeners(report) => {
                    duties.close_listeners().await;
                    let _ = report.send(());
                }
                Item::BeginDrain => context.connections.begin_drain(),
                Item::CloseConnections => {
                    context.connections.close();
                    context.handshakes.end();
                }
                Item::Stop => return,
            }
        }
    }
}

fn next(burst: &RefCell<VecDeque<Item>>) -> Option<Item> {
    burst.borrow_mut().pop_front()
}

impl IoContext {
    fn new(net: Arc<Net>, thread: Arc<IoThread>, pending: Rc<Pending>, departures: Departures) -> Self {
        Self {
            net,
            pending,
            mailbox: thread.clone(),
            connections: Connections::default(),
            departures,
            handshakes: Handshakes::default(),
            body_memory: BodyMemory::default(),
            over_limit: WaitingLimit::of(OVER_LIMIT),
            driver: Rc::default(),
            thread,
        }
    }

    pub(crate) fn with_reply(&self, waiting: Waiting) -> (Waiting, Reply) {
        let reply = Reply::with_window(self.mailbox.clone(), waiting.key, self.net.budget.window());
        (waiting, reply)
    }

    /// This thread drives a model.
    pub(crate) fn lead(&self, lease: Lease) {
        self.driver.add(lease, CountedConnection::lease(&self.thread));
    }

    fn welcome(self: &Rc<Self>, socket: Socket, mut guest: Guest, counted: CountedConnection) {
        let context = self.clone();
        tokio::task::spawn_local(async move {
            let _ended = Finally(|| context.net.drain.something_ended());
            // Goes first.
            let _counted = counted;
            // Some may have left since it was accepted, and a silent connection gives its place to one that may
            // have a request.
            if guest.over_limit
                && (guest.has_room() || context.connections.end_one_silent(Some(guest.entrance())))
            {
                guest.over_limit = false;
            }
            if guest.over_limit {
                // Boxed: the others do not set aside the room for it.
                let place = context.over_limit.enter();
                if Box::pin(place.keep(context.serve(socket, &guest))).await.is_none() {
                    log::debug!("a connection over the bound gave way to another");
                }
            } else {
                context.serve(socket, &guest).await;
            }
        });
    }

    async fn serve(self: &Rc<Self>, socket: Socket, guest: &Guest) {
        guest.door().serve(self, socket, guest).await;
    }

    /// How long a client is waited for that gives nothing of a body, or takes nothing of an answer.
    pub fn patience(&self) -> Duration {
        let limits = &self.net.limits;
        if self.connections.is_draining() { limits.in_a_drain().body_timeout } else { limits.body_timeout }
    }

    /// From now on connections are looked over.
    pub fn look_over_connections(self: &Rc<Self>) {
        if self.connections.need_looks() {
            let context = self.clone();
            tokio::task::spawn_local(async move { context.connections.look_over(&context.net.limits).await });
        }
    }

    /// A connection's client has stopped reading, or reads again.
    pub fn count_blocked(&self, blocked: bool) {
        if blocked {
            self.thread.blocked.begin();
        } else {
            self.thread.blocked.end(1);
            self.net.drain.something_ended();
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

#[cfg(test)]
mod tests;
