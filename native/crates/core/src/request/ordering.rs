//! Keeps answers in the order of their requests, for models that ask for it.
//!
//! Batches are numbered as they leave the queue, under its lock. Mail of a request waits here until every earlier one
//! has ended, or nobody waits for it any more: those of earlier batches, and the earlier ones of its own. Mail is put in
//! order under the lock here and delivered without it, by one thread at a time: whoever passes mail while another thread
//! delivers leaves it to that one. So a delivery may pass mail again from inside.
//!
//! What waits is bounded: where it is too much, no further batch begins. The one that all wait for has begun.
//!
//! Whoever delivers has not counted its own request as ended yet, or holds the count up: when no request is inside any
//! more, all mail has been delivered. Checked by the loom tests.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use crate::base::held_back::{HeldBack, LookAgain};
use crate::base::sync::atomic::{AtomicUsize, Ordering as Atomic};
use crate::base::sync::{Mutex, lock};
use crate::request::outbox::Outbox;
use crate::{Mail, Mailbox, Response};

/// With so many bytes that wait, no further batch begins.
pub const MOST_WAITING: usize = 64 << 20;
/// What mail weighs beside its tensors.
const MAIL_WEIGHT: usize = 1 << 10;

pub(crate) struct Ordering {
    state: Mutex<OrderState>,
    /// Of the mail that waits.
    weight: AtomicUsize,
    held_back: HeldBack,
    /// A model that answers a request any number of times: it may wait for the taker of one answer before it gives
    /// the next to another request, so that those of one batch do not wait for each other.
    decoupled: bool,
}

#[derive(Default)]
struct OrderState {
    /// The first batch that has not finished.
    next: u64,
    /// What is left of each batch, by the numbers of its requests.
    batches: BTreeMap<u64, VecDeque<RequestPlace>>,
    /// Of requests that nobody waits for, which others have passed.
    late: Outbox,
    /// A thread is about to look for what is next.
    delivering: bool,
}

/// That of a request.
struct RequestPlace {
    number: u64,
    outbox: Outbox,
    /// What is in the box.
    weight: usize,
    /// Nobody behind it waits for it.
    ended: bool,
    /// Nor does anybody else: it has no place in the order.
    given_up: bool,
}

/// Mail of the request with this number.
pub(crate) struct Numbered {
    pub(crate) number: u64,
    pub(crate) mailbox: Arc<dyn Mailbox>,
    pub(crate) mail: Mail,
}

impl Ordering {
    pub(crate) fn new(decoupled: bool, look_again: LookAgain) -> Self {
        Self {
            state: Mutex::default(),
            weight: AtomicUsize::default(),
            held_back: HeldBack::new(look_again),
            decoupled,
        }
    }

    /// The batch with this number has these requests. To be called before anything else about it.
    pub(crate) fn begin(&self, sequence: u64, requests: impl Iterator<Item = u64>) {
        let place = |number| RequestPlace {
            number,
            outbox: Outbox::default(),
            weight: 0,
            ended: false,
            given_up: false,
        };
        let mut places: Vec<RequestPlace> = requests.map(place).collect();
        places.sort_unstable_by_key(|place| place.number);
        lock(&self.state).batches.insert(sequence, places.into());
    }

    /// Mail of requests of the batch with this number.
    pub(crate) fn pass(&self, sequence: u64, mail: impl IntoIterator<Item = Numbered>) {
        self.change(|state| {
            for Numbered { number, mailbox, mail } in mail {
                let Some(place) = state.place(sequence, number).filter(|place| !place.given_up) else {
                    state.late.add(&mailbox, mail);
                    continue;
                };
                let weight = weight_of(&mail);
                place.weight += weight;
                place.ended |= mail.end.is_some();
                place.outbox.add(&mailbox, mail);
                self.weight.fetch_add(weight, Atomic::SeqCst);
            }
        });
    }

    /// Nobody waits for this request any more, so that no other one waits for its end.
    pub(crate) fn give_up(&self, sequence: u64, request: u64) {
        self.change(|state| {
            let Some(place) = state.place(sequence, request) else { return };
            (place.ended, place.given_up) = (true, true);
            self.weight.fetch_sub(std::mem::take(&mut place.weight), Atomic::SeqCst);
            let outbox = std::mem::take(&mut place.outbox);
            state.late.append(outbox);
        });
    }

    /// Under the hand-over's lock: whether no further batch begins, because too much waits here.
    pub(crate) fn hold_back(&self) -> bool {
        self.held_back.is_so_while(|| self.is_full())
    }

    fn is_full(&self) -> bool {
        self.weight.load(Atomic::SeqCst) >= MOST_WAITING
    }

    fn change(&self, change: impl FnOnce(&mut OrderState)) {
        let mut state = lock(&self.state);
        change(&mut state);
        if std::mem::replace(&mut state.delivering, true) {
            return;
        }
        while let Some(outbox) = self.take_next(&mut state) {
            drop(state);
            outbox.deliver();
            state = lock(&self.state);
        }
        state.delivering = false;
        drop(state);
        if !self.is_full() {
            self.held_back.let_go();
        }
    }

    /// What may leave now.
    fn take_next(&self, state: &mut OrderState) -> Option<Outbox> {
        let (mut next, mut weight) = (std::mem::take(&mut state.late), 0);
        while let Some(places) = state.batches.get_mut(&state.next) {
            // Nobody in front of these waits to be passed.
            let open = places.iter().position(|place| !place.ended).unwrap_or(places.len());
            let leaving = if self.decoupled { places.len() } else { places.len().min(open + 1) };
            for place in places.range_mut(..leaving) {
                next.append(std::mem::take(&mut place.outbox));
                weight += std::mem::take(&mut place.weight);
            }
            places.drain(..open);
            if !places.is_empty() {
                break;
            }
            state.batches.remove(&state.next);
            state.next += 1;
        }
        self.weight.fetch_sub(weight, Atomic::SeqCst);
        (!next.is_empty()).then_some(next)
    }
}

/// With the request, which goes back with its end.
fn weight_of(mail: &Mail) -> usize {
    let response = mail.response.as_ref().map_or(0, Response::byte_size);
    MAIL_WEIGHT + response + mail.end.as_ref().map_or(0, |end| end.request.byte_size())
}

impl OrderState {
    fn place(&mut self, sequence: u64, number: u64) -> Option<&mut RequestPlace> {
        let places = self.batches.get_mut(&sequence)?;
        let index = places.binary_search_by_key(&number, |place| place.number).ok()?;
        places.get_mut(index)
    }
}

#[cfg(all(test, loom))]
mod loom_tests;
