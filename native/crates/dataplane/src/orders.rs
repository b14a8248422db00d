//! Orders to load and unload models, on their way from the doors to the control plane.
//!
//! Bounded. Doors place orders; threads of the control plane take them, one each, and answer. Nothing calls the
//! control plane: it comes and asks. Orders of clients for one model are handed out one after the other, so that none
//! keeps a thread waiting for another, and those that ask the same, with nothing else between them, are one.

use std::collections::{HashMap, HashSet, VecDeque};
use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use kushi_core::{Error, ErrorKind};

use crate::plane::not_ready;

/// Orders that may wait for a thread of the control plane.
const CAPACITY: usize = 256;
/// Of these, for one model: what one client repeats leaves room for others.
const CAPACITY_OF_A_MODEL: usize = 32;
/// What all that waits may bring to be loaded. One order may always wait.
const CAPACITY_BYTES: usize = 256 << 20;
/// Who may hear of one order.
const MOST_ASKERS: usize = 1024;
/// An unload waits so long for a load of its model, and is handed out then, to give it up.
const PATIENCE: Duration = Duration::from_secs(5);

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    Load(Overrides),
    /// `dependents`: the models of an ensemble with it.
    Unload {
        dependents: bool,
    },
}

/// What takes the place of parts of the repository.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Overrides {
    /// Of the model's configuration, in JSON.
    pub config: Option<String>,
    /// Of its whole directory, by their paths in it.
    pub files: Vec<(String, Vec<u8>)>,
    /// Of how requests find its versions, in JSON: nothing else of the model changes.
    pub versions: Option<String>,
}

impl Overrides {
    fn byte_size(&self) -> usize {
        let files = self.files.iter().map(|(path, content)| path.len() + content.len());
        let texts = [&self.config, &self.versions].into_iter().flatten().map(String::len);
        texts.sum::<usize>() + files.sum::<usize>()
    }
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
    pub asker: Asker,
    placed: Instant,
    /// Of all who have asked the same before it was handed out.
    answers: Vec<OrderAnswer>,
    /// Once it was handed out: hears that it has ended.
    orders: Option<Arc<Orders>>,
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
    /// The models whose orders were handed out and have not ended.
    changing: HashMap<String, Changing>,
    closed: bool,
}

#[derive(Debug, Default)]
struct Changing {
    orders: usize,
    /// Unloads of clients among them: one gives a load up, and a second one would only keep another thread waiting.
    unloads: usize,
}

/// What a thread that asks for an order finds.
enum Found {
    At(usize),
    /// Nothing before this time, unless something happens.
    Not(Option<Instant>),
}

impl Queue {
    fn find(&self, only_urgent: bool, now: Instant) -> Found {
        let mut passed: HashSet<&str> = HashSet::new();
        let mut until: Option<Instant> = None;
        for (at, order) in self.waiting.iter().enumerate() {
            let has_its_turn = !self.changing.contains_key(&order.model) && !passed.contains(&*order.model);
            passed.insert(&order.model);
            if only_urgent && !order.is_urgent() {
                continue;
            }
            let is_unloading = order.is_unload_of_client()
                && self.changing.get(&order.model).is_some_and(|changing| changing.unloads > 0);
            match order.impatient_from() {
                _ if has_its_turn => return Found::At(at),
                _ if is_unloading => {}
                Some(when) if when <= now => return Found::At(at),
                when => until = until.into_iter().chain(when).min(),
            }
        }
        Found::Not(until)
    }
}

impl Action {
    pub fn loads(&self) -> bool {
        matches!(self, Self::Load(_))
    }

    fn byte_size(&self) -> usize {
        match self {
            Self::Load(overrides) => overrides.byte_size(),
            Self::Unload { .. } => 0,
        }
    }
}

impl fmt::Debug for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = if self.action.loads() { "load" } else { "unload" };
        write!(f, "{what} {}", self.model)
    }
}

impl Orders {
    /// `answer` hears what becomes of it, also where it is refused.
    pub fn place(&self, action: Action, model: &str, asker: Asker, answer: OrderAnswer) {
        let order = Order {
            action,
            model: model.into(),
            asker,
            placed: Instant::now(),
            answers: vec![answer],
            orders: None,
        };
        if let Err(refused) = self.take_in(order) {
            let (order, refusal) = *refused;
            order.answer(&Err(refusal));
        }
    }

    fn take_in(&self, mut order: Order) -> Result<(), Box<(Order, Error)>> {
        let overloaded =
            |order, text: String| Err(Box::new((order, Error::new(ErrorKind::Overloaded, text))));
        let mut queue = self.queue();
        if queue.closed {
            return Err(Box::new((order, not_ready())));
        }
        let (waits, of_model) = (queue.waiting.len(), |one: &&mut Order| one.model == order.model);
        let same_model = queue.waiting.iter_mut().filter(of_model).count();
        let last = queue.waiting.iter_mut().rev().find(of_model);
        if let Some(last) = last.filter(|last| last.asks_the_same(&order)) {
            if last.answers.len() >= MOST_ASKERS {
                return overloaded(order, format!("{MOST_ASKERS} requests wait for that already"));
            }
            last.answers.append(&mut order.answers);
            return Ok(());
        }
        if waits >= CAPACITY || same_model >= CAPACITY_OF_A_MODEL {
            let text = if waits >= CAPACITY {
                format!("{CAPACITY} loads and unloads of models wait already")
            } else {
                format!("{CAPACITY_OF_A_MODEL} loads and unloads of model '{}' wait already", order.model)
            };
            return overloaded(order, text);
        }
        let bytes: usize = queue.waiting.iter().map(|order| order.action.byte_size()).sum();
        let brought = order.action.byte_size();
        if bytes.min(brought) > 0 && bytes + brought > CAPACITY_BYTES {
            return overloaded(order, format!("files of {bytes} bytes wait to be loaded already"));
        }
        queue.waiting.push_back(order);
        // Not every thread takes every order.
        self.arrived.notify_all();
        Ok(())
    }

    /// Sleeps until there is an order, or an urgent one; `None` once the server closes.
    pub fn next(self: &Arc<Self>, only_urgent: bool) -> Option<Order> {
        let mut queue = self.queue();
        while !queue.closed {
            let now = Instant::now();
            queue = match queue.find(only_urgent, now) {
                Found::At(at) => {
                    let mut order = queue.waiting.remove(at)?;
                    let unloads = usize::from(order.is_unload_of_client());
                    let changing = queue.changing.entry(order.model.clone()).or_default();
                    changing.orders += 1;
                    changing.unloads += unloads;
                    order.orders = Some(self.clone());
                    return Some(order);
                }
                Found::Not(None) => self.arrived.wait(queue).unwrap_or_else(PoisonError::into_inner),
                Found::Not(Some(until)) => {
                    let waited = self.arrived.wait_timeout(queue, until - now);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
        None
    }

    /// An order that was handed out is answered: the next one for its model has its turn.
    fn has_ended(&self, order: &Order) {
        let mut queue = self.queue();
        if let Some(changing) = queue.changing.get_mut(&order.model) {
            changing.orders -= 1;
            changing.unloads -= usize::from(order.is_unload_of_client());
            if changing.orders == 0 {
                queue.changing.remove(&order.model);
            }
        }
        drop(queue);
        self.arrived.notify_all();
    }

    /// Takes no more orders and gives none out; what waits hears that the server is closing.
    pub fn close(&self) {
        let mut queue = self.queue();
        queue.closed = true;
        let waiting = std::mem::take(&mut queue.waiting);
        drop(queue);
        self.arrived.notify_all();
        for order in waiting {
            order.answer(&Err(not_ready()));
        }
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Order {
    /// A load may wait for it.
    fn is_urgent(&self) -> bool {
        !self.action.loads() || self.asker == Asker::Model
    }

    fn is_unload_of_client(&self) -> bool {
        self.asker == Asker::Client && !self.action.loads()
    }

    fn asks_the_same(&self, other: &Self) -> bool {
        // a model may wait for what it asks: each has its own thread
        self.asker == Asker::Client && self.asker == other.asker && self.action == other.action
    }

    /// From when on it does not wait for its turn. What a model asks for is never waited for: its own load may stand
    /// before it.
    fn impatient_from(&self) -> Option<Instant> {
        match (self.asker, &self.action) {
            (Asker::Model, _) => Some(self.placed),
            (Asker::Client, Action::Unload { .. }) => Some(self.placed + PATIENCE),
            (Asker::Client, Action::Load(_)) => None,
        }
    }

    pub fn answer(mut self, result: &Result<(), Error>) {
        self.send(result);
    }

    fn send(&mut self, result: &Result<(), Error>) {
        for answer in self.answers.drain(..) {
            answer(result.clone());
        }
        if let Some(orders) = self.orders.take() {
            orders.has_ended(self);
        }
    }
}

impl Drop for Order {
    fn drop(&mut self) {
        self.send(&Err(lost()));
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

    const UNLOAD: Action = Action::Unload { dependents: false };

    fn load() -> Action {
        Action::Load(Overrides::default())
    }

    fn bringing(bytes: usize) -> Action {
        Action::Load(Overrides { files: vec![("1/model".into(), vec![0; bytes])], ..Overrides::default() })
    }

    fn place(orders: &Arc<Orders>, action: Action, model: &str) -> Placed {
        let (answer, placed) = mpsc::channel();
        let answer = move |result| answer.send(result).unwrap_or_default();
        orders.place(action, model, Asker::Client, Box::new(answer));
        placed
    }

    #[test]
    fn an_order_reaches_a_thread_that_waits_and_its_answer_comes_back() {
        let orders = Arc::new(Orders::default());
        thread::scope(|scope| {
            scope.spawn(|| {
                let order = orders.next(false).expect("an order");
                assert_eq!((order.action.loads(), &*order.model), (true, "m"));
                order.answer(&Err(Error::invalid("no")));
            });
            let placed = place(&orders, load(), "m");
            assert_eq!(placed.recv().expect("an answer"), Err(Error::invalid("no")));
        });
    }

    #[test]
    fn who_waits_for_one_kind_of_order_leaves_the_others_where_they_are() {
        let orders = Arc::new(Orders::default());
        thread::scope(|scope| {
            let taken = scope.spawn(|| orders.next(true).map(|order| order.model.clone()));
            let _placed = ["a", "b"].map(|model| place(&orders, load(), model));
            let _last = place(&orders, UNLOAD, "c");
            assert_eq!(taken.join().expect("no panic"), Some("c".into()));
        });
        let models = [(); 2].map(|()| orders.next(false).expect("an order").model.clone());
        assert_eq!(models, ["a", "b"]);
    }

    #[test]
    fn what_a_model_asks_waits_for_no_other_load() {
        let orders = Arc::new(Orders::default());
        let _placed = place(&orders, load(), "a");
        orders.place(load(), "b", Asker::Model, Box::new(|_| {}));
        assert_eq!(orders.next(true).expect("an order").model, "b");
        assert_eq!(orders.next(false).expect("an order").model, "a");
    }

    #[test]
    fn orders_for_one_model_have_their_turns_and_others_go_on() {
        let orders = Arc::new(Orders::default());
        let placed = [(UNLOAD, "m"), (load(), "m"), (load(), "other")]
            .map(|(action, model)| place(&orders, action, model));
        let _last = place(&orders, UNLOAD, "m");
        let first = orders.next(false).expect("an order");
        assert_eq!(orders.next(false).expect("an order").model, "other", "the model changes");
        thread::scope(|scope| {
            let next = scope.spawn(|| orders.next(false).expect("an order"));
            first.answer(&Ok(()));
            let next = next.join().expect("no panic");
            assert_eq!((next.action.loads(), &*next.model), (true, "m"));
            let last = scope.spawn(|| orders.next(true).expect("an order"));
            next.answer(&Ok(()));
            assert_eq!(last.join().expect("no panic").action, UNLOAD);
        });
        assert!(placed.iter().all(|placed| placed.recv().is_ok()));
    }

    #[test]
    fn an_unload_loses_its_patience_with_a_load_and_what_a_model_asks_has_none() {
        let orders = Arc::new(Orders::default());
        let _placed = place(&orders, load(), "m");
        let load = orders.next(false).expect("an order");
        let _placed = place(&orders, UNLOAD, "m");
        orders.place(UNLOAD, "m", Asker::Model, Box::new(|_| {}));
        assert_eq!(orders.next(true).expect("an order").asker, Asker::Model);
        let begin = Instant::now();
        assert_eq!(orders.next(true).expect("an order").asker, Asker::Client);
        assert!(begin.elapsed() >= PATIENCE / 2);
        drop(load);
        assert!(orders.queue().changing.is_empty());
    }

    #[test]
    fn who_asks_the_same_hears_of_one_order() {
        let orders = Arc::new(Orders::default());
        let placed = [(); 3].map(|()| place(&orders, load(), "m"));
        let other = [UNLOAD, load()].map(|action| place(&orders, action, "m"));
        let first = orders.next(false).expect("an order");
        let late = place(&orders, load(), "m");
        first.answer(&Ok(()));
        assert!(placed.iter().all(|placed| placed.try_recv() == Ok(Ok(()))));
        orders.next(false).expect("an order").answer(&Err(Error::invalid("no")));
        assert_eq!(other[0].try_recv(), Ok(Err(Error::invalid("no"))));
        orders.next(false).expect("an order").answer(&Ok(()));
        assert_eq!([&other[1], &late].map(mpsc::Receiver::try_recv), [Ok(Ok(())), Ok(Ok(()))]);
        assert!(orders.queue().waiting.is_empty());
    }

    #[test]
    fn one_unload_at_a_time_loses_its_patience() {
        let orders = Arc::new(Orders::default());
        let _placed = place(&orders, load(), "m");
        let load = orders.next(false).expect("an order");
        let [first, second] = [(); 2].map(|()| {
            let placed = place(&orders, UNLOAD, "m");
            let mut queue = orders.queue();
            queue.waiting[0].placed -= PATIENCE;
            let found = matches!(queue.find(true, Instant::now()), Found::At(_));
            drop(queue);
            (placed, found.then(|| orders.next(true).expect("an order")))
        });
        assert_eq!((first.1.is_some(), second.1.is_some()), (true, false));
        drop((first, load));
        assert_eq!(orders.next(true).expect("an order").action, UNLOAD);
    }

    #[test]
    fn one_model_leaves_room_for_others() {
        let orders = Arc::new(Orders::default());
        let turns = [load(), UNLOAD].into_iter().cycle();
        let placed: Vec<_> =
            turns.take(CAPACITY_OF_A_MODEL).map(|action| place(&orders, action, "m")).collect();
        assert!(placed.iter().all(|placed| placed.try_recv().is_err()));
        let refused = place(&orders, load(), "m").recv().expect("an answer");
        assert_eq!(refused.map_err(|error| error.kind), Err(ErrorKind::Overloaded));
        assert!(place(&orders, load(), "other").try_recv().is_err(), "it waits");
    }

    #[test]
    fn what_is_brought_to_be_loaded_is_bounded() {
        let orders = Arc::new(Orders::default());
        let large = place(&orders, bringing(CAPACITY_BYTES + 1), "m");
        assert!(large.try_recv().is_err(), "one may always wait");
        let refused = place(&orders, bringing(1), "other").recv().expect("an answer");
        assert_eq!(refused.map_err(|error| error.kind), Err(ErrorKind::Overloaded));
        assert!(place(&orders, UNLOAD, "other").try_recv().is_err(), "it brings nothing");
    }

    #[test]
    fn loads_that_bring_other_files_are_other_orders() {
        let orders = Arc::new(Orders::default());
        let placed = [bringing(1), bringing(1), bringing(2)].map(|action| place(&orders, action, "m"));
        orders.next(false).expect("an order").answer(&Ok(()));
        assert_eq!(placed.map(|placed| placed.try_recv().is_ok()), [true, true, false]);
    }

    #[test]
    fn a_dropped_order_is_answered() {
        let orders = Arc::new(Orders::default());
        let placed = place(&orders, UNLOAD, "m");
        drop(orders.next(false));
        assert_eq!(placed.recv().expect("an answer"), Err(lost()));
    }

    #[test]
    fn closing_wakes_who_waits_and_answers_what_waits() {
        let orders = Arc::new(Orders::default());
        let placed = place(&orders, load(), "m");
        orders.close();
        assert_eq!(placed.recv().expect("an answer"), Err(not_ready()));
        assert!(orders.next(false).is_none());
        assert_eq!(place(&orders, load(), "m").recv().expect("an answer"), Err(not_ready()));
    }

    #[test]
    fn the_queue_is_bounded() {
        let orders = Arc::new(Orders::default());
        let models = (0..CAPACITY).map(|number| format!("m{number}"));
        let placed: Vec<_> = models.map(|model| place(&orders, load(), &model)).collect();
        assert!(placed.iter().all(|placed| placed.try_recv().is_err()));
        let refused = place(&orders, load(), "m").recv().expect("an answer");
        assert_eq!(refused.map_err(|error| error.kind), Err(ErrorKind::Overloaded));
        let askers: Vec<_> = (1..MOST_ASKERS).map(|_| place(&orders, load(), "m0")).collect();
        assert!(askers.iter().all(|placed| placed.try_recv().is_err()));
        let refused = place(&orders, load(), "m0").recv().expect("an answer");
        assert_eq!(refused.map_err(|error| error.kind), Err(ErrorKind::Overloaded));
    }
}
