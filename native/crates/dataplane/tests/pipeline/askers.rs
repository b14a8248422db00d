//! Three kinds of askers. Their mailboxes collect and wake; what follows from mail is done by the asker's own thread.

use std::cell::RefCell;
use std::sync::{Arc, Condvar, Mutex, PoisonError, mpsc};
use std::thread::{self, ThreadId};

use kushi_core::{Inbox, Lease, Mail, Mailbox};
use kushi_testkit::{PATIENCE, drive};

pub trait Asker {
    fn mailbox(&self) -> Arc<dyn Mailbox>;

    /// Waits for mail, and takes all that has come.
    fn take(&self) -> Vec<Mail>;

    fn lead(&self, lease: Lease);
}

/// Its inbox, and what hears of the first mail in it.
struct Post {
    inbox: Inbox<Vec<Mail>>,
    owner: ThreadId,
    /// Mail from the own thread needs no inbox.
    has_own: bool,
}

thread_local! {
    static OWN: RefCell<Vec<Mail>> = const { RefCell::new(Vec::new()) };
}

impl Mailbox for Post {
    fn deliver(&self, mail: Vec<Mail>) {
        if self.has_own && thread::current().id() == self.owner {
            OWN.with_borrow_mut(|own| own.extend(mail));
        } else {
            self.inbox.push_owed(mail);
        }
    }
}

/// Drives leases itself, and what it computes needs no way to it.
pub struct IoThread(Woken);

/// Is woken, and leaves leases to others.
pub struct EventLoop(Woken);

struct Woken {
    post: Arc<Post>,
    calls: mpsc::Receiver<()>,
}

impl Woken {
    fn new(has_own: bool) -> Self {
        let (call, calls) = mpsc::channel();
        let inbox = Inbox::new(0, move || {
            let _ = call.send(());
        });
        Self { post: Arc::new(Post { inbox, owner: thread::current().id(), has_own }), calls }
    }

    fn take(&self) -> Vec<Mail> {
        loop {
            let mut mail = OWN.take();
            let mut burst = Vec::new();
            self.post.inbox.drain(&mut burst);
            mail.extend(burst.into_iter().flatten());
            if !mail.is_empty() {
                return mail;
            }
            assert!(self.calls.recv_timeout(PATIENCE).is_ok(), "waited in vain for mail");
        }
    }
}

impl IoThread {
    pub fn new() -> Self {
        Self(Woken::new(true))
    }
}

impl EventLoop {
    pub fn new() -> Self {
        Self(Woken::new(false))
    }
}

impl Asker for IoThread {
    fn mailbox(&self) -> Arc<dyn Mailbox> {
        self.0.post.clone()
    }

    fn take(&self) -> Vec<Mail> {
        self.0.take()
    }

    fn lead(&self, lease: Lease) {
        drive(lease);
    }
}

impl Asker for EventLoop {
    fn mailbox(&self) -> Arc<dyn Mailbox> {
        self.0.post.clone()
    }

    fn take(&self) -> Vec<Mail> {
        self.0.take()
    }

    fn lead(&self, lease: Lease) {
        drop(lease);
    }
}

/// Sleeps until its mail comes, and drives leases itself.
#[derive(Default)]
pub struct BlockedThread(Arc<Letters>);

#[derive(Default)]
struct Letters {
    mail: Mutex<Vec<Mail>>,
    arrived: Condvar,
}

impl Mailbox for Letters {
    fn deliver(&self, mail: Vec<Mail>) {
        self.mail.lock().unwrap_or_else(PoisonError::into_inner).extend(mail);
        self.arrived.notify_one();
    }
}

impl Asker for BlockedThread {
    fn mailbox(&self) -> Arc<dyn Mailbox> {
        self.0.clone()
    }

    fn take(&self) -> Vec<Mail> {
        let mail = self.0.mail.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.0.arrived.wait_timeout_while(mail, PATIENCE, |mail| mail.is_empty());
        let mut mail = waited.unwrap_or_else(PoisonError::into_inner).0;
        assert!(!mail.is_empty(), "waited in vain for mail");
        std::mem::take(&mut mail)
    }

    fn lead(&self, lease: Lease) {
        drive(lease);
    }
}
