//! Descriptors that an io thread looks at for somebody else: what comes there is dealt with on the thread that has asked
//! for it, and needs no other thread to be woken.

use std::cell::{Cell, RefCell};
use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// What comes in on a descriptor.
pub trait Watched: Send + Sync {
    /// Deals with what is there, without waiting.
    fn look(&self) -> Look;

    /// The thread looks no more: it was told to, it ends, or it panicked.
    fn left(&self);
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look {
    /// All that was there is dealt with.
    Done,
    /// There may be more, once others had their turn.
    More,
    /// Nobody needs to look any more.
    Over,
}

/// What makes a thread one that watches.
pub trait Watcher {
    /// From now on, until the end of the thread or [`Look::Over`]. Fails where it is not watched.
    fn watch(&self, descriptor: Arc<OwnedFd>, watched: Arc<dyn Watched>) -> io::Result<()>;
}

thread_local! {
    /// The number of this thread among those that watch; 0: it does not.
    static NUMBER: Cell<u64> = const { Cell::new(0) };
    static WATCHER: RefCell<Option<Rc<dyn Watcher>>> = const { RefCell::new(None) };
}

static LAST: AtomicU64 = AtomicU64::new(0);

/// While it is there the calling thread watches.
#[must_use]
pub struct WatchingThread(());

impl WatchingThread {
    pub fn begin(watcher: Rc<dyn Watcher>) -> Self {
        NUMBER.set(LAST.fetch_add(1, Ordering::Relaxed) + 1);
        WATCHER.set(Some(watcher));
        Self(())
    }

    /// That of the calling thread, which nobody else ever has; 0: it does not watch.
    #[inline]
    pub fn number() -> u64 {
        NUMBER.get()
    }

    /// Has the calling thread watch a descriptor.
    pub fn watch(descriptor: Arc<OwnedFd>, watched: Arc<dyn Watched>) -> io::Result<()> {
        let here = WATCHER.with_borrow(Clone::clone).ok_or(io::ErrorKind::Unsupported)?;
        here.watch(descriptor, watched)
    }
}

impl Drop for WatchingThread {
    fn drop(&mut self) {
        NUMBER.set(0);
        WATCHER.set(None);
    }
}
