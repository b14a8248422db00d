//! What a connection is at, and whether that goes on.
//!
//! Requests only set flags here. Once a second the connections of an io thread are looked over, and
//! those at which too long nothing has happened are woken: no request costs a timer or a look at the
//! clock, and a timeout comes up to a second late, never early.

use std::cell::Cell;
use std::time::Duration;

use crate::limits::Limits;

/// A read of so many bytes makes the connection set aside more for the next one.
const SWELLS_BYTES: usize = 8 << 10;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
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

#[derive(Debug)]
pub(crate) struct Activity {
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
    /// It holds more memory than a new connection.
    swollen: Cell<bool>,
    /// That memory is to be given back.
    rests: Cell<bool>,
    /// One connection too many: it does not get the patience of the others.
    surplus: bool,
}

impl Activity {
    pub(crate) fn new(surplus: bool) -> Self {
        Self {
            stage: Cell::new(Stage::Idle),
            blocked: Cell::new(false),
            moved: Cell::new(true),
            bytes: Cell::new(0),
            overdue: Cell::new(false),
            owing: Cell::new(Owing::Nothing),
            reads: Cell::new(0),
            swollen: Cell::new(false),
            rests: Cell::new(false),
            surplus,
        }
    }

    pub(crate) fn stage(&self) -> Stage {
        self.stage.get()
    }

    pub(crate) fn enter(&self, stage: Stage) {
        self.stage.set(stage);
        self.progress();
    }

    /// What was left of a refused body is in, or is waited for no longer.
    pub(crate) fn has_drained(&self) {
        if self.stage.get() == Stage::Drain {
            self.enter(Stage::Idle);
        }
    }

    pub(crate) fn reads(&self) -> usize {
        self.reads.get()
    }

    pub(crate) fn has_read(&self, bytes: usize) {
        self.reads.set(self.reads.get() + 1);
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

    /// Whether that is news.
    pub(crate) fn set_blocked(&self, blocked: bool) -> bool {
        let changed = self.blocked.replace(blocked) != blocked;
        if changed {
            self.progress();
        }
        changed
    }

    pub(crate) fn has_written(&self) {
        if self.blocked.get() {
            self.progress();
        }
    }

    /// The answer to a request is the connection's to write.
    pub(crate) fn has_answered(&self) {
        self.owing.set(Owing::Pieces);
    }

    /// It has all pieces of it.
    pub(crate) fn has_given_all(&self) {
        self.owing.set(Owing::Rest);
    }

    /// All that the connection has has left.
    pub(crate) fn has_flushed(&self) {
        if self.owing.get() == Owing::Rest {
            self.owing.set(Owing::Nothing);
        }
    }

    /// Nobody here has an answer to write: if one is written, it is about a head that cannot be read.
    pub(crate) fn owes_nothing(&self) -> bool {
        let waits = matches!(self.stage.get(), Stage::Idle | Stage::Head | Stage::Drain);
        waits && self.owing.get() == Owing::Nothing && !self.blocked.get()
    }

    /// Nothing begins on it any more.
    pub(crate) fn leave(&self) {
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
    pub(crate) fn take_overdue(&self) -> bool {
        self.overdue.replace(false)
    }

    /// Nothing but the end of the connection helps: a body that does not come is answered.
    pub(crate) fn is_lost(&self) -> bool {
        self.overdue.get() && (self.blocked.get() || self.stage.get() != Stage::Body)
    }

    /// The head of a request does not come, and no answer is on its way to the client.
    pub(crate) fn misses_head(&self) -> bool {
        self.stage.get() == Stage::Head && !self.blocked.get()
    }

    /// Makes a silent connection overdue; false for another, and for one that is already.
    pub(crate) fn dismiss(&self) -> bool {
        let dismissible = self.is_silent() && !self.moved.get() && !self.surplus;
        dismissible && !self.overdue.replace(true)
    }

    /// Whether it is time to give back the memory that a large request has left.
    pub(crate) fn take_rest(&self) -> bool {
        let rests = self.rests.take() && self.swollen.get() && self.is_silent();
        if rests {
            self.swollen.set(false);
        }
        rests
    }

    /// One look, `since` after the last at which something had happened. Answers whether something has
    /// happened again, or what is to happen now.
    pub(crate) fn look(&self, since: Duration, limits: &Limits) -> Look {
        let enough = if self.stage.get() == Stage::Body { limits.least_body_bytes() } else { 1 };
        if self.moved.take() || self.bytes.get() >= enough {
            self.bytes.set(0);
            return Look::Moved;
        }
        let patience = match self.stage.get() {
            _ if self.blocked.get() => limits.body_timeout,
            Stage::Idle if !self.surplus => limits.idle_timeout,
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
pub(crate) enum Look {
    Moved,
    Patience,
    Rest,
    Overdue,
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(3600);

    fn look(activity: &Activity, seconds: u64) -> Look {
        activity.look(Duration::from_secs(seconds), &Limits::default())
    }

    /// At a stage of which the last look has seen the beginning.
    fn at(stage: Stage) -> Activity {
        let activity = Activity::new(false);
        activity.enter(stage);
        assert_eq!(look(&activity, 1000), Look::Moved);
        activity
    }

    #[test]
    fn each_stage_has_its_patience() {
        for (stage, seconds) in [(Stage::Idle, 75), (Stage::Head, 10), (Stage::Body, 30), (Stage::Drain, 10)]
        {
            let activity = at(stage);
            assert_eq!(look(&activity, seconds - 1), Look::Patience, "{stage:?}");
            assert_eq!(look(&activity, seconds), Look::Overdue, "{stage:?}");
        }
        let activity = at(Stage::Work);
        assert_eq!(activity.look(LONG, &Limits::default()), Look::Patience);
        activity.set_blocked(true);
        assert_eq!(look(&activity, 0), Look::Moved);
        assert_eq!(look(&activity, 30), Look::Overdue);
        assert!(activity.is_lost());
    }

    #[test]
    fn what_is_said_of_a_late_head_is_not_said_within_an_answer() {
        let activity = Activity::new(false);
        activity.has_read(1);
        assert!(activity.misses_head());
        activity.set_blocked(true);
        assert!(!activity.misses_head());
    }

    #[test]
    fn an_answer_is_owed_from_when_it_is_found_until_it_has_been_written() {
        let activity = Activity::new(false);
        assert!(activity.owes_nothing());
        activity.enter(Stage::Work);
        assert!(!activity.owes_nothing());
        activity.enter(Stage::Idle);
        activity.has_answered();
        activity.has_flushed();
        assert!(!activity.owes_nothing(), "pieces are to come");
        activity.has_given_all();
        assert!(!activity.owes_nothing());
        activity.set_blocked(true);
        activity.has_flushed();
        assert!(!activity.owes_nothing(), "a part has left");
        activity.set_blocked(false);
        assert!(activity.owes_nothing());
    }

    #[test]
    fn bytes_prolong_a_body_and_not_a_head() {
        let activity = Activity::new(false);
        activity.has_read(1000);
        assert_eq!((activity.stage(), look(&activity, 0)), (Stage::Head, Look::Moved));
        activity.has_read(1 << 20);
        assert_eq!(look(&activity, 10), Look::Overdue);
        activity.enter(Stage::Body);
        assert!(!activity.take_overdue());
        assert_eq!(look(&activity, 0), Look::Moved);
        activity.has_read(1 << 20);
        assert_eq!(look(&activity, 40), Look::Moved);
        assert_eq!(look(&activity, 29), Look::Patience, "they count once");
    }

    #[test]
    fn a_body_that_comes_too_slowly_is_overdue() {
        let activity = at(Stage::Body);
        let least = Limits::default().least_body_bytes();
        activity.has_read(least - 1);
        assert_eq!(look(&activity, 29), Look::Patience);
        activity.has_read(1);
        assert_eq!(look(&activity, 29), Look::Moved, "what comes in several reads is added up");
        activity.has_read(least - 1);
        assert_eq!(look(&activity, 30), Look::Overdue);
        assert!(!activity.is_lost(), "it is answered");
        assert!(activity.take_overdue());
    }

    #[test]
    fn a_byte_prolongs_what_is_left_of_a_refused_body() {
        let activity = at(Stage::Drain);
        activity.has_read(1);
        assert_eq!(look(&activity, 100), Look::Moved);
        assert_eq!(look(&activity, 10), Look::Overdue);
        activity.has_drained();
        assert_eq!((activity.stage(), activity.is_lost()), (Stage::Idle, false));
        activity.has_read(1);
        activity.has_drained();
        assert_eq!(activity.stage(), Stage::Head, "the next request has begun");
    }

    #[test]
    fn only_a_silent_connection_is_dismissed() {
        for stage in [Stage::Head, Stage::Body, Stage::Work, Stage::Drain] {
            assert!(!at(stage).dismiss(), "{stage:?}");
        }
        assert!(!Activity::new(false).dismiss(), "it has been used since the last look");
        let surplus = Activity::new(true);
        look(&surplus, 0);
        assert!(!surplus.dismiss(), "it has no place to give");
        let activity = at(Stage::Idle);
        assert!(activity.dismiss());
        assert!(!activity.dismiss(), "for one that comes");
        assert!(activity.is_lost());
        activity.has_read(1);
        assert!(!activity.is_lost(), "a request has come meanwhile");
    }

    #[test]
    fn a_silent_connection_rests_once_after_a_large_request() {
        let activity = at(Stage::Idle);
        activity.has_read(SWELLS_BYTES);
        activity.enter(Stage::Idle);
        assert!(!activity.take_rest(), "it has just been used");
        assert_eq!(look(&activity, 1), Look::Moved);
        assert_eq!(look(&activity, 1), Look::Rest);
        assert!(activity.take_rest());
        assert_eq!(look(&activity, 2), Look::Patience);
        activity.has_read(SWELLS_BYTES);
        activity.enter(Stage::Idle);
        look(&activity, 1);
        assert_eq!(look(&activity, 1), Look::Rest);
        activity.has_read(1);
        assert!(!activity.take_rest(), "a request has come meanwhile");
    }
}
