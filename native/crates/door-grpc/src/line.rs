//! What is known of a connection beside its calls: whether the client is there, and how it behaves.

use std::cell::Cell;
use std::rc::Rc;
use std::time::{Duration, Instant};

use kushi_net::{Activity, Stage};

use crate::options::KeepAlive;

/// Pings count as too frequent on a connection without calls where they are not permitted.
const INTERVAL_WITHOUT_CALLS: Duration = Duration::from_secs(2 * 60 * 60);
/// Frames that belong to no call, without a call that is answered in between: more are an attack.
const MOST_IDLE_FRAMES: u32 = 10_000;
/// Settings times open calls, in one second: HTTP/2 looks at all of these where a window changes, which takes a
/// microsecond for each. Clients that measure the line change it some times in a second.
const MOST_CALLS_SET: usize = 50_000;
const SECOND: Duration = Duration::from_secs(1);

pub(crate) struct Line {
    pub(crate) activity: Rc<Activity>,
    keep_alive: KeepAlive,
    open_calls: Cell<usize>,
    /// Since somebody asked.
    has_heard: Cell<bool>,
    /// Pings that were sent since a call was answered.
    pings_sent: Cell<u32>,
    /// Pings that came too early, and frames of no call, since a call was answered.
    strikes: Cell<u32>,
    idle_frames: Cell<u32>,
    /// Since part of an answer has left.
    window_frames: Cell<u32>,
    /// Calls that settings were for, and since when they are counted.
    calls_set: Cell<usize>,
    calls_set_since: Cell<Option<Instant>>,
    last_ping: Cell<Option<Instant>>,
    misbehaves: Cell<Option<Misbehaviour>>,
}

/// What no client has reason to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Misbehaviour {
    TooManyPings,
    TooManyFrames,
}

/// A call, until it has ended.
pub(crate) struct OpenCall(Rc<Line>);

impl Line {
    pub(crate) fn new(keep_alive: &KeepAlive, over_limit: bool) -> Self {
        Self {
            activity: Rc::new(Activity::lasting(over_limit)),
            keep_alive: *keep_alive,
            open_calls: Cell::new(0),
            has_heard: Cell::new(false),
            pings_sent: Cell::new(0),
            strikes: Cell::new(0),
            idle_frames: Cell::new(0),
            window_frames: Cell::new(0),
            calls_set: Cell::new(0),
            calls_set_since: Cell::new(None),
            last_ping: Cell::new(None),
            misbehaves: Cell::new(None),
        }
    }

    pub(crate) fn begin_call(self: &Rc<Self>) -> OpenCall {
        self.open_calls.set(self.open_calls.get() + 1);
        self.activity.enter(Stage::Work);
        OpenCall(self.clone())
    }

    /// Something has come from the client.
    pub(crate) fn hear(&self) {
        self.has_heard.set(true);
    }

    pub(crate) fn take_heard(&self) -> bool {
        self.has_heard.take()
    }

    /// Something of an answer has been sent: the client has reason to ask again.
    pub(crate) fn has_answered(&self) {
        self.pings_sent.set(0);
        self.strikes.set(0);
        self.idle_frames.set(0);
        self.window_frames.set(0);
        self.last_ping.set(None);
    }

    /// Part of an answer has left: clients ping to learn how much is under way, again and again while a large one comes.
    pub(crate) fn has_sent_data(&self) {
        self.window_frames.set(0);
        self.strikes.set(0);
        self.last_ping.set(None);
    }

    /// Whether a ping may be sent now; then it counts.
    pub(crate) fn may_ping(&self) -> bool {
        let most = self.keep_alive.max_pings_without_data;
        let may = (self.keep_alive.permit_without_calls || self.open_calls.get() > 0)
            && (most == 0 || self.pings_sent.get() < most);
        if may {
            self.pings_sent.set(self.pings_sent.get() + 1);
        }
        may
    }

    /// The client has sent a ping.
    pub(crate) fn has_pinged(&self, now: Instant) {
        self.has_sent_idle_frame();
        let interval = if self.keep_alive.permit_without_calls || self.open_calls.get() > 0 {
            self.keep_alive.min_ping_interval
        } else {
            self.keep_alive.min_ping_interval.max(INTERVAL_WITHOUT_CALLS)
        };
        let last = self.last_ping.replace(Some(now));
        if last.is_some_and(|last| now.saturating_duration_since(last) < interval) {
            let (strikes, most) = (self.strikes.get() + 1, self.keep_alive.max_ping_strikes);
            self.strikes.set(strikes);
            if most > 0 && strikes > most {
                self.misbehaves.set(Some(Misbehaviour::TooManyPings));
            }
        }
    }

    /// The client has sent settings.
    pub(crate) fn has_set(&self, now: Instant) {
        self.has_sent_idle_frame();
        if self.calls_set_since.get().is_none_or(|since| now.saturating_duration_since(since) >= SECOND) {
            self.calls_set_since.set(Some(now));
            self.calls_set.set(0);
        }
        self.calls_set.set(self.calls_set.get() + self.open_calls.get());
        if self.calls_set.get() > MOST_CALLS_SET {
            self.misbehaves.set(Some(Misbehaviour::TooManyFrames));
        }
    }

    /// The client has sent a frame that belongs to no call.
    pub(crate) fn has_sent_idle_frame(&self) {
        let count = self.idle_frames.get() + 1;
        self.idle_frames.set(count);
        if count > MOST_IDLE_FRAMES {
            self.misbehaves.set(Some(Misbehaviour::TooManyFrames));
        }
    }

    /// The client has made room for answers, of which as many may come as there are.
    pub(crate) fn has_made_room(&self) {
        let count = self.window_frames.get() + 1;
        self.window_frames.set(count);
        if count > MOST_IDLE_FRAMES {
            self.misbehaves.set(Some(Misbehaviour::TooManyFrames));
        }
    }

    pub(crate) fn misbehaviour(&self) -> Option<Misbehaviour> {
        self.misbehaves.get()
    }

    pub(crate) fn misbehaves(&self) -> bool {
        self.misbehaves.get().is_some()
    }
}

impl OpenCall {
    /// With this one.
    pub(crate) fn calls_of_connection(&self) -> usize {
        self.0.open_calls.get()
    }

    pub(crate) fn has_answered(&self) {
        self.0.has_answered();
    }
}

impl Drop for OpenCall {
    fn drop(&mut self) {
        let left = self.0.open_calls.get() - 1;
        self.0.open_calls.set(left);
        if left == 0 {
            self.0.activity.enter(Stage::Idle);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(keep_alive: KeepAlive) -> Rc<Line> {
        Rc::new(Line::new(&keep_alive, false))
    }

    #[test]
    fn the_third_ping_that_comes_too_early_is_one_too_many() {
        let (line, now) = (line(KeepAlive::default()), Instant::now());
        let _call = line.begin_call();
        for seconds in [0, 301, 302, 303] {
            line.has_pinged(now + Duration::from_secs(seconds));
            assert!(!line.misbehaves(), "{seconds}");
        }
        line.has_pinged(now + Duration::from_secs(304));
        assert!(line.misbehaves());
    }

    #[test]
    fn an_answer_gives_a_client_reason_to_ask_again() {
        let (line, now) = (line(KeepAlive::default()), Instant::now());
        let call = line.begin_call();
        for _ in 0..100 {
            line.has_pinged(now);
            line.has_pinged(now);
            line.has_pinged(now);
            call.has_answered();
        }
        assert!(!line.misbehaves());
    }

    #[test]
    fn pings_without_calls_are_as_permitted() {
        let now = Instant::now();
        for (permit_without_calls, misbehaves) in [(false, true), (true, false)] {
            let line = line(KeepAlive { permit_without_calls, ..KeepAlive::default() });
            for number in 0..4 {
                line.has_pinged(now + Duration::from_mins(6) * number);
            }
            assert_eq!(line.misbehaves(), misbehaves);
            assert_eq!(line.may_ping(), permit_without_calls);
            let _call = line.begin_call();
            assert!(line.may_ping());
        }
    }

    #[test]
    fn without_strikes_a_flood_is_still_one() {
        let line = line(KeepAlive { max_ping_strikes: 0, ..KeepAlive::default() });
        let now = Instant::now();
        for _ in 0..MOST_IDLE_FRAMES {
            line.has_pinged(now);
        }
        assert!(!line.misbehaves());
        line.has_sent_idle_frame();
        assert!(line.misbehaves());
    }

    #[test]
    fn room_is_made_for_what_comes_and_not_again_and_again() {
        let line = line(KeepAlive::default());
        for _ in 0..3 {
            for _ in 0..MOST_IDLE_FRAMES {
                line.has_made_room();
            }
            assert!(!line.misbehaves());
            line.has_sent_data();
        }
        for _ in 0..=MOST_IDLE_FRAMES {
            line.has_made_room();
        }
        assert!(line.misbehaves());
    }

    #[test]
    fn settings_count_as_many_times_as_there_are_calls() {
        let (line, now) = (line(KeepAlive::default()), Instant::now());
        let calls: Vec<_> = (0..1000).map(|_| line.begin_call()).collect();
        for second in 0..3 {
            for _ in 0..MOST_CALLS_SET / calls.len() {
                line.has_set(now + second * SECOND);
            }
            assert!(!line.misbehaves(), "{second}");
        }
        // An answer is no reason to set them again.
        calls[0].has_answered();
        line.has_set(now + 2 * SECOND);
        assert!(line.misbehaves());
    }

    #[test]
    fn a_client_that_gets_no_answers_is_asked_twice() {
        let line = line(KeepAlive::default());
        let call = line.begin_call();
        assert_eq!([line.may_ping(), line.may_ping(), line.may_ping()], [true, true, false]);
        call.has_answered();
        assert!(line.may_ping());
    }
}
