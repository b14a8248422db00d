//! Orders to load and unload models, on their way from the doors to the control plane.
//!
//! Bounded. Doors place orders; threads of the control plane take them, one each, and answer. Nothing calls the
//! control plane: it comes and asks.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use kushi_core::{Error, ErrorKind};

use crate::plane::not_ready;

/// Orders that may wait for a thread of the control plane.
const CAPACITY: usize = 256;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    Load,
    Unload,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asker {
    Client,
    /// Perhaps while it is loaded itself, so its order must not wait for another load.
    Model,
}

/// One order; dropped unanswered it answers with an error.
pub struct Order {
    pub action: Action,
    pub model: String,
    /// The models of an ensemble are to be unloaded with it.
    pub dependents: bool,
    pub asker: Asker,
    answer: Option<OrderAnswer>,
}

/// Hears what became of an order, once. Called from a thread of the control plane: it must not wait.
pub type OrderAnswer = Box<dyn FnOnce(Result<(), Error>) + Send>;

#[derive(Debug, Default)]
pub struct Orders {
    queue: Mutex<Queue>,
    arrived: Condvar,
}

#[derive(Debug, Default)]
struct Queue {
    waiting: VecDeque<Order>,
    closed: bool,
}

impl fmt::Debug for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} {}", self.action, self.model)
    }
}

impl Orders {
    /// `answer` hears what becomes of it, also where it is refused.
    pub fn place(&self, action: Action, model: &str, dependents: bool, asker: Asker, answer: OrderAnswer) {
        let order = Order { action, model: model.into(), dependents, asker, answer: Some(answer) };
        if let Err((order, refusal)) = self.take_in(order) {
            order.answer(Err(refusal));
        }
    }

    fn take_in(&self, order: Order) -> Result<(), (Order, Error)> {
        let mut queue = self.queue();
        if queue.closed {
            return Err((order, not_ready()));
        }
        if queue.waiting.len() >= CAPACITY {
            let text = format!("{CAPACITY} loads and unloads of models wait already");
            return Err((order, Error::new(ErrorKind::Overloaded, text)));
        }
        queue.waiting.push_back(order);
        // Not every thread takes every order.
        self.arrived.notify_all();
        Ok(())
    }

    /// Sleeps until there is an order, or an urgent one; `None` once the server closes.
    pub fn next(&self, only_urgent: bool) -> Option<Order> {
        let mut queue = self.queue();
        while !queue.closed {
            let fits = |order: &Order| !only_urgent || order.is_urgent();
            if let Some(at) = queue.waiting.iter().position(fits) {
                return queue.waiting.remove(at);
            }
            queue = self.arrived.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
        None
    }

    /// Takes no more orders and gives none out; what waits hears that the server is closing.
    pub fn close(&self) {
        let mut queue = self.queue();
        queue.closed = true;
        let waiting = std::mem::take(&mut queue.waiting);
        drop(queue);
        self.arrived.notify_all();
        for order in waiting {
            order.answer(Err(not_ready()));
        }
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Order {
    /// A load may wait for it.
    fn is_urgent(&self) -> bool {
        self.action != Action::Load || self.asker == Asker::Model
    }

    pub fn answer(mut self, result: Result<(), Error>) {
        self.send(result);
    }

    fn send(&mut self, result: Result<(), Error>) {
        if let Some(answer) = self.answer.take() {
            answer(result);
        }
    }
}

impl Drop for Order {
    fn drop(&mut self) {
        self.send(Err(lost()));
    }
}

fn lost() -> Error {
    Error::new(ErrorKind::Internal, "an order of the control plane was dropped unanswered")
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread;

    use super::*;

    type Placed = mpsc::Receiver<Result<(), Error>>;

    fn place(orders: &Orders, action: Action, model: &str) -> Placed {
        let (answer, placed) = mpsc::channel();
        let answer = move |result| answer.send(result).unwrap_or_default();
        orders.place(action, model, false, Asker::Client, Box::new(answer));
        placed
    }

    #[test]
    fn an_order_reaches_a_thread_that_waits_and_its_answer_comes_back() {
        let orders = Orders::default();
        thread::scope(|scope| {
            scope.spawn(|| {
                let order = orders.next(false).expect("an order");
                assert_eq!((order.action, &*order.model), (Action::Load, "m"));
                order.answer(Err(Error::invalid("no")));
            });
            let placed = place(&orders, Action::Load, "m");
            assert_eq!(placed.recv().expect("an answer"), Err(Error::invalid("no")));
        });
    }

    #[test]
    fn who_waits_for_one_kind_of_order_leaves_the_others_where_they_are() {
        let orders = Orders::default();
        thread::scope(|scope| {
            let taken = scope.spawn(|| orders.next(true).map(|order| order.model.clone()));
            let _placed = ["a", "b"].map(|model| place(&orders, Action::Load, model));
            let _last = place(&orders, Action::Unload, "c");
            assert_eq!(taken.join().expect("no panic"), Some("c".into()));
        });
        let models = [(); 2].map(|()| orders.next(false).expect("an order").model.clone());
        assert_eq!(models, ["a", "b"]);
    }

    #[test]
    fn what_a_model_asks_waits_for_no_other_load() {
        let orders = Orders::default();
        let _placed = place(&orders, Action::Load, "a");
        orders.place(Action::Load, "b", false, Asker::Model, Box::new(|_| {}));
        assert_eq!(orders.next(true).expect("an order").model, "b");
        assert_eq!(orders.next(false).expect("an order").model, "a");
    }

    #[test]
    fn a_dropped_order_is_answered() {
        let orders = Orders::default();
        let placed = place(&orders, Action::Unload, "m");
        drop(orders.next(false));
        assert_eq!(placed.recv().expect("an answer"), Err(lost()));
    }

    #[test]
    fn closing_wakes_who_waits_and_answers_what_waits() {
        let orders = Orders::default();
        let placed = place(&orders, Action::Load, "m");
        orders.close();
        assert_eq!(placed.recv().expect("an answer"), Err(not_ready()));
        assert!(orders.next(false).is_none());
        assert_eq!(place(&orders, Action::Load, "m").recv().expect("an answer"), Err(not_ready()));
    }

    #[test]
    fn the_queue_is_bounded() {
        let orders = Orders::default();
        let placed: Vec<_> = (0..CAPACITY).map(|_| place(&orders, Action::Load, "m")).collect();
        assert!(placed.iter().all(|placed| placed.try_recv().is_err()));
        let refused = place(&orders, Action::Load, "m").recv().expect("an answer");
        assert_eq!(refused.map_err(|error| error.kind), Err(ErrorKind::Overloaded));
    }
}
