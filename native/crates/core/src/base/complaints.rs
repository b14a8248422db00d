//! What would be said for every connection or request, said now and then.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use log::Level;

/// In each stretch of time so long, no more is said than there is room for.
const STRETCH: Duration = Duration::from_secs(10);

/// By their kinds: one does not keep another back.
#[derive(Debug)]
pub struct Complaints {
    most: usize,
    kinds: Mutex<BTreeMap<&'static str, Said>>,
}

#[derive(Debug)]
struct Said {
    since: Instant,
    count: usize,
    left_out: usize,
}

impl Default for Complaints {
    fn default() -> Self {
        Self::new(1)
    }
}

impl Complaints {
    /// Room for so many lines of each kind in ten seconds.
    pub const fn new(most: usize) -> Self {
        Self { most, kinds: Mutex::new(BTreeMap::new()) }
    }

    pub fn warn(&self, kind: &'static str, what: impl FnOnce() -> String) {
        self.say(Level::Warn, kind, what);
    }

    pub fn error(&self, kind: &'static str, what: impl FnOnce() -> String) {
        self.say(Level::Error, kind, what);
    }

    fn say(&self, level: Level, kind: &'static str, what: impl FnOnce() -> String) {
        if let Some(left_out) = self.may_say(kind, Instant::now()) {
            log::log!(level, "{}{left_out}", what());
        }
    }

    /// What to say behind the line: how many of its kind were left out before it, if any were. `None`: say nothing.
    pub fn may_say(&self, kind: &'static str, now: Instant) -> Option<String> {
        let mut kinds = self.kinds.lock().unwrap_or_else(PoisonError::into_inner);
        let said = kinds.entry(kind).or_insert(Said { since: now, count: 0, left_out: 0 });
        if now.saturating_duration_since(said.since) >= STRETCH {
            (said.since, said.count) = (now, 0);
        }
        if said.count >= self.most {
            said.left_out += 1;
            return None;
        }
        said.count += 1;
        Some(match std::mem::take(&mut said.left_out) {
            0 => String::new(),
            1 => " (1 more line like this was left out before)".into(),
            left_out => format!(" ({left_out} more lines like this were left out before)"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_has_room_for_so_many_in_a_stretch_and_the_next_tells_of_the_rest() {
        let start = Instant::now();
        let complaints = Complaints::new(2);
        let say = |kind, seconds| complaints.may_say(kind, start + Duration::from_secs(seconds));
        let nothing = Some(String::new());
        let said: Vec<_> = (0..5).map(|_| say("rice", 0)).collect();
        assert_eq!(said, [nothing.clone(), nothing.clone(), None, None, None]);
        assert_eq!(say("fish", 0), nothing, "one kind does not keep another back");
        assert_eq!(say("rice", 10).as_deref(), Some(" (3 more lines like this were left out before)"));
        assert_eq!((say("rice", 10), say("rice", 19)), (nothing, None));
        assert_eq!(say("rice", 20).as_deref(), Some(" (1 more line like this was left out before)"));
    }
}
