//! What would be said for every connection, said now and then.

use std::time::{Duration, Instant};

/// What has been said is not said again before this.
const SAY_AGAIN: Duration = Duration::from_secs(10);

#[derive(Default)]
pub(crate) struct Complaints(Option<Instant>);

impl Complaints {
    pub(crate) fn say(&mut self, what: impl FnOnce() -> String) {
        if self.0.is_none_or(|said| said.elapsed() >= SAY_AGAIN) {
            self.0 = Some(Instant::now());
            log::warn!("{}", what());
        }
    }
}
