//! One after the other, of which one may never come back.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Whose turn it is, and since when.
type Now = Option<(String, Instant)>;

pub(crate) struct Turns {
    now: Mutex<Now>,
    over: Condvar,
}

/// Over when it is dropped.
pub(crate) struct Turn<'a>(&'a Turns);

impl Turns {
    pub(crate) const fn new() -> Self {
        Self { now: Mutex::new(None), over: Condvar::new() }
    }

    /// Waits for the turn of `name`. Fails with the name of another whose turn lasts for `longest`.
    pub(crate) fn take(&self, name: &str, longest: Duration) -> Result<Turn<'_>, String> {
        let mut now = self.now();
        while let Some((other, since)) = &*now {
            let left = longest.saturating_sub(since.elapsed());
            if left.is_zero() {
                return Err(other.clone());
            }
            (now, _) = self.over.wait_timeout(now, left).unwrap_or_else(PoisonError::into_inner);
        }
        *now = Some((name.to_owned(), Instant::now()));
        Ok(Turn(self))
    }

    fn now(&self) -> MutexGuard<'_, Now> {
        self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        *self.0.now() = None;
        self.0.over.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    const EVER: Duration = Duration::from_secs(3600);

    #[test]
    fn the_next_one_comes_when_the_one_before_is_over() {
        let turns = Turns::new();
        thread::scope(|scope| {
            let first = turns.take("a", EVER).expect("nobody is before it");
            let second = scope.spawn(|| turns.take("b", EVER).is_ok());
            drop(first);
            assert!(second.join().expect("no panic"));
        });
        assert!(turns.take("c", EVER).is_ok());
    }

    #[test]
    fn who_waits_for_one_that_does_not_come_back_hears_its_name() {
        let turns = Turns::new();
        let stuck = turns.take("a", EVER).expect("nobody is before it");
        assert_eq!(turns.take("b", Duration::from_millis(20)).err().as_deref(), Some("a"));
        assert_eq!(turns.take("c", Duration::ZERO).err().as_deref(), Some("a"), "at once");
        drop(stuck);
        assert!(turns.take("b", Duration::ZERO).is_ok());
    }
}
