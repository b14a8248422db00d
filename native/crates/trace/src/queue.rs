//! What waits for a thread that writes: bounded, and whoever puts something in never waits.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

pub struct Queue<T> {
    inside: Mutex<Inside<T>>,
    changed: Condvar,
    most: usize,
}

struct Inside<T> {
    waiting: VecDeque<T>,
    /// What the bound counts.
    weight: usize,
    dropped: u64,
    /// Nothing more comes, and what is left has until then.
    closed: Option<Instant>,
    is_done: bool,
}

/// What a thread takes out.
pub struct Taken<T> {
    pub all: Vec<T>,
    /// How much has found no room so far.
    pub dropped: u64,
    /// When all has to be written, once nothing more comes.
    pub closed: Option<Instant>,
}

impl<T> Queue<T> {
    /// `most`: what all that waits may weigh.
    pub fn new(most: usize) -> Self {
        let inside = Inside { waiting: VecDeque::new(), weight: 0, dropped: 0, closed: None, is_done: false };
        Self { inside: Mutex::new(inside), changed: Condvar::new(), most }
    }

    /// False: there is no room, or the queue is closed. What weighs nothing has room until then.
    pub fn put(&self, item: T, weight: usize) -> bool {
        let mut inside = self.inside();
        let has_room = weight == 0 || inside.weight + weight <= self.most;
        if !has_room || inside.closed.is_some() {
            inside.dropped += weight as u64;
            return false;
        }
        inside.weight += weight;
        inside.waiting.push_back(item);
        drop(inside);
        self.changed.notify_all();
        true
    }

    /// Waits until something is in it, or it is closed. `enough`: once so much waits, or `patience` is over.
    pub fn take(&self, enough: usize, patience: Duration) -> Taken<T> {
        let until = Instant::now() + patience;
        let mut inside = self.inside();
        while inside.closed.is_none() && (inside.waiting.is_empty() || inside.weight < enough) {
            let left = until.saturating_duration_since(Instant::now());
            inside = match inside.waiting.is_empty() {
                true => self.changed.wait(inside).unwrap_or_else(PoisonError::into_inner),
                false if left.is_zero() => break,
                false => self.changed.wait_timeout(inside, left).unwrap_or_else(PoisonError::into_inner).0,
            };
        }
        inside.weight = 0;
        let all = std::mem::take(&mut inside.waiting).into();
        Taken { all, dropped: inside.dropped, closed: inside.closed }
    }

    /// When it was closed, and until when what is left has time.
    pub fn closed(&self) -> Option<Instant> {
        self.inside().closed
    }

    /// Sleeps so long, or until it is closed.
    pub fn sleep(&self, patience: Duration) {
        let until = Instant::now() + patience;
        let mut inside = self.inside();
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() || inside.closed.is_some() {
                return;
            }
            inside = self.changed.wait_timeout(inside, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Takes nothing more, and waits for [`Queue::done`], until then at most. False: it did not come.
    pub fn close(&self, until: Instant) -> bool {
        let mut inside = self.inside();
        inside.closed.get_or_insert(until);
        self.changed.notify_all();
        while !inside.is_done {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            inside = self.changed.wait_timeout(inside, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }

    /// Nobody takes anything any more.
    pub fn done(&self) {
        self.inside().is_done = true;
        self.changed.notify_all();
    }

    fn inside(&self) -> MutexGuard<'_, Inside<T>> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOON: Duration = Duration::from_millis(1);

    #[test]
    fn what_finds_no_room_is_counted() {
        let queue = Queue::new(3);
        assert!(queue.put('a', 2));
        assert!(!queue.put('b', 2));
        assert!(queue.put('c', 1));
        assert!(queue.put('d', 0));
        let taken = queue.take(1, SOON);
        assert_eq!((taken.all, taken.dropped), (vec!['a', 'c', 'd'], 2));
        assert!(queue.put('e', 3));
    }

    #[test]
    fn a_closed_queue_gives_what_it_has_and_takes_nothing() {
        let queue = Queue::new(3);
        assert!(queue.put('a', 1));
        let until = Instant::now() + SOON;
        assert!(!queue.close(until), "nobody is done");
        assert!(!queue.put('b', 0));
        let taken = queue.take(100, Duration::from_secs(3600));
        assert_eq!((taken.all, taken.closed), (vec!['a'], Some(until)));
        queue.done();
        assert!(queue.close(until));
    }
}
