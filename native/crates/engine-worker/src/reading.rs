//! What a process sends, dealt with by whoever reads it: the io thread on which most of its batches begin, or the
//! supervisor while there is none.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use bytes::Bytes;
use kushi_core::{Afterwards, Look, Watched, WatchingThread};

use crate::answers;
use crate::calls;
use crate::frame::{Head, kind};
use crate::incoming::{Came, Incoming, News};
use crate::logged::Logged;
use crate::metrics;
use crate::parts::{Garbage, TEXT_BYTES, text_of};
use crate::readiness;
use crate::worker::Shared;

/// So many batches in a row from elsewhere, and another io thread takes the reading over.
const MOST_STRANGERS: u32 = 64;
/// How often a thread reads before others have their turn.
const MOST_READS: usize = 4;

/// Of one process.
pub(crate) struct Reading {
    shared: Arc<Shared>,
    socket: Arc<OwnedFd>,
    conversation: Mutex<Conversation>,
    /// The number of the io thread that reads; 0: the supervisor does.
    thread: AtomicU64,
    /// Batches since the last that began on that thread.
    strangers: AtomicU32,
}

/// What has been heard.
struct Conversation {
    incoming: Incoming,
    logged: Logged,
    heard: Heard,
}

#[derive(Clone, Default)]
pub(crate) struct Heard {
    /// The model can be asked.
    pub(crate) is_ready: bool,
    pub(crate) has_answered: bool,
    /// What the model says of why it cannot be.
    pub(crate) failure: Option<String>,
    /// Nothing more is heard.
    pub(crate) end: Option<HeardEnd>,
}

#[derive(Clone, Copy)]
pub(crate) enum HeardEnd {
    Closed,
    Garbage(&'static str),
}

impl Reading {
    pub(crate) fn new(shared: Arc<Shared>, socket: Arc<OwnedFd>, incoming: Incoming) -> Self {
        let logged = Logged::new(shared.options.launch.name.clone());
        let conversation = Mutex::new(Conversation { incoming, logged, heard: Heard::default() });
        Self { shared, socket, conversation, thread: AtomicU64::new(0), strangers: AtomicU32::new(0) }
    }

    /// Deals with what there is.
    pub(crate) fn read(&self) -> Look {
        // What follows from answers comes when all of them are there, and nothing is locked.
        let _afterwards = Afterwards::open();
        self.conversation().read(&self.shared)
    }

    /// Does something while nobody deals with frames, for which batches are out of their places.
    pub(crate) fn beside<R>(&self, work: impl FnOnce() -> R) -> R {
        let _afterwards = Afterwards::open();
        let _conversation = self.conversation();
        work()
    }

    pub(crate) fn heard(&self) -> Heard {
        self.conversation().heard.clone()
    }

    /// To be called now and then.
    pub(crate) fn report(&self, now: Instant) {
        self.conversation().logged.report(now);
    }

    /// Nothing is heard from now on, whatever the process sends; who watches ends that.
    pub(crate) fn close(&self) {
        self.conversation().heard.end.get_or_insert(HeardEnd::Closed);
        let _ = rustix::net::shutdown(&self.socket, rustix::net::Shutdown::Both);
    }

    /// Whether an io thread reads.
    pub(crate) fn is_watched(&self) -> bool {
        self.thread.load(Ordering::Acquire) != 0
    }

    /// A batch begins on this thread. True: it is to read what comes, see [`Reading::watch`].
    pub(crate) fn is_wanted_here(&self) -> bool {
        let here = WatchingThread::number();
        if here == 0 {
            return false;
        }
        match self.thread.load(Ordering::Acquire) {
            0 => return true,
            thread if thread == here => self.strangers.store(0, Ordering::Relaxed),
            _ => drop(self.strangers.fetch_add(1, Ordering::Relaxed)),
        }
        false
    }

    /// Has this thread read from now on.
    pub(crate) fn watch(self: Arc<Self>) {
        let here = WatchingThread::number();
        if self.thread.compare_exchange(0, here, Ordering::AcqRel, Ordering::Acquire).is_err() {
            return;
        }
        self.strangers.store(0, Ordering::Relaxed);
        if WatchingThread::watch(self.socket.clone(), self.clone()).is_err() {
            self.left();
        }
    }

    fn conversation(&self) -> MutexGuard<'_, Conversation> {
        self.conversation.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Watched for Reading {
    fn look(&self) -> Look {
        match self.read() {
            Look::Done if self.strangers.load(Ordering::Relaxed) >= MOST_STRANGERS => Look::Over,
            look => look,
        }
    }

    fn left(&self) {
        self.thread.store(0, Ordering::Release);
        self.shared.ring();
    }
}

impl Conversation {
    fn read(&mut self, shared: &Arc<Shared>) -> Look {
        for _ in 0..MOST_READS {
            if self.heard.end.is_some() {
                return Look::Over;
            }
            let came = self.incoming.receive();
            if came == Came::Nothing {
                return Look::Done;
            }
            let dealt = self.deal(shared);
            if let Err(Garbage(what)) = dealt {
                self.heard.end = Some(HeardEnd::Garbage(what));
            } else if came == Came::End {
                self.heard.end = Some(HeardEnd::Closed);
            }
            if shared.is_to_renew() {
                shared.ring();
            }
        }
        Look::More
    }

    fn deal(&mut self, shared: &Arc<Shared>) -> Result<(), Garbage> {
        while let Some(news) = self.incoming.next()? {
            match news {
                News::Released(slot) => {
                    if let Some(outgoing) = &mut shared.state().outgoing {
                        outgoing.take_back(slot);
                    }
                }
                News::Frame(head, payload) => self.take(shared, head, &payload)?,
            }
        }
        if self.incoming.is_crowded()
            && let Some(outgoing) = &mut shared.state().outgoing
        {
            outgoing.give_back();
        }
        Ok(())
    }

    fn take(&mut self, shared: &Arc<Shared>, head: Head, payload: &Bytes) -> Result<(), Garbage> {
        match head.kind {
            kind::READY => {
                if !std::mem::replace(&mut self.heard.is_ready, true) {
                    shared.is_ready(head.count > 0);
                }
            }
            kind::FAILED => {
                self.heard.failure = Some(text_of(payload, TEXT_BYTES));
                shared.ring();
            }
            kind::RESPONSES | kind::RETURNED => {
                answers::take(shared, head, payload)?;
                self.heard.has_answered = true;
            }
            kind::ASK => answers::asked(shared, head, payload),
            kind::CALL => calls::begin(shared, head, payload)?,
            kind::CALL_CANCEL => calls::cancel(shared, head.id),
            kind::CALL_TAKEN => calls::taken(shared, head.id),
            kind::METRIC => metrics::change(&*shared.metrics, head, payload)?,
            kind::LOG => self.logged.write(head.count, payload),
            kind::READINESS => readiness::said(shared, head.count > 0),
            kind::FINALIZED => {}
            _ => return Err(Garbage("a frame of an unknown kind")),
        }
        Ok(())
    }
}
