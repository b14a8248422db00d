//! Small requests of a connection that has many at a time: each holds too little to count, and all together hold much.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use kushi_core::Error;

use crate::budget::{Budget, COUNTED_BYTES, Reservation};

/// What those of one connection hold without being counted.
const UNCOUNTED_BYTES: usize = 32 * COUNTED_BYTES;
/// What an open request holds beside what its client has sent: its task, its place in a queue, its way back.
const OPEN_BYTES: usize = 4 << 10;

/// Those of one connection.
#[derive(Default)]
pub struct SmallRequests(Arc<AtomicUsize>);

/// One of them, until it is dropped.
pub struct SmallRequest {
    budget: Arc<Budget>,
    held: Arc<AtomicUsize>,
    bytes: usize,
    /// `None`: it does not count.
    reservation: Option<Reservation>,
}

impl SmallRequests {
    /// Whether there is room for one that holds so many bytes.
    pub fn have_room(&self, bytes: usize, budget: &Budget) -> bool {
        let bytes = OPEN_BYTES + bytes;
        self.0.load(Ordering::Relaxed) + bytes <= UNCOUNTED_BYTES || budget.has_room(bytes)
    }

    /// One that holds so many bytes, if there is room for it.
    pub fn begin(&self, bytes: usize, budget: &Arc<Budget>) -> Result<SmallRequest, Error> {
        let mut request = self.open(budget);
        request.hold(bytes)?;
        Ok(request)
    }

    /// The same for what is there in any case.
    pub fn owe(&self, bytes: usize, budget: &Arc<Budget>) -> SmallRequest {
        let mut request = self.open(budget);
        request.owe(bytes);
        request
    }

    fn open(&self, budget: &Arc<Budget>) -> SmallRequest {
        SmallRequest { budget: budget.clone(), held: self.0.clone(), bytes: 0, reservation: None }
    }
}

impl SmallRequest {
    /// It holds so many bytes, as is known by now, if there is room for it.
    pub(crate) fn hold(&mut self, bytes: usize) -> Result<(), Error> {
        let bytes = OPEN_BYTES + bytes;
        if let Some(reservation) = self.counted(bytes) {
            match bytes.checked_sub(reservation.bytes()) {
                Some(more) => reservation.take(more)?,
                None => reservation.settle(bytes),
            }
        }
        self.now(bytes);
        Ok(())
    }

    /// The same for what is there in any case.
    pub(crate) fn owe(&mut self, bytes: usize) {
        let bytes = OPEN_BYTES + bytes;
        if let Some(reservation) = self.counted(bytes) {
            reservation.owe_in_all(bytes);
        }
        self.now(bytes);
    }

    /// Once it has counted, it goes on to.
    fn counted(&mut self, bytes: usize) -> Option<&mut Reservation> {
        let others = self.held.load(Ordering::Relaxed).saturating_sub(self.bytes);
        if self.reservation.is_none() && others + bytes > UNCOUNTED_BYTES {
            self.reservation = Some(self.budget.open());
        }
        self.reservation.as_mut()
    }

    fn now(&mut self, bytes: usize) {
        self.held.fetch_add(bytes, Ordering::Relaxed);
        self.held.fetch_sub(std::mem::replace(&mut self.bytes, bytes), Ordering::Relaxed);
    }

    pub(crate) fn is_counted(&self) -> bool {
        self.reservation.is_some()
    }
}

impl Drop for SmallRequest {
    fn drop(&mut self) {
        self.held.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_that_hold_much_together_count() {
        let budget = Arc::new(Budget::new(1 << 20));
        let small = SmallRequests::default();
        let begin = || small.begin(4 << 10, &budget);
        let first: Vec<_> = (0..64).map(|_| begin().unwrap()).collect();
        assert_eq!(budget.held(), 0, "they hold 8 KiB each");
        let counted: Vec<_> = (0..128).map(|_| begin().unwrap()).collect();
        assert!(counted.iter().all(SmallRequest::is_counted));
        assert_eq!(budget.held(), 1 << 20);
        assert!(begin().is_err(), "there is no room for more");
        let mut counted = counted;
        counted[0].hold(0).unwrap();
        assert_eq!(budget.held(), (1 << 20) - (4 << 10), "it holds less than it seemed to");
        counted[0].hold(4 << 10).unwrap();
        assert!(counted[0].hold(5 << 10).is_err());
        drop(first);
        assert!(begin().is_err(), "the others hold too much for one that does not count");
        drop(counted);
        assert_eq!(budget.held(), 0);
        let mut grows = small.begin(0, &budget).unwrap();
        assert!(!grows.is_counted());
        grows.hold(UNCOUNTED_BYTES).unwrap();
        assert_eq!(budget.held(), UNCOUNTED_BYTES + OPEN_BYTES, "one that has grown counts");
        grows.owe(1 << 20);
        assert_eq!(budget.held(), (1 << 20) + OPEN_BYTES, "what is there is not refused");
        assert!(grows.hold(2 << 20).is_err());
        drop(grows);
        assert_eq!(budget.held(), 0);
        assert!(!begin().unwrap().is_counted());
    }
}
