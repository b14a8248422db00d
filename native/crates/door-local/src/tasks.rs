//! What takes longer than a connection should wait for, by the id of its request.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use kushi_net::Sink;
use tokio::task::AbortHandle;

/// Given up when dropped.
pub(super) struct Tasks<T> {
    in_flight: HashMap<u64, AbortHandle>,
    done: Rc<RefCell<Vec<(u64, T)>>>,
}

impl<T> Default for Tasks<T> {
    fn default() -> Self {
        Self { in_flight: HashMap::new(), done: Rc::default() }
    }
}

impl<T: 'static> Tasks<T> {
    pub(super) fn len(&self) -> usize {
        self.in_flight.len()
    }

    pub(super) fn contains(&self, id: u64) -> bool {
        self.in_flight.contains_key(&id)
    }

    /// `sink` is woken when the task is done.
    pub(super) fn begin(&mut self, sink: &Rc<Sink>, id: u64, task: impl Future<Output = T> + 'static) {
        let (sink, done) = (sink.clone(), self.done.clone());
        let task = tokio::task::spawn_local(async move {
            let result = task.await;
            done.borrow_mut().push((id, result));
            sink.wake();
        });
        self.in_flight.insert(id, task.abort_handle());
    }

    pub(super) fn next_done(&mut self) -> Option<(u64, T)> {
        let (id, result) = self.done.borrow_mut().pop()?;
        self.in_flight.remove(&id);
        Some((id, result))
    }
}

impl<T> Drop for Tasks<T> {
    fn drop(&mut self) {
        self.in_flight.values().for_each(AbortHandle::abort);
    }
}
