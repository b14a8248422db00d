//! How many answers a request may have that its asker has not taken.
//!
//! An engine that gives a request many answers sends them while the request's [`Window`] has room, and can be woken
//! once it has room again. Each of these answers carries its [`Credit`], which goes back where it is dropped: with the
//! answer that is taken, and with one that is given up on its way. A request with one answer needs no credit.
//!
//! The lock here is one request's own, and no callback runs under it. Checked by the loom tests.

use std::sync::Arc;

use smallvec::SmallVec;

use crate::Claim;
use crate::base::sync::{Mutex, lock};

/// How much a request may have that its asker has not taken: so many answers, and so many bytes of them. An answer is
/// sent while there are fewer, so the last one may go beyond the bytes, and one answer always fits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    pub answers: usize,
    pub bytes: usize,
}

impl Default for Window {
    /// Enough tokens that an engine does not wait for an asker which is woken once for many of them, and about as many
    /// bytes as the buffers of a socket hold.
    fn default() -> Self {
        Self { answers: 64, bytes: 1 << 20 }
    }
}

/// An answer's place in the window of its request. Whoever has taken the answer drops it, which may wake the engine: on
/// this thread, under no lock of the core.
pub struct Credit {
    claim: Arc<Claim>,
    bytes: usize,
}

impl Credit {
    /// `None`: there is no room.
    pub(crate) fn take(claim: &Arc<Claim>, bytes: usize) -> Option<Self> {
        claim.account.take(bytes).then(|| Self { claim: claim.clone(), bytes })
    }
}

impl Drop for Credit {
    fn drop(&mut self) {
        self.claim.account.give_back(self.bytes);
    }
}

pub(crate) type Wake = Box<dyn FnOnce() + Send>;

/// The window of one request, and what of it is used.
pub(crate) struct Account {
    window: Window,
    used: Mutex<Used>,
}

#[derive(Default)]
struct Used {
    answers: usize,
    bytes: usize,
    /// Called once there is room, or nobody waits for answers any more.
    wake: Option<Wake>,
    /// Called once nobody waits for answers any more.
    gone: SmallVec<[Wake; 1]>,
}

impl Used {
    /// Does not ask how large the next answer is: otherwise who is told of room might find none.
    fn has_room(&self, window: Window) -> bool {
        self.answers == 0 || self.answers < window.answers && self.bytes < window.bytes
    }
}

impl Account {
    pub(crate) fn new(window: Window) -> Self {
        Self { window, used: Mutex::default() }
    }

    fn take(&self, bytes: usize) -> bool {
        let mut used = lock(&self.used);
        let has_room = used.has_room(self.window);
        if has_room {
            used.answers += 1;
            used.bytes += bytes;
        }
        has_room
    }

    fn give_back(&self, bytes: usize) {
        let wake = {
            let mut used = lock(&self.used);
            used.answers -= 1;
            used.bytes -= bytes;
            if used.has_room(self.window) { used.wake.take() } else { None }
        };
        call(wake);
    }

    /// Whoever gives the request up says so first, and calls [`Account::give_up`] then: `is_given_up` is asked under
    /// the lock.
    pub(crate) fn when_room(&self, wake: Wake, is_given_up: impl FnOnce() -> bool) {
        // The one whose place it takes goes when the lock is free again.
        let (wake, _earlier) = {
            let mut used = lock(&self.used);
            if used.has_room(self.window) || is_given_up() {
                (Some(wake), None)
            } else {
                (None, used.wake.replace(wake))
            }
        };
        call(wake);
    }

    /// The same for those who wait for nothing else.
    pub(crate) fn when_given_up(&self, wake: Wake, is_given_up: impl FnOnce() -> bool) {
        let wake = {
            let mut used = lock(&self.used);
            if is_given_up() {
                Some(wake)
            } else {
                used.gone.push(wake);
                None
            }
        };
        call(wake);
    }

    /// Whether somebody waits for room.
    pub(crate) fn is_waited_for(&self) -> bool {
        lock(&self.used).wake.is_some()
    }

    pub(crate) fn give_up(&self) {
        let (wake, gone) = {
            let mut used = lock(&self.used);
            (used.wake.take(), std::mem::take(&mut used.gone))
        };
        wake.into_iter().chain(gone).for_each(|wake| wake());
    }
}

fn call(wake: Option<Wake>) {
    if let Some(wake) = wake {
        wake();
    }
}

#[cfg(all(test, loom))]
mod loom_tests;
