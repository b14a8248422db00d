//! The bytes that requests in flight hold, over all doors, and their bound.
//!
//! A body reserves what it takes as it arrives, and is refused at once where that is too much. An answer
//! exists already: its bytes are owed, and keep the next bodies out. Where too much is owed, the next answers are
//! refused in place of being kept. A body that would never fit is refused as one that is too large, not as one that
//! comes at the wrong time.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use kushi_core::{Error, ErrorKind, Window};

/// Requests and answers below this are not counted where a connection has one at a time: there are no more of them than
/// connections.
pub const COUNTED_BYTES: usize = 16 << 10;
/// Reserved at a time, so that a body does not count every piece.
const STEP_BYTES: usize = 256 << 10;

#[derive(Debug)]
pub struct Budget {
    most: usize,
    held: AtomicUsize,
    /// The most since somebody asked.
    peak: AtomicUsize,
    refused: AtomicU64,
}

/// Given back when dropped.
#[derive(Debug)]
pub struct Reservation {
    budget: Arc<Budget>,
    bytes: usize,
}

impl Budget {
    pub fn new(most: usize) -> Self {
        Self { most, held: AtomicUsize::new(0), peak: AtomicUsize::new(0), refused: AtomicU64::new(0) }
    }

    pub fn held(&self) -> usize {
        self.held.load(Ordering::Relaxed)
    }

    /// The most that was held since this was last asked.
    pub fn take_peak(&self) -> usize {
        self.peak.swap(self.held(), Ordering::Relaxed)
    }

    /// What is held then.
    fn add(&self, bytes: usize) -> usize {
        let held = self.held.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes);
        if held > self.peak.load(Ordering::Relaxed) {
            self.peak.store(held, Ordering::Relaxed);
        }
        held
    }

    /// How often there was no room.
    pub fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    /// Whether a body of so many bytes has room where there is no other.
    pub fn check(&self, bytes: usize) -> Result<(), Error> {
        if bytes < COUNTED_BYTES || bytes <= self.most {
            return Ok(());
        }
        Err(Error::invalid(format!(
            "request of {bytes} bytes exceeds the maximum of {} bytes for all requests in flight. Use \
             --max-inflight-bytes to increase the limit.",
            self.most
        )))
    }

    /// Nothing yet.
    pub fn open(self: &Arc<Self>) -> Reservation {
        Reservation { budget: self.clone(), bytes: 0 }
    }

    /// What a request may have of answers that its client does not read: a small part of what all may hold.
    pub fn window(&self) -> Window {
        let window = Window::default();
        Window { bytes: window.bytes.min(self.most / 4), ..window }
    }

    /// Whether an answer that counts already is to be kept: a large one is not where others hold all that is
    /// allowed.
    pub fn check_owed(&self, bytes: usize) -> Result<(), Error> {
        let held = self.held();
        if bytes < COUNTED_BYTES || held.saturating_sub(bytes) < self.most {
            return Ok(());
        }
        self.refused.fetch_add(1, Ordering::Relaxed);
        let text = format!(
            "requests and answers in flight hold {held} bytes, at most {} are allowed (--max-inflight-bytes)",
            self.most
        );
        Err(Error::new(ErrorKind::Overloaded, text))
    }

    /// Whether so many bytes more have room.
    pub fn has_room(&self, bytes: usize) -> bool {
        self.held().saturating_add(bytes) <= self.most
    }

    fn take(&self, bytes: usize) -> Result<(), Error> {
        let held = self.add(bytes);
        if held <= self.most {
            return Ok(());
        }
        self.held.fetch_sub(bytes, Ordering::Relaxed);
        self.refused.fetch_add(1, Ordering::Relaxed);
        let text = format!(
            "requests in flight would hold {held} bytes, at most {} are allowed (--max-inflight-bytes)",
            self.most
        );
        Err(Error::new(ErrorKind::Overloaded, text))
    }
}

impl Reservation {
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether so many bytes more have room.
    pub fn has_room(&self, bytes: usize) -> bool {
        self.budget.has_room(bytes)
    }

    /// For a body of which so many bytes are there.
    pub fn cover(&mut self, bytes: usize) -> Result<(), Error> {
        if bytes < COUNTED_BYTES || bytes <= self.bytes {
            return Ok(());
        }
        self.budget.check(bytes)?;
        // A small budget is used to its end.
        let step = STEP_BYTES.min(self.budget.most / 8).max(1);
        let wanted = bytes.next_multiple_of(step).min(self.budget.most);
        self.budget.take(wanted - self.bytes)?;
        self.bytes = wanted;
        Ok(())
    }

    /// Counts so many bytes more, however few they are.
    pub fn take(&mut self, bytes: usize) -> Result<(), Error> {
        self.budget.take(bytes)?;
        self.bytes += bytes;
        Ok(())
    }

    /// The body is whole and has no more than these.
    pub fn settle(&mut self, bytes: usize) {
        if let Some(rest) = self.bytes.checked_sub(bytes) {
            self.budget.held.fetch_sub(rest, Ordering::Relaxed);
            self.bytes = bytes;
        }
    }

    /// Counts bytes that exist already.
    pub fn owe(&mut self, bytes: usize) {
        self.budget.add(bytes);
        self.bytes += bytes;
    }

    /// The same, so that it counts as many in all.
    pub fn owe_in_all(&mut self, bytes: usize) {
        if bytes > self.bytes {
            self.owe(bytes - self.bytes);
        } else if bytes < self.bytes {
            self.settle(bytes);
        }
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if self.bytes > 0 {
            self.budget.held.fetch_sub(self.bytes, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_refused_over_the_bound_and_come_back() {
        let budget = Arc::new(Budget::new(1 << 20));
        let mut first = budget.open();
        first.cover(COUNTED_BYTES - 1).unwrap();
        assert_eq!(budget.held(), 0, "small bodies are not counted");
        first.cover(900_000).unwrap();
        first.cover(1 << 20).unwrap();
        let mut second = budget.open();
        let error = second.cover(COUNTED_BYTES).unwrap_err();
        assert_eq!((error.kind, error.kind.retryable()), (ErrorKind::Overloaded, true));
        assert_eq!(budget.held(), 1 << 20, "what was refused is not held");
        first.settle(500_000);
        second.cover(400_000).unwrap();
        second.owe(1 << 20);
        drop(first);
        assert!(budget.open().cover(COUNTED_BYTES).is_err(), "answers keep bodies out");
        drop(second);
        assert_eq!(budget.held(), 0);
    }

    #[test]
    fn a_large_answer_is_kept_unless_others_hold_too_much() {
        let budget = Arc::new(Budget::new(1 << 20));
        let (mut first, mut second, mut small) = (budget.open(), budget.open(), budget.open());
        first.owe(2 << 20);
        budget.check_owed(first.bytes()).unwrap();
        second.owe(COUNTED_BYTES);
        small.owe(COUNTED_BYTES - 1);
        assert_eq!(budget.check_owed(second.bytes()).map_err(|error| error.kind), Err(ErrorKind::Overloaded));
        budget.check_owed(small.bytes()).unwrap();
        drop(first);
        budget.check_owed(second.bytes()).unwrap();
    }

    #[test]
    fn what_would_never_fit_is_not_worth_another_try() {
        let budget = Arc::new(Budget::new(COUNTED_BYTES + 7));
        budget.open().cover(COUNTED_BYTES + 7).unwrap();
        let error = budget.open().cover(COUNTED_BYTES + 8).unwrap_err();
        assert_eq!((error.kind, error.kind.retryable()), (ErrorKind::InvalidInput, false));
        assert_eq!(budget.held(), 0);
        assert!(Arc::new(Budget::new(1)).open().cover(COUNTED_BYTES - 1).is_ok(), "it is not counted");
    }
}
