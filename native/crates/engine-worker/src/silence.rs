//! For how long a process has said nothing that owes answers.

use std::time::{Duration, Instant};

/// Of the time between two looks no more counts: whoever does not look may be stopped as well, and the process with it.
const MOST_BETWEEN_LOOKS: Duration = Duration::from_secs(2);

pub(crate) struct Silence {
    looked: Instant,
    /// Answers, as counted then.
    heard: u64,
    lasted: Duration,
}

impl Silence {
    pub(crate) fn new(now: Instant) -> Self {
        Self { looked: now, heard: 0, lasted: Duration::ZERO }
    }

    /// `heard`: so many answers have come from it so far.
    pub(crate) fn look(&mut self, now: Instant, owes: bool, heard: u64) -> Duration {
        let passed = now.saturating_duration_since(self.looked).min(MOST_BETWEEN_LOOKS);
        self.looked = now;
        if owes && heard == self.heard {
            self.lasted += passed;
        } else {
            self.lasted = Duration::ZERO;
        }
        self.heard = heard;
        self.lasted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn it_lasts_from_the_first_look_at_which_answers_are_owed() {
        let begin = Instant::now();
        let mut silence = Silence::new(begin);
        let looks = [
            (1, false, 0),
            (2, true, 0),
            (3, true, 0),
            (4, true, 1),
            (5, true, 1),
            (6, false, 1),
            (7, true, 1),
        ];
        let lasted =
            looks.map(|(second, owes, heard)| silence.look(begin + second * SECOND, owes, heard).as_secs());
        assert_eq!(lasted, [0, 1, 2, 0, 1, 0, 1]);
    }

    #[test]
    fn time_in_which_nobody_looked_hardly_counts() {
        let begin = Instant::now();
        let mut silence = Silence::new(begin);
        assert_eq!(silence.look(begin + 3600 * SECOND, true, 0), MOST_BETWEEN_LOOKS);
    }
}
