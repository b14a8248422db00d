//! What a connection is at, and whether that goes on.
//!
//! Requests only set flags here. Once a second the connections of an io thread are looked over, and
//! those at which too long nothing has happened are woken: no request costs a timer or a look at the
//! clock, and a timeout comes up to a second late, never early.

use std::cell::Cell;
use std::ops::Range;
use std::time::Duration;

use crate::limits::Limits;

/// A read of so many bytes makes the connection set aside more for the next one.
const SWELLS_BYTES: usize = 8 << 10;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Nothing of the next request has come.
    Idle,
    /// Some of its head has.
    Head,
    /// The body is awaited.
    Body,
    /// The answer is the server's to find.
    Work,
    /// What is left of a refused body comes in; behind it the connection is idle.
    Drain,
}

/// What of an answer that has been found has not been written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Owing {
    Nothing,
    /// Pieces of it are still to come, whatever has left.
    Pieces,
    /// What hyper holds, which is all that is left.
    Rest,
}

/// The addresses of some bytes: the first, and the one behind the last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Span {
    pub start: usize,
    pub end: usize,
}

impl Span {
    pub fn of(bytes: &[u8]) -> Self {
        let Range { start, end } = bytes.as_ptr_range();
        Self { start: start.addr(), end: end.addr() }
    }
}

#[derive(Debug)]
pub struct Activity {
    stage: Cell<Stage>,
    /// The client does not make room for what is written.
    blocked: Cell<bool>,
    /// Since the connections were looked over.
    moved: Cell<bool>,
    /// Of a body, since the connection has last counted as moving.
    bytes: Cell<usize>,
    overdue: Cell<bool>,
    owing: Cell<Owing>,
    /// How often bytes have come from the socket.
    reads: Cell<usize>,
    /// Where those of the last time lie.
    last_read: Cell<Span>,
    /// It holds more memory than a new connection.
    swollen: Cell<bool>,
    /// That memory is to be given back.
    rests: Cell<bool>,
    /// The client has closed its side.
    deserted: Cell<bool>,
    /// There is no place for this connection: it does not get the patience of the others.
    over_limit: bool,
    /// It may be silent for as long as it likes.
    lasts: bool,
    /// Nor is its place given to another one.
    stays: bool,
}

impl Activity {
    pub fn new(over_limit: bool) -> Self {
        Self {
            stage: Cell::new(Stage::Idle),
            blocked: Cell::new(false),
            moved: Cell::new(true),
            bytes: Cell::new(0),
            overdue: Cell::new(false),
            owing: Cell::new(Owing::Nothing),
            reads: Cell::new(0),
            last_read: Cell::default(),
            swollen: Cell::new(false),
            rests: Cell::new(false),
            deserted: Cell::new(false),
            over_limit,
            lasts: false,
            stays: false,
        }
    }

    /// Of a connection that has no end of its own.
    pub fn lasting(over_limit: bool) -> Self {
        Self { lasts: true, ..Self::new(over_limit) }
    }

    /// Of a connection between processes of ours, which come back after any time.
    pub fn staying() -> Self {
        Self { stays: true, ..Self::lasting(false) }
    }

    pub fn stage(&self) -> Stage {
        self.stage.get()
    }

    /// A client that makes no room for what is written gains no time by it.
    pub fn enter(&self, stage: Stage) {
        self.stage.set(stage);
        if !self.blocked.get() {
            self.progress();
        }
    }

    /// What was left of a refused body is in, or is waited for no longer.
    pub fn has_drained(&self) {
        if self.stage.get() == Stage::Drain {
            self.enter(Stage::Idle);
        }
    }

    pub fn reads(&self) -> usize {
        self.reads.get()
    }

    pub fn last_read(&self) -> Span {
        self.last_read.get()
    }

    pub fn has_read(&self, bytes: &[u8]) {
        self.reads.set(self.reads.get() + 1);
        self.last_read.set(Span::of(bytes));
        let bytes = bytes.len();
        if bytes >= SWELLS_BYTES {
            self.swollen.set(true);
        }
        match self.stage.get() {
            Stage::Idle => self.enter(Stage::Head),
            Stage::Body | Stage::Drain => self.bytes.set(self.bytes.get().saturating_add(bytes)),
            // A head has its time, however it trickles in.
            Stage::Head | Stage::Work => {}
        }
    }

    /// So much of a body that is read in another way.
    pub fn has_taken_in(&self, bytes: usize) {
        self.bytes.set(self.bytes.get().saturating_add(bytes));
    }

    /// Whether that is news.
    pub fn set_blocked(&self, blocked: bool) -> bool {
        let changed = self.blocked.replace(blocked) != blocked;
        if changed {
            self.progress();
        }
        changed
    }

    pub fn has_written(&self) {
        if self.blocked.get() {
            self.progress();
        }
    }

    /// The answer to a request is the connection's to write.
    pub fn has_answered(&self) {
        self.owing.set(Owing::Pieces);
    }

    /// It has all pieces of it.
    pub fn has_given_all(&self) {
        self.owing.set(Owing::Rest);
    }

    /// All that the connection has has left.
    pub fn has_flushed(&self) {
        if self.owing.get() == Owing::Rest {
            self.owing.set(Owing::Nothing);
        }
    }

    /// Nobody here has an answer to write: if one is written, it is about a head that cannot be read.
    pub fn owes_nothing(&self) -> bool {
        let waits = matches!(self.stage.get(), Stage::Idle | Stage::Head | Stage::Drain);
        waits && self.owing.get() == Owing::Nothing && !self.blocked.get()
    }

    /// The client has closed its side. What it has sent may still be unread.
    pub fn set_deserted(&self) {
        self.deserted.set(true);
    }

    /// Nothing begins on it any more.
    pub fn leave(&self) {
        self.swollen.set(false);
    }

    fn progress(&self) {
        self.moved.set(true);
        self.overdue.set(false);
        self.rests.set(false);
    }

    fn is_silent(&self) -> bool {
        self.stage.get() == Stage::Idle && self.owes_nothing()
    }

    /// The body that is awaited does not come.
    pub fn take_overdue(&self) -> bool {
        self.overdue.replace(false)
    }

    /// Nothing but the end of the connection helps: a body that does not come is answered, and nobody waits for
    /// what a client asked for that has left.
    pub fn is_lost(&self) -> bool {
        let overdue = self.overdue.get() && (self.blocked.get() || self.stage.get() != Stage::Body);
        // The rest of the answer before it leaves first: the client may still read.
        let deserted = self.deserted.get() && self.owing.get() != Owing::Rest;
        overdue || deserted && self.stage.get() == Stage::Work
    }

    /// The head of a request does not come, and no answer is on its way to the client.
    pub fn misses_head(&self) -> bool {
        self.stage.get() == Stage::Head && !self.blocked.get()
    }

    /// Makes a silent connection overdue; false for another, and for one that is already.
    pub fn dismiss(&self) -> bool {
        let dismissible = self.is_silent() && !self.moved.get() && !self.over_limit && !self.stays;
        dismissible && !self.overdue.replace(true)
    }

    /// Whether it is time to give back the memory that a large request has left.
    pub fn take_rest(&self) -> bool {
        let rests = self.rests.take() && self.swollen.get() && self.is_silent();
        if rests {
            self.swollen.set(false);
        }
        rests
    }

    /// One look, `since` after the last at which something had happened. Answers whether something has
    /// happened again, or what is to happen now.
    pub fn look(&self, since: Duration, limits: &Limits) -> Look {
        let enough = if self.stage.get() == Stage::Body { limits.least_body_bytes() } else { 1 };
        if self.moved.take() || self.bytes.get() >= enough {
            self.bytes.set(0);
            return Look::Moved;
        }
        let patience = match self.stage.get() {
            _ if self.blocked.get() => limits.body_timeout,
            Stage::Idle if self.lasts && !self.over_limit => return Look::Patience,
            Stage::Idle if !self.over_limit => limits.idle_timeout,
            Stage::Idle | Stage::Drain | Stage::Head => limits.head_timeout,
            Stage::Body => limits.body_timeout,
            Stage::Work => return Look::Patience,
        };
        if since >= patience {
            self.overdue.set(true);
            Look::Overdue
        } else if self.swollen.get() && self.is_silent() {
            self.rests.set(true);
            Look::Rest
        } else {
            Look::Patience
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look {
    Moved,
    Patience,
    Rest,
    Overdue,
}

#[cfg(test)]
mod tests;
