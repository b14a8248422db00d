//! What a connection is at, and whether that goes on.
//!
//! Requests only set flags here. Once a second the connections of an io thread are looked over, and
//! those at which too long nothing has happened are woken: no request costs a timer or a look at the
//! clock, and a timeout comes up to a second late, never early.

use std::cell::Cell;
use std::time::Duration;

use crate::limits::Limits;

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
    overdue: Cell<bool>,
    owing: Cell<Owing>,
    /// How often bytes have come from the socket.
    reads: Cell<usize>,
    /// One connection too many: it does not get the patience of the others.
    surplus: bool,
}

impl Activity {
    pub(crate) fn new(surplus: bool) -> Self {
        Self {
            stage: Cell::new(Stage::Idle),
            blocked: Cell::new(false),
            moved: Cell::new(true),
            overdue: Cell::new(false),
            owing: Cell::new(Owing::Nothing),
            reads: Cell::new(0),
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

    pub(crate) fn reads(&self) -> usize {
        self.reads.get()
    }

    pub(crate) fn has_read(&self) {
        self.reads.set(self.reads.get() + 1);
        match self.stage.get() {
            Stage::Idle => self.enter(Stage::Head),
            Stage::Body => self.progress(),
            // A head has its time, however it trickles in.
            Stage::Head | Stage::Work | Stage::Drain => {}
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

    fn progress(&self) {
        self.moved.set(true);
        self.overdue.set(false);
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

    /// One look, `since` after the last at which something had happened. Answers whether something has
    /// happened again, or whether it has become overdue.
    pub(crate) fn look(&self, since: Duration, limits: &Limits) -> Look {
        if self.moved.take() {
            return Look::Moved;
        }
        let patience = match self.stage.get() {
            _ if self.blocked.get() => limits.body_timeout,
            Stage::Idle | Stage::Drain if !self.surplus => limits.idle_timeout,
            Stage::Idle | Stage::Drain | Stage::Head => limits.head_timeout,
            Stage::Body => limits.body_timeout,
            Stage::Work => return Look::Patience,
        };
        if since < patience {
            return Look::Patience;
        }
        self.overdue.set(true);
        Look::Overdue
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Look {
    Moved,
    Patience,
    Overdue,
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(3600);

    fn look(activity: &Activity, seconds: u64) -> Look {
        activity.look(Duration::from_secs(seconds), &Limits::default())
    }

    #[test]
    fn each_stage_has_its_patience() {
        for (stage, seconds) in [(Stage::Idle, 75), (Stage::Head, 10), (Stage::Body, 30)] {
            let activity = Activity::new(false);
            activity.enter(stage);
            assert_eq!(look(&activity, 1000), Look::Moved);
            assert_eq!(look(&activity, seconds - 1), Look::Patience, "{stage:?}");
            assert_eq!(look(&activity, seconds), Look::Overdue, "{stage:?}");
        }
        let activity = Activity::new(false);
        activity.enter(Stage::Work);
        activity.look(LONG, &Limits::default());
        assert_eq!(activity.look(LONG, &Limits::default()), Look::Patience);
        activity.set_blocked(true);
        assert_eq!(look(&activity, 0), Look::Moved);
        assert_eq!(look(&activity, 30), Look::Overdue);
        assert!(activity.is_lost());
    }

    #[test]
    fn what_is_said_of_a_late_head_is_not_said_within_an_answer() {
        let activity = Activity::new(false);
        activity.has_read();
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
        activity.has_read();
        assert_eq!((activity.stage(), look(&activity, 0)), (Stage::Head, Look::Moved));
        activity.has_read();
        assert_eq!(look(&activity, 10), Look::Overdue);
        activity.enter(Stage::Body);
        assert!(!activity.take_overdue());
        assert_eq!(look(&activity, 0), Look::Moved);
        activity.has_read();
        assert_eq!(look(&activity, 40), Look::Moved);
    }
}
