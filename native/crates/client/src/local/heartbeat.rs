//! Whether the server still lives: a pure function of what was heard and asked, and when.
//!
//! Only calls in flight need an answer to that. Any byte is a sign of life, and so is room in a socket
//! that was full.

use std::time::{Duration, Instant};

/// Silence after which the server is asked for a sign of life.
pub(crate) const PING_AFTER: Duration = Duration::from_millis(250);
/// Silence after that question that no living server leaves.
pub(crate) const LOST_AFTER: Duration = Duration::from_millis(500);
/// The same of a server that works, or waits for a processor.
pub(crate) const LOST_AT_WORK_AFTER: Duration = Duration::from_secs(10);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Beat {
    /// No call waits.
    Rest,
    /// Nothing to do before this moment.
    Wait(Instant),
    Ping,
    /// To be believed only by who has looked at the socket at `now`.
    Lost,
}

/// `heard` is the last sign of life, or the moment the first call in flight began, if that is later.
pub(crate) fn beat(now: Instant, heard: Instant, pinged: Option<Instant>, in_flight: usize) -> Beat {
    if in_flight == 0 {
        return Beat::Rest;
    }
    let (due, then) = match pinged.filter(|&pinged| pinged > heard) {
        None => (heard + PING_AFTER, Beat::Ping),
        Some(pinged) => (pinged + LOST_AFTER, Beat::Lost),
    };
    if now < due { Beat::Wait(due) } else { then }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn rests_while_nothing_is_in_flight() {
        let now = Instant::now();
        assert_eq!(beat(now + 3600 * 1000 * MS, now, Some(now + MS), 0), Beat::Rest);
    }

    #[test]
    fn asks_after_a_silence_and_gives_up_after_a_longer_one() {
        let start = Instant::now();
        assert_eq!(beat(start, start, None, 1), Beat::Wait(start + 250 * MS));
        assert_eq!(beat(start + 250 * MS, start, None, 1), Beat::Ping);
        let pinged = start + 260 * MS;
        assert_eq!(beat(pinged, start, Some(pinged), 1), Beat::Wait(pinged + 500 * MS));
        assert_eq!(beat(pinged + 500 * MS, start, Some(pinged), 1), Beat::Lost);
    }

    #[test]
    fn any_byte_after_the_question_begins_a_new_silence() {
        let start = Instant::now();
        let heard = start + 700 * MS;
        assert_eq!(beat(heard, heard, Some(start + 250 * MS), 1), Beat::Wait(heard + 250 * MS));
    }

    #[test]
    fn a_late_look_asks_before_it_gives_up() {
        let start = Instant::now();
        assert_eq!(beat(start + 60_000 * MS, start, None, 1), Beat::Ping);
    }
}
