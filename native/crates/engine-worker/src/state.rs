//! What is known of a worker: its process, if there is one, and the batches that it has or that wait for it.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Instant;

use kushi_core::{Batch, Error, ErrorKind, SlotToken, os_text};

use crate::batch_message::batch_payload;
use crate::frame::kind;
use crate::outgoing::OutgoingFrames;
use crate::readiness::Question;
use crate::reading::Reading;
use crate::running::Running;
use crate::share::Share;

#[derive(Default)]
pub(crate) struct WorkerState {
    pub(crate) phase: Phase,
    pub(crate) outgoing: Option<OutgoingFrames>,
    /// Of the process that is there.
    pub(crate) reading: Option<Arc<Reading>>,
    pub(crate) batches: HashMap<u64, Running>,
    /// Not sent yet.
    pub(crate) waiting: Vec<(SlotToken, Batch)>,
    pub(crate) next_batch: u64,
    /// So many answers have come, of all processes.
    pub(crate) answers: u64,
    /// Of the process that is there.
    pub(crate) share: Share,
    /// It goes because it has had its share, and the next one is on its way.
    pub(crate) renews: bool,
    pub(crate) question: Question,
    /// The last process that was started did not become ready.
    pub(crate) has_failed: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Phase {
    #[default]
    Starting,
    Ready,
    /// There is none, for this reason: for good, or until the next one is tried.
    Failed(Error),
    Closing,
}

impl WorkerState {
    /// It is so between two batches. What the model keeps of requests that nobody waits for does not hold it up.
    pub(crate) fn is_to_renew(&self) -> bool {
        let is_over = |running: &Running| running.token.is_none() && running.is_abandoned();
        self.phase == Phase::Ready && self.share.is_used_up() && self.batches.values().all(is_over)
    }

    /// Answers whether the supervisor has to see to the rest.
    pub(crate) fn send(&mut self, token: SlotToken, batch: Batch) -> Result<bool, Box<Unsent>> {
        let Some(outgoing) = &mut self.outgoing else {
            self.waiting.push((token, batch));
            return Ok(false);
        };
        let id = self.next_batch;
        let places: Vec<usize> = (0..batch.len()).filter(|&index| batch.request(index).is_some()).collect();
        let sent = outgoing.send(kind::EXECUTE, places.len() as u32, id, &batch_payload(&batch));
        if let Err(error) = sent {
            return Err(Box::new(Unsent { token, batch, error }));
        }
        self.next_batch += 1;
        self.share.count(places.len());
        let is_blocked = outgoing.is_blocked();
        let running = Running {
            batch,
            places,
            token: Some(token),
            begun: Instant::now(),
            held: VecDeque::new(),
            taken: HashMap::new(),
            ends: Vec::new(),
            is_watched: false,
            given_up: HashSet::new(),
        };
        self.batches.insert(id, running);
        Ok(is_blocked)
    }
}

/// A batch that found no memory.
pub(crate) struct Unsent {
    token: SlotToken,
    batch: Batch,
    error: std::io::Error,
}

impl Unsent {
    /// To be called without the lock.
    pub(crate) fn fail(self) {
        let text = format!("a batch cannot be handed to its process: {}", os_text(&self.error));
        self.batch.fail(&Error::new(ErrorKind::EngineFailed, text));
        drop(self.token);
    }
}
