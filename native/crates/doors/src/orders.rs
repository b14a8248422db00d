//! Orders to load and unload models, on their way from the doors to the control plane.
//!
//! Bounded. Doors place orders and wait for the answer; threads of the control plane take them, one
//! each, and answer. Nothing calls the control plane: it comes and asks.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use kushi_core::{Error, ErrorKind};
use tokio::sync::oneshot;

/// Orders that may wait for a thread of the control plane.
const CAPACITY: usize = 256;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    Load,
    Unload,
}

/// One order; dropped unanswered it answers with an error.
#[derive(Debug)]
pub struct Order {
    pub action: Action,
    pub model: String,
    answer: Option<oneshot::Sender<Result<(), Error>>>,
}

/// The other end of an order.
#[derive(Debug)]
pub(crate) struct Placed(oneshot::Receiver<Result<(), Error>>);

#[derive(Debug, Default)]
pub struct Orders {
    desk: Mutex<Desk>,
    arrived: Condvar,
}

#[derive(Debug, Default)]
struct Desk {
    waiting: VecDeque<Order>,
    closed: bool,
}

impl Orders {
    pub(crate) fn place(&self, action: Action, model: &str) -> Result<Placed, Error> {
        let (answer, placed) = oneshot::channel();
        let order = Order { action, model: model.into(), answer: Some(answer) };
        let mut desk = self.desk();
        if desk.closed {
            return Err(closing());
        }
        if desk.waiting.len() >= CAPACITY {
            let text = format!("{CAPACITY} loads and unloads of models wait already");
            return Err(Error::new(ErrorKind::Overloaded, text));
        }
        desk.waiting.push_back(order);
        // Not every thread takes every order.
        self.arrived.notify_all();
        Ok(Placed(placed))
    }

    /// Sleeps until there is an order, of this kind where one is asked for; `None` once the server closes.
    pub fn next(&self, only: Option<Action>) -> Option<Order> {
        let mut desk = self.desk();
        while !desk.closed {
            let fits = |order: &Order| only.is_none_or(|action| order.action == action);
            if let Some(at) = desk.waiting.iter().position(fits) {
                return desk.waiting.remove(at);
            }
            desk = self.arrived.wait(desk).unwrap_or_else(PoisonError::into_inner);
        }
        None
    }

    /// Takes no more orders and gives none out; what waits hears that the server is closing.
    pub fn close(&self) {
        let mut desk = self.desk();
        desk.closed = true;
        let waiting = std::mem::take(&mut desk.waiting);
        drop(desk);
        self.arrived.notify_all();
        for order in waiting {
            order.answer(Err(closing()));
        }
    }

    fn desk(&self) -> MutexGuard<'_, Desk> {
        self.desk.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Order {
    pub fn answer(mut self, result: Result<(), Error>) {
        self.send(result);
    }

    fn send(&mut self, result: Result<(), Error>) {
        if let Some(answer) = self.answer.take() {
            // Whoever asked may have gone.
            let _ = answer.send(result);
        }
    }
}

impl Drop for Order {
    fn drop(&mut self) {
        self.send(Err(lost()));
    }
}

impl Placed {
    pub(crate) async fn wait(self) -> Result<(), Error> {
        self.0.await.unwrap_or_else(|_| Err(lost()))
    }

    pub(crate) fn block(self) -> Result<(), Error> {
        self.0.blocking_recv().unwrap_or_else(|_| Err(lost()))
    }
}

fn closing() -> Error {
    Error::new(ErrorKind::ShuttingDown, "Server not ready")
}

fn lost() -> Error {
    Error::new(ErrorKind::Internal, "an order of the control plane was dropped unanswered")
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn an_order_reaches_a_thread_that_waits_and_its_answer_comes_back() {
        let orders = Orders::default();
        thread::scope(|scope| {
            scope.spawn(|| {
                let order = orders.next(None).expect("an order");
                assert_eq!((order.action, &*order.model), (Action::Load, "m"));
                order.answer(Err(Error::invalid("no")));
            });
            let placed = orders.place(Action::Load, "m").expect("room");
            assert_eq!(placed.block(), Err(Error::invalid("no")));
        });
    }

    #[test]
    fn who_waits_for_one_kind_of_order_leaves_the_others_where_they_are() {
        let orders = Orders::default();
        thread::scope(|scope| {
            let taken = scope.spawn(|| orders.next(Some(Action::Unload)).map(|order| order.model.clone()));
            let _placed = ["a", "b"].map(|model| orders.place(Action::Load, model).expect("room"));
            let _last = orders.place(Action::Unload, "c").expect("room");
            assert_eq!(taken.join().expect("no panic"), Some("c".into()));
        });
        let models = [(); 2].map(|()| orders.next(None).expect("an order").model.clone());
        assert_eq!(models, ["a", "b"]);
    }

    #[test]
    fn a_dropped_order_is_answered() {
        let orders = Orders::default();
        let placed = orders.place(Action::Unload, "m").expect("room");
        drop(orders.next(None));
        assert_eq!(placed.block(), Err(lost()));
    }

    #[test]
    fn closing_wakes_who_waits_and_answers_what_waits() {
        let orders = Orders::default();
        let placed = orders.place(Action::Load, "m").expect("room");
        orders.close();
        assert_eq!(placed.block(), Err(closing()));
        assert!(orders.next(None).is_none());
        assert_eq!(orders.place(Action::Load, "m").err(), Some(closing()));
    }

    #[test]
    fn the_queue_is_bounded() {
        let orders = Orders::default();
        let placed: Vec<_> = (0..CAPACITY).map(|_| orders.place(Action::Load, "m")).collect();
        assert!(placed.iter().all(Result::is_ok));
        assert_eq!(
            orders.place(Action::Load, "m").err().map(|error| error.kind),
            Some(ErrorKind::Overloaded)
        );
    }
}
