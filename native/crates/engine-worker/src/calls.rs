//! Requests that a model makes to other models, and the answers on their way to it.
//!
//! Mail is written to the worker's socket by whoever delivers it, under no other lock than that of the worker's state.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use bytes::{Buf, BufMut, Bytes};
use kushi_core::{
    Buffer, Credit, DataType, End, Error, ErrorKind, Mail, Mailbox, ModelSpec, Reply, Response, Sequence,
    SequenceId, Shape, Tensor, Ticket, element_count,
};
use serde::{Deserialize, Serialize};

use crate::frame::{Head, kind};
use crate::host::{Begun, Call};
use crate::message::{FINAL, Garbage, Payload, SEQUENCE_END, SEQUENCE_START, json, parameter};
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

/// A request, as the model writes it.
#[derive(Deserialize)]
struct Order {
    model: String,
    version: i64,
    decoupled: bool,
    id: String,
    wanted: Vec<String>,
    /// In microseconds; 0: none.
    timeout: u64,
    flags: u32,
    correlation_id: CorrelationId,
    parameters: serde_json::Map<String, serde_json::Value>,
    inputs: Vec<(String, String, Vec<i64>, usize, usize)>,
    /// The batch that it is executing.
    parent: Option<u64>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum CorrelationId {
    Number(u64),
    Text(String),
}

impl Order {
    fn sequence(&self) -> Option<Box<Sequence>> {
        let id = match &self.correlation_id {
            CorrelationId::Number(0) if self.flags == 0 => return None,
            CorrelationId::Number(number) => SequenceId::Number(*number),
            CorrelationId::Text(text) => SequenceId::Text(text.clone()),
        };
        let (start, end) = (self.flags & SEQUENCE_START != 0, self.flags & SEQUENCE_END != 0);
        Some(Box::new(Sequence { id, start, end }))
    }
}

#[derive(Serialize)]
struct Answered<'a> {
    outputs: Vec<(&'a str, &'static str, &'a [i64], usize, usize)>,
    parameters: Option<serde_json::Value>,
}

#[derive(Serialize)]
struct Failed<'a> {
    error: &'a str,
    code: u32,
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
    let (order, inputs) = read(payload)?;
    shared.calls.open().insert(key, Open { parent: order.parent, ..Open::default() });
    match submit(shared, key, order, inputs) {
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

fn submit(
    shared: &Arc<Shared>,
    key: u64,
    order: Order,
    inputs: Vec<(String, Tensor)>,
) -> Result<Begun, Error> {
    let parent = shared.parent(order.parent);
    let own = (order.timeout > 0).then(|| Instant::now() + Duration::from_micros(order.timeout));
    let sequence = order.sequence();
    let call = Call {
        caller: shared.options.model.clone(),
        model: order.model,
        version: if order.version < 0 { String::new() } else { order.version.to_string() },
        decoupled: order.decoupled,
        id: order.id,
        inputs,
        wanted: order.wanted,
        parameters: order
            .parameters
            .into_iter()
            .filter_map(|(name, value)| Some((name, parameter(value)?)))
            .collect(),
        priority: parent.priority,
        timeout_us: (order.timeout > 0).then_some(order.timeout),
        sequence,
        deadline: own.into_iter().chain(parent.deadline).min(),
        context: parent.context,
    };
    let post: Arc<dyn Mailbox> = Arc::new(Post(Arc::downgrade(shared)));
    shared.host.begin(call, &|| Reply::new(post.clone(), key))
}

fn read(payload: &Bytes) -> Result<(Order, Vec<(String, Tensor)>), Garbage> {
    let garbage = || Garbage("a call cannot be read");
    let mut rest = payload.clone();
    if rest.len() < 4 {
        return Err(garbage());
    }
    let length = rest.get_u32_le() as usize;
    if length > rest.len() {
        return Err(garbage());
    }
    let mut order: Order = serde_json::from_slice(&rest.split_to(length)).map_err(|_| garbage())?;
    let mut inputs = Vec::with_capacity(order.inputs.len());
    for (name, datatype, shape, offset, length) in std::mem::take(&mut order.inputs) {
        let datatype: DataType = datatype.parse().map_err(|()| garbage())?;
        let end = offset.checked_add(length).filter(|&end| end <= rest.len()).ok_or_else(garbage)?;
        let elements = element_count(&shape).ok_or_else(garbage)?;
        if datatype.size().is_some_and(|size| elements.checked_mul(size) != Some(length)) {
            return Err(garbage());
        }
        let data = Buffer::host(rest.slice(offset..end));
        inputs.push((name, Tensor { datatype, shape: Shape::from_vec(shape), data }));
    }
    Ok((order, inputs))
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
    let mut heads = Vec::new();
    let mut tensors = Vec::new();
    let mut outputs = Vec::new();
    let mut size = 0;
    for (place, tensor) in response.iter().flat_map(|response| &response.outputs) {
        let data = tensor.data.as_bytes();
        let name = spec.outputs[usize::from(*place)].name.as_str();
        outputs.push((name, tensor.datatype.name(), tensor.shape.as_slice(), size, data.len()));
        tensors.push((size, data));
        size += data.len();
    }
    if let Some(response) = response {
        let parameters = (!response.parameters.is_empty()).then(|| json(&response.parameters));
        let text = serde_json::to_vec(&Answered { outputs, parameters }).unwrap_or_default();
        heads.put_u32_le(text.len() as u32);
        heads.extend_from_slice(&text);
    }
    let start = heads.len();
    let tensors = tensors.into_iter().map(|(at, data)| (start + at, data)).collect();
    let payload = Payload { heads, tensors, length: start + size };
    if !write(shared, key, is_last, &payload) {
        let text = "there is no memory for the answer";
        send_error(shared, key, &Error::new(ErrorKind::Internal, text));
    }
}

fn send_error(shared: &Shared, key: u64, error: &Error) {
    let text =
        serde_json::to_vec(&Failed { error: &error.message, code: code(error.kind) }).unwrap_or_default();
    let mut heads = Vec::with_capacity(4 + text.len());
    heads.put_u32_le(text.len() as u32);
    heads.extend_from_slice(&text);
    let length = heads.len();
    write(shared, key, true, &Payload { heads, tensors: Vec::new(), length });
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

/// As `TritonError` has them.
fn code(kind: ErrorKind) -> u32 {
    match kind.http_status() {
        404 => 2,
        _ if kind == ErrorKind::Cancelled => 7,
        400 => 3,
        503 => 4,
        501 => 5,
        _ => 1,
    }
}
