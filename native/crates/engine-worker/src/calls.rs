//! Requests that a model makes to other models, and the answers on their way to it.
//!
//! A call ends with the answer of the other model, or without it: when its own time has passed, when the model does not wait
//! for it any more, when it takes none of its answers while the other model waits for that, and when nobody waits for the
//! requests on whose behalf it is made. What comes after its end is dropped.
//!
//! Mail is written to the worker's socket by whoever delivers it, under no other lock than that of the worker's state.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use bytes::Bytes;
use kushi_core::{Alarm, Credit, End, Error, ErrorKind, Mail, Mailbox, ModelSpec, Reply, Response, Ticket};

use crate::call_message::{CallOrder, answer_payload, error_payload, read_order};
use crate::frame::{Head, kind};
use crate::host::{Begun, Call};
use crate::parts::{FINAL, Garbage, Payload};
use crate::running::Parent;
use crate::worker::Shared;

/// The calls of one worker that have not ended.
#[derive(Default)]
pub(crate) struct Calls {
    open: Mutex<HashMap<u64, Open>>,
    looks: Mutex<Looks>,
    /// Which process asks: each counts its calls from 1.
    life: AtomicU64,
}

/// The bits of a key that are the number of a call; those above are the life.
const NUMBER_BITS: u32 = 40;
/// Whoever asked the model may hear first that its own time has passed, and ends the calls by that.
const ASKER_PATIENCE: Duration = Duration::from_secs(1);

#[derive(Default)]
struct Open {
    /// The batch on whose behalf it is made.
    parent: Option<u64>,
    /// It comes once it is known what was asked; an answer may be faster.
    asked: Option<BegunCall>,
    early: Vec<Mail>,
    /// It is to be cancelled, and had not begun when that was said.
    is_unwanted: bool,
    /// Of the answers that the model has not taken.
    credit: VecDeque<Option<Credit>>,
    /// Since when it has taken none of these.
    untaken_since: Option<Instant>,
}

struct BegunCall {
    spec: Arc<ModelSpec>,
    ticket: Ticket,
    alarm: Alarm,
    /// The deadline of the request on whose behalf it is made.
    askers_end: Option<Instant>,
}

impl BegunCall {
    /// When to look again whether its time has passed.
    fn next_look(&self) -> Option<Instant> {
        let when = self.alarm.when()?;
        Some(if self.ends_with_asker(when) { when + ASKER_PATIENCE } else { when })
    }

    /// Whether its asker has no more time by then either.
    fn ends_with_asker(&self, when: Instant) -> bool {
        self.askers_end.is_some_and(|end| when >= end)
    }

    /// The time for a look has come. An error: it ends with that, unless its end is on its way.
    fn look(&mut self) -> Option<Error> {
        if self.alarm.when().is_some_and(|when| self.ends_with_asker(when)) {
            self.ticket.cancel();
            return Some(Error::cancelled());
        }
        let gives_up = self.alarm.ring(&self.ticket);
        let is_late = self.ticket.deadline.is_some_and(|deadline| Instant::now() >= deadline);
        (gives_up || is_late).then(Error::expired)
    }
}

/// When the supervisor has to look whether calls have run out of time.
#[derive(Default)]
struct Looks {
    /// No call runs out of time before.
    earliest: Option<Instant>,
    /// When the supervisor wakes up by itself.
    next: Option<Instant>,
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
    let parent = shared.parent(order.parent);
    let askers_end = parent.deadline;
    match submit(shared, key, order, parent) {
        Ok(Begun { spec, ticket, lease }) => {
            let alarm = Alarm::of(&ticket);
            shared.calls.has_begun(shared, key, BegunCall { spec, ticket, alarm, askers_end });
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

/// Nobody waits for it any more: it ends now, whatever the other model does.
pub(crate) fn cancel(shared: &Shared, number: u64) {
    shared.calls.cancel(shared, shared.calls.key(number));
}

/// Cancels the calls of batches that nobody waits for any more.
pub(crate) fn cancel_abandoned(shared: &Shared) {
    let abandoned: Vec<u64> = {
        let state = shared.state();
        state.batches.iter().filter(|(_, running)| running.is_abandoned()).map(|(id, _)| *id).collect()
    };
    let is_theirs = |open: &Open| open.parent.is_some_and(|parent| abandoned.contains(&parent));
    let keys: Vec<u64> =
        shared.calls.open().iter().filter(|(_, open)| is_theirs(open)).map(|(key, _)| *key).collect();
    for key in keys {
        shared.calls.cancel(shared, key);
    }
}

/// Ends the calls whose time has passed.
pub(crate) fn end_overdue(shared: &Shared, now: Instant) {
    if shared.calls.looks().earliest.is_none_or(|earliest| earliest > now) {
        return;
    }
    shared.calls.looks().earliest = None;
    end_untaken(shared, now);
    let waiting: Vec<(u64, Instant)> = {
        let open = shared.calls.open();
        let next_look = |open: &Open| open.asked.as_ref().and_then(BegunCall::next_look);
        open.iter().filter_map(|(key, open)| next_look(open).map(|when| (*key, when))).collect()
    };
    for (key, when) in waiting {
        if when <= now {
            shared.calls.look(shared, key);
        } else {
            shared.calls.look_by(shared, when);
        }
    }
}

/// Ends the calls whose answers the model does not take, where the other model can do nothing else meanwhile.
fn end_untaken(shared: &Shared, now: Instant) {
    let patience = shared.call_patience();
    let mut next: Option<Instant> = None;
    let mut given_up = Vec::new();
    for (key, open) in shared.calls.open().iter_mut() {
        let Some(since) = open.untaken_since else { continue };
        let mut when = since + patience;
        if when <= now && open.asked.as_ref().is_some_and(|asked| asked.ticket.is_full()) {
            given_up.push(*key);
            continue;
        }
        if when <= now {
            // There is room still.
            when = now + patience;
        }
        next = Some(next.map_or(when, |next| next.min(when)));
    }
    if let Some(next) = next {
        shared.calls.look_by(shared, next);
    }
    let text = format!(
        "model '{}' has taken none of the answers to this call for {} s, so that the model that it asks could do nothing else",
        shared.options.model,
        patience.as_secs_f64()
    );
    let error = Error::new(ErrorKind::Cancelled, text);
    for key in given_up {
        log::warn!("{}: {}", shared.options.launch.name, error.message);
        if shared.calls.give_up(key) {
            send_error(shared, key, &error);
        }
    }
}

/// The model has taken an answer, so there is room for another.
pub(crate) fn taken(shared: &Shared, number: u64) {
    let key = shared.calls.key(number);
    let credit = shared.calls.open().get_mut(&key).and_then(|open| {
        let credit = open.credit.pop_front();
        open.untaken_since = (!open.credit.is_empty()).then(Instant::now);
        credit
    });
    drop(credit);
}

fn submit(shared: &Arc<Shared>, key: u64, order: CallOrder, parent: Parent) -> Result<Begun, Error> {
    if parent.is_abandoned {
        return Err(Error::cancelled());
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

    fn looks(&self) -> MutexGuard<'_, Looks> {
        self.looks.lock().unwrap_or_else(PoisonError::into_inner)
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
        for asked in open.into_values().filter_map(|open| open.asked) {
            asked.ticket.cancel();
        }
    }

    fn cancel(&self, shared: &Shared, key: u64) {
        let asked = {
            let mut calls = self.open();
            let Some(open) = calls.get_mut(&key) else { return };
            open.is_unwanted = true;
            open.asked.take()
        };
        if let Some(asked) = asked {
            self.has_begun(shared, key, asked);
        }
    }

    /// The call ends, and the other model hears that nobody waits for it. True: its error is to be sent.
    fn give_up(&self, key: u64) -> bool {
        let ended = self.open().remove(&key);
        if let Some(asked) = ended.as_ref().and_then(|open| open.asked.as_ref()) {
            asked.ticket.cancel();
        }
        ended.is_some()
    }

    fn look(&self, shared: &Shared, key: u64) {
        let asked = self.open().get_mut(&key).and_then(|open| open.asked.take());
        let Some(mut asked) = asked else { return };
        // Its end may come at once, and waits until this is done.
        let error = asked.look();
        self.has_begun(shared, key, asked);
        if let Some(error) = error {
            self.end(shared, key, &error);
        }
    }

    /// What came before this goes first.
    fn has_begun(&self, shared: &Shared, key: u64, asked: BegunCall) {
        loop {
            let (early, is_unwanted) = {
                let mut calls = self.open();
                let Some(open) = calls.get_mut(&key) else {
                    drop(calls);
                    // It has ended, or its process has.
                    asked.ticket.cancel();
                    return;
                };
                if open.early.is_empty() && !open.is_unwanted {
                    let next_look = asked.next_look();
                    open.asked = Some(asked);
                    drop(calls);
                    if let Some(when) = next_look {
                        self.look_by(shared, when);
                    }
                    return;
                }
                (std::mem::take(&mut open.early), std::mem::take(&mut open.is_unwanted))
            };
            for mail in early {
                self.pass(shared, &asked.spec, mail);
            }
            if is_unwanted {
                asked.ticket.cancel();
                // Also where its answer is on its way: it may wait for those of others, which come before it.
                self.end(shared, key, &Error::cancelled());
                return;
            }
        }
    }

    /// The model hears nothing else of it. Without effect where it has its end.
    fn end(&self, shared: &Shared, key: u64, error: &Error) {
        let ended = self.open().remove(&key);
        if ended.is_some() {
            send_error(shared, key, error);
        }
        drop(ended);
    }

    /// Has the supervisor look at the calls by then.
    fn look_by(&self, shared: &Shared, when: Instant) {
        let mut looks = self.looks();
        looks.earliest = Some(looks.earliest.map_or(when, |earliest| earliest.min(when)));
        if looks.next.is_some_and(|next| when < next) {
            shared.ring();
        }
    }

    /// When the supervisor has to look next: by `latest`, whatever there is.
    pub(crate) fn next_look(&self, latest: Instant) -> Instant {
        let mut looks = self.looks();
        let next = looks.earliest.map_or(latest, |earliest| earliest.min(latest));
        looks.next = Some(next);
        next
    }

    fn take(&self, shared: &Shared, mail: Mail) {
        let spec = {
            let mut calls = self.open();
            let Some(open) = calls.get_mut(&mail.key) else { return };
            match &open.asked {
                Some(asked) => asked.spec.clone(),
                None => {
                    open.early.push(mail);
                    return;
                }
            }
        };
        self.pass(shared, &spec, mail);
    }

    fn pass(&self, shared: &Shared, spec: &ModelSpec, mut mail: Mail) {
        let mut first_untaken = None;
        let ended = {
            let mut calls = self.open();
            // It may have ended meanwhile, without this.
            let Some(open) = calls.get_mut(&mail.key) else { return };
            if mail.end.is_some() {
                calls.remove(&mail.key)
            } else {
                open.credit.push_back(mail.credit.take());
                if open.untaken_since.is_none() {
                    let now = Instant::now();
                    open.untaken_since = Some(now);
                    first_untaken = Some(now);
                }
                None
            }
        };
        if let Some(since) = first_untaken {
            self.look_by(shared, since + shared.call_patience());
        }
        match &mail.end {
            Some(End { result: Err(error), .. }) => send_error(shared, mail.key, error),
            end if send(shared, mail.key, spec, mail.response.as_ref(), end.is_some()) => {}
            _ => {
                // With its last answer it has ended already.
                let ended = ended.is_some() || self.give_up(mail.key);
                if ended {
                    let text = "there is no memory for the answer";
                    send_error(shared, mail.key, &Error::new(ErrorKind::Internal, text));
                }
            }
        }
        drop(ended);
    }
}

/// False where there is no memory for it.
fn send(shared: &Shared, key: u64, spec: &ModelSpec, response: Option<&Response>, is_last: bool) -> bool {
    let payload = match response {
        Some(response) => answer_payload(spec, response),
        // An end alone.
        None => Payload { heads: Vec::new(), tensors: Vec::new(), length: 0 },
    };
    write(shared, key, is_last, &payload)
}

fn send_error(shared: &Shared, key: u64, error: &Error) {
    write(shared, key, true, &error_payload(error));
}

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
