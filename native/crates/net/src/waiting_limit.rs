//! Those that wait on an io thread, at most so many: beyond that the one that has waited for the longest
//! gives way.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use tokio::sync::Notify;

pub struct WaitingLimit {
    most: usize,
    /// In the order in which they began to wait.
    waiting: RefCell<BTreeMap<u64, Rc<Notify>>>,
    next: Cell<u64>,
}

/// One that waits, until it is dropped.
pub struct WaitingOne<'a> {
    limit: &'a WaitingLimit,
    number: u64,
    ended: Rc<Notify>,
}

impl WaitingLimit {
    pub fn of(most: usize) -> Self {
        Self { most, waiting: RefCell::default(), next: Cell::new(0) }
    }

    pub fn enter(&self) -> WaitingOne<'_> {
        let mut waiting = self.waiting.borrow_mut();
        if waiting.len() >= self.most
            && let Some((_, longest)) = waiting.pop_first()
        {
            longest.notify_one();
        }
        let number = self.next.replace(self.next.get() + 1);
        let ended = Rc::new(Notify::new());
        waiting.insert(number, ended.clone());
        WaitingOne { limit: self, number, ended }
    }

    /// All give way.
    pub fn end(&self) {
        self.waiting.borrow().values().for_each(|ended| ended.notify_one());
    }
}

impl WaitingOne<'_> {
    /// What becomes of `work`; `None` when it has to give way.
    pub async fn keep<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            biased;
            done = work => Some(done),
            () = self.ended.notified() => None,
        }
    }
}

impl Drop for WaitingOne<'_> {
    fn drop(&mut self) {
        self.limit.waiting.borrow_mut().remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use super::*;

    #[test]
    fn the_one_that_has_waited_for_the_longest_gives_way() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let limit = WaitingLimit::of(2);
            let first = limit.enter();
            assert_eq!(first.keep(ready(1)).await, Some(1));
            let second = limit.enter();
            let third = limit.enter();
            assert_eq!(first.keep(pending::<()>()).await, None);
            drop(first);
            drop(third);
            let _fourth = limit.enter();
            assert_eq!(second.keep(ready(2)).await, Some(2), "one has left");
            limit.end();
            assert_eq!(second.keep(pending::<()>()).await, None);
        });
    }
}
