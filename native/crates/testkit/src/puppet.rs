//! An engine on strings: a test says how each batch ends, when, and how long it takes.
//!
//! Without orders it answers every batch at once with its own inputs. Batches are numbered in the
//! order in which they reach the engine, from 0.

use std::collections::{BTreeSet, VecDeque};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::ThreadId;
use std::time::{Duration, Instant};

use kushi_core::{
    Batch, Buffer, Capability, Engine, Error, ErrorKind, Gathered, Response, Scratch, Slot, SlotToken, Tensor,
};

use crate::{ManualClock, lock, wait_until};

/// What becomes of a batch.
#[derive(Clone, Debug, Default)]
pub enum Act {
    /// Output i is input i; outputs without an input are left out.
    #[default]
    Echo,
    Fail(Error),
    /// Fails because of the data of the request with this id; echoes a batch that does not have it.
    Choke(&'static str, Error),
    /// Leaves out the last row of a batch that has the request with this id; echoes others.
    Shrink(&'static str),
    /// Sends every request an empty response and fails.
    RespondAndChoke(Error),
    Panic,
    /// Returns without an answer.
    Drop,
    /// Ends every request without a response.
    Silence,
    /// Sends every request so many empty responses, then the end.
    Respond(usize),
    /// Returns at once; the batch waits for [`PuppetEngine::late`].
    Late,
    /// The same with the slot, on an engine that keeps slots; both wait for [`PuppetEngine::kept`].
    Keep,
    /// Goes on until it is ended.
    Endless,
}

/// A batch as the engine saw it.
#[derive(Clone, Debug)]
pub struct Seen {
    pub slot: usize,
    pub thread: ThreadId,
    pub rows: usize,
    /// The ids of its requests, in order.
    pub ids: Vec<String>,
    /// Where each input lay when the engine got it.
    pub addresses: Vec<usize>,
}

pub struct PuppetEngine {
    capability: Capability,
    strings: Mutex<Strings>,
    moved: Condvar,
}

#[derive(Default)]
struct Strings {
    seen: Vec<Seen>,
    /// Orders for the next batches; then `usual`.
    script: VecDeque<Act>,
    usual: Act,
    held: bool,
    released: BTreeSet<usize>,
    executing: usize,
    most_at_once: usize,
    late: VecDeque<Batch>,
    kept: VecDeque<(SlotToken, Batch)>,
    /// Slots whose runs are to end.
    ending: BTreeSet<usize>,
    takes: Duration,
    clock: Option<Arc<ManualClock>>,
    keeps_state: bool,
}

impl Default for PuppetEngine {
    fn default() -> Self {
        Self::new(Capability { concurrent: true, inline: true, keeps_slots: false })
    }
}

impl PuppetEngine {
    pub fn new(capability: Capability) -> Self {
        Self { capability, strings: Mutex::default(), moved: Condvar::new() }
    }

    /// From now on batches wait inside [`Engine::execute`] until they are let go.
    pub fn hold(&self) {
        lock(&self.strings).held = true;
    }

    /// Lets one batch go, now or when it comes.
    pub fn release(&self, batch: usize) {
        lock(&self.strings).released.insert(batch);
        self.moved.notify_all();
    }

    /// Lets all batches go, those to come as well.
    pub fn release_all(&self) {
        lock(&self.strings).held = false;
        self.moved.notify_all();
    }

    /// Orders for the batches that come next.
    pub fn script(&self, acts: impl IntoIterator<Item = Act>) {
        lock(&self.strings).script.extend(acts);
    }

    /// What happens to batches without orders.
    pub fn usually(&self, act: Act) {
        lock(&self.strings).usual = act;
    }

    /// Slots keep something from now on.
    pub fn keeps_state(&self) {
        lock(&self.strings).keeps_state = true;
    }

    /// Every batch moves `clock` on by this much.
    pub fn takes(&self, time: Duration, clock: &Arc<ManualClock>) {
        let mut strings = lock(&self.strings);
        strings.takes = time;
        strings.clock = Some(clock.clone());
    }

    /// Every batch keeps its thread busy for this long.
    pub fn spins(&self, time: Duration) {
        let mut strings = lock(&self.strings);
        strings.takes = time;
        strings.clock = None;
    }

    /// Waits until so many batches have reached the engine.
    pub fn await_batches(&self, count: usize) -> Vec<Seen> {
        let strings =
            wait_until(&self.strings, &self.moved, "batches", |strings| strings.seen.len() >= count);
        strings.seen.clone()
    }

    pub fn seen(&self) -> Vec<Seen> {
        lock(&self.strings).seen.clone()
    }

    /// The most batches that were ever inside at the same time.
    pub fn most_at_once(&self) -> usize {
        lock(&self.strings).most_at_once
    }

    /// Waits for the next batch that is to be answered late.
    pub fn late(&self) -> Batch {
        let mut strings =
            wait_until(&self.strings, &self.moved, "a late batch", |strings| !strings.late.is_empty());
        strings.late.pop_front().unwrap_or_else(|| unreachable!("there was one under this lock"))
    }

    /// Waits for the next batch that stays on its slot.
    pub fn kept(&self) -> (SlotToken, Batch) {
        let mut strings =
            wait_until(&self.strings, &self.moved, "a kept slot", |strings| !strings.kept.is_empty());
        strings.kept.pop_front().unwrap_or_else(|| unreachable!("there was one under this lock"))
    }

    /// Waits for the order to end what a slot executes.
    pub fn await_end(&self, slot: usize) {
        drop(wait_until(&self.strings, &self.moved, "the order to end", |strings| {
            strings.ending.contains(&slot)
        }));
    }

    fn enter(&self, seen: Seen) -> (Act, Duration, Option<Arc<ManualClock>>) {
        let mut strings = lock(&self.strings);
        let number = strings.seen.len();
        strings.seen.push(seen);
        strings.executing += 1;
        strings.most_at_once = strings.most_at_once.max(strings.executing);
        let act = strings.script.pop_front().unwrap_or_else(|| strings.usual.clone());
        let time = (strings.takes, strings.clock.clone());
        drop(strings);
        self.moved.notify_all();
        let mut strings = wait_until(&self.strings, &self.moved, "leave to finish", |strings| {
            !strings.held || strings.released.contains(&number)
        });
        strings.executing -= 1;
        (act, time.0, time.1)
    }
}

impl PuppetEngine {
    /// Answers the batch where it stays on the slot.
    fn perform(&self, slot: &mut Slot, mut batch: Batch) -> Option<Batch> {
        let (outputs, addresses) = copy_inputs(&mut batch, &mut slot.scratch);
        let ids = (0..batch.len()).filter_map(|index| batch.request(index)).map(|request| request.id.clone());
        let (act, time, clock) = self.enter(Seen {
            slot: slot.index,
            thread: std::thread::current().id(),
            rows: batch.rows(),
            ids: ids.collect(),
            addresses,
        });
        if lock(&self.strings).keeps_state {
            slot.state = Some(Box::new(()));
        }
        match clock {
            Some(clock) => clock.advance(time),
            None => spin(time),
        }
        let has =
            |id: &str| (0..batch.len()).any(|at| batch.request(at).is_some_and(|request| request.id == id));
        match act {
            Act::Choke(id, error) if has(id) => slot.fail(batch, &error),
            Act::Shrink(id) if has(id) => {
                let shorter: Vec<_> =
                    outputs.iter().map(|output| output.as_ref().map(without_last_row)).collect();
                batch.computed();
                slot.scatter(batch, &shorter);
            }
            Act::Echo | Act::Choke(..) | Act::Shrink(_) => {
                batch.computed();
                slot.scatter(batch, &outputs);
            }
            Act::RespondAndChoke(error) => {
                for index in 0..batch.len() {
                    let _ = batch.send(index, Response::default());
                }
                slot.fail(batch, &error);
            }
            Act::Fail(error) => batch.fail(&error),
            // Without the message that a panic prints.
            Act::Panic => std::panic::resume_unwind(Box::new("the puppet was told to panic")),
            Act::Drop => drop(batch),
            Act::Silence => respond(batch, 0),
            Act::Respond(times) => respond(batch, times),
            Act::Endless => {
                self.await_end(slot.index);
                slot.fail(batch, &Error::new(ErrorKind::EngineFailed, "the run was ended"));
            }
            Act::Late => {
                lock(&self.strings).late.push_back(batch);
                self.moved.notify_all();
            }
            Act::Keep => return Some(batch),
        }
        None
    }
}

impl Engine for PuppetEngine {
    fn capability(&self) -> Capability {
        self.capability
    }

    fn most_instances(&self) -> usize {
        100
    }

    fn execute(&self, slot: &mut Slot, batch: Batch) {
        self.perform(slot, batch);
    }

    fn begin(&self, mut slot: SlotToken, batch: Batch) {
        if let Some(batch) = self.perform(&mut slot, batch) {
            lock(&self.strings).kept.push_back((slot, batch));
            self.moved.notify_all();
        }
    }

    fn end_run(&self, slot: usize) -> bool {
        lock(&self.strings).ending.insert(slot);
        self.moved.notify_all();
        true
    }

    fn revoke_end(&self, slot: usize) {
        lock(&self.strings).ending.remove(&slot);
    }
}

/// Ends every request of a batch after so many empty responses, without those that find no room.
pub fn respond(mut batch: Batch, times: usize) {
    for index in 0..batch.len() {
        for _ in 0..times {
            let _ = batch.send(index, Response::default());
        }
        batch.end(index, Ok(()));
    }
}

/// The joined inputs as outputs of the same positions, with the shape that the engine sees.
pub fn copy_inputs(batch: &mut Batch, scratch: &mut Scratch) -> (Vec<Option<Tensor>>, Vec<usize>) {
    let mut outputs: Vec<Option<Tensor>> = Vec::new();
    let mut addresses = Vec::new();
    for input in batch.gather(scratch).expect("there is memory for a test") {
        outputs.push(input.map(|Gathered { datatype, shape, bytes }| {
            addresses.push(bytes.as_ptr().addr());
            Tensor { datatype, shape, data: Buffer::host(bytes.to_vec()) }
        }));
    }
    (outputs, addresses)
}

fn without_last_row(tensor: &Tensor) -> Tensor {
    let mut shape = tensor.shape.clone();
    let rows = shape[0] as usize;
    shape[0] -= 1;
    let bytes = tensor.data.as_bytes();
    let data = Buffer::host(bytes[..bytes.len() / rows * (rows - 1)].to_vec());
    Tensor { datatype: tensor.datatype, shape, data }
}

fn spin(time: Duration) {
    let until = Instant::now() + time;
    while Instant::now() < until {
        std::hint::spin_loop();
    }
}
