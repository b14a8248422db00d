//! Requests that a model makes to other models, and the answers on their way to it.
//!
//! Mail is written to the worker's socket by whoever delivers it, under no other lock than that of the worker's state.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use bytes::Bytes;
use kushi_core::{Credit, End, Error, ErrorKind, Mail, Mailbox, ModelSpec, Reply, Response, Ticket};

use crate::call_message::{Order, answer_payload, error_payload, read_order};
use crate::frame::{Head, kind};
use crate::host::{Begun, Call};
use crate::parts::{FINAL, Garbage, Payload};
use crate::worker::Shared;

/// The calls of one worker that have not ended.
#[derive(Default)]
pub(crate) struct Calls {
    open: Mutex<HashMap<u64, Open>>,
    /// Which process asks: each counts its calls from 1.
    life: AtomicU64,
}

/// The bits of a key that are the number of a call; those above are the life.
const NUMBER_BITS: u32 = 40;

#[derive(Default)]
struct Open {
    /// The batch on whose behalf it is made.
    parent: Option<u64>,
    /// They come once it is known what was asked; an answer may be faster.
    asked: Option<(Arc<ModelSpec>, Ticket)>,
    early: Vec<Mail>,
    /// Of the answers that the model has not taken.
    credit: VecDeque<Option<Credit>>,
}

/// Where the answers to one worker's calls come.
struct Post(Weak<Shared>);

impl Mailbox for Post {
    fn deliver(&self, mail: Vec<Mail>) {
        let Some(shared) = self.0.upgrade() else { return };
        for mail in mail {
            shared.calls.take(&shared, mail);
        }
    }
}

/// Begins a call; its failure is an answer, too.
pub(crate) fn begin(shared: &Arc<Shared>, head: Head, payload: &Bytes) -> Result<(), Garbage> {
    let key = shared.calls.key(head.id);
    let order = read_order(payload)?;
    shared.calls.open().insert(key, Open { parent: order.parent, ..Open::default() });
    match submit(shared, key, order) {
        Ok(Begun { spec, ticket, lease }) => {
            shared.calls.has_begun(shared, key, spec, ticket);
            if let Some(lease) = lease {
                lease.run_afterwards();
            }
        }
        Err(error) => {
            shared.calls.open().remove(&key);
            send_error(shared, key, &error);
        }
    }
    Ok(())
}

/// The model does not wait for it any more.
pub(crate) fn cancel(shared: &Shared, number: u64) {
    let key = shared.calls.key(number);
    let asked = shared.calls.open().get_mut(&key).and_then(|open| open.asked.take());
    let Some((spec, ticket)) = asked else { return };
    // Its end may come at once, and waits until this is done.
    ticket.cancel();
    shared.calls.has_begun(shared, key, spec, ticket);
}

/// Cancels the calls of batches that nobody waits for any more.
pub(crate) fn cancel_abandoned(shared: &Shared) {
    if !shared.has_abandoned.swap(false, Ordering::AcqRel) {
        return;
    }
    let abandoned: Vec<u64> = {
        let state = shared.state();
        state.batches.iter().filter(|(_, running)| running.is_abandoned()).map(|(id, _)| *id).collect()
    };
    let numbers: Vec<u64> = {
        let open = shared.calls.open();
        let of_them = |open: &Open| open.parent.is_some_and(|parent| abandoned.contains(&parent));
        open.iter().filter(|(_, open)| of_them(open)).map(|(key, _)| *key).collect()
    };
    for number in numbers {
        cancel(shared, number);
    }
}

/// The model has taken an answer, so there is room for another.
pub(crate) fn taken(shared: &Shared, number: u64) {
    let key = shared.calls.key(number);
    let credit = shared.calls.open().get_mut(&key).and_then(|open| open.credit.pop_front());
    drop(credit);
}

fn submit(shared: &Arc<Shared>, key: u64, order: Order) -> Result<Begun, Error> {
    let parent = shared.parent(order.parent);
    if parent.is_abandoned {
        return Err(Error::new(ErrorKind::Cancelled, ""));
    }
    let own = (order.timeout > 0).then(|| Instant::now() + Duration::from_micros(order.timeout));
    let call = Call {
        caller: shared.options.model.clone(),
        model: order.model,
        version: if order.version < 0 { String::new() } else { order.version.to_string() },
        decoupled: order.decoupled,
        id: order.id,
        inputs: order.inputs,
        wanted: order.wanted,
        parameters: order.parameters,
        priority: parent.priority,
        timeout_us: (order.timeout > 0).then_some(order.timeout),
        sequence: order.sequence,
        deadline: own.into_iter().chain(parent.deadline).min(),
        context: parent.context,
    };
    let post: Arc<dyn Mailbox> = Arc::new(Post(Arc::downgrade(shared)));
    shared.host.begin(call, &|| Reply::new(post.clone(), key))
}

impl Calls {
    fn open(&self) -> MutexGuard<'_, HashMap<u64, Open>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Of a call of the process that is there.
    fn key(&self, number: u64) -> u64 {
        self.life() << NUMBER_BITS | number & ((1 << NUMBER_BITS) - 1)
    }

    pub(crate) fn life(&self) -> u64 {
        self.life.load(Ordering::Acquire)
    }

    /// Nobody is there to hear of the answers.
    pub(crate) fn cancel_all(&self) {
        self.life.fetch_add(1, Ordering::AcqRel);
        let open = std::mem::take(&mut *self.open());
        for (_, ticket) in open.into_values().filter_map(|open| open.asked) {
            ticket.cancel();
        }
    }

    /// What came before this goes first.
    fn has_begun(&self, shared: &Shared, key: u64, spec: Arc<ModelSpec>, ticket: Ticket) {
        loop {
            let early = {
                let mut calls = self.open();
                let Some(open) = calls.get_mut(&key) else { return };
                if open.early.is_empty() {
                    open.asked = Some((spec, ticket));
                    return;
                }
                std::mem::take(&mut open.early)
            };
            for mail in early {
                self.pass(shared, &spec, mail);
            }
        }
    }

    fn take(&self, shared: &Shared, mail: Mail) {
        let spec = {
            let mut calls = self.open();
            let Some(open) = calls.get_mut(&mail.key) else { return };
            match &open.asked {
                Some((spec, _)) => spec.clone(),
                None => {
                    open.early.push(mail);
                    return;
                }
            }
        };
        self.pass(shared, &spec, mail);
    }

    fn pass(&self, shared: &Shared, spec: &ModelSpec, mut mail: Mail) {
        let ended = {
            let mut calls = self.open();
            if mail.end.is_some() {
                calls.remove(&mail.key)
            } else {
                if let Some(open) = calls.get_mut(&mail.key) {
                    open.credit.push_back(mail.credit.take());
                }
                None
            }
        };
        match &mail.end {
            Some(End { result: Err(error), .. }) => send_error(shared, mail.key, error),
            end => send(shared, mail.key, spec, mail.response.as_ref(), end.is_some()),
        }
        drop(ended);
    }
}

fn send(shared: &Shared, key: u64, spec: &ModelSpec, response: Option<&Response>, is_last: bool) {
    let payload = match response {
        Some(response) => answer_payload(spec, response),
        // An end alone.
        None => Payload { heads: Vec::new(), tensors: Vec::new(), length: 0 },
    };
    if !write(shared, key, is_last, &payload) {
        let text = "there is no memory for the answer";
        send_error(shared, key, &Error::new(ErrorKind::Internal, text));
    }
}

fn send_error(shared: &Shared, key: u64, error: &Error) {
    write(shared, key, true, &error_payload(error));
}

/// False where there is no memory for it.
fn write(shared: &Shared, key: u64, is_last: bool, payload: &Payload<'_>) -> bool {
    let number = key & ((1 << NUMBER_BITS) - 1);
    let mut state = shared.state();
    // The next process has not asked.
    if key >> NUMBER_BITS != shared.calls.life() {
        return true;
    }
    let Some(outgoing) = &mut state.outgoing else { return true };
    let sent = outgoing.send(kind::CALL_RESPONSE, if is_last { FINAL } else { 0 }, number, payload);
    if outgoing.is_blocked() {
        shared.ring();
    }
    sent.is_ok()
}
