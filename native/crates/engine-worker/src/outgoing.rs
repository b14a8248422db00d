//! The way to a worker: frames leave at once as far as the socket takes them, and otherwise when it does.

use std::collections::{HashMap, HashSet, VecDeque};
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use kushi_shm::{LentSlot, PoolLimits, SlotPool, send};
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};

use crate::frame::{Head, INLINE_BYTES, kind};
use crate::parts::Payload;

/// What is kept of memory for large batches while none is on its way.
const KEPT: PoolLimits = PoolLimits { kept_bytes: 256 << 20, kept_slots: 8 };

/// So many slots go back to the worker by themselves: it may wait for one, and nothing else may be sent to it.
const MANY_RELEASED: usize = 32;

/// Of slots that the worker reads. Further long payloads go through the socket: each slot has a descriptor, and a worker
/// that does not read gives none back.
const MOST_LENT: usize = 256;

/// The same of all workers together, which share the descriptors of this process.
static MOST_LENT_OF_ALL: LazyLock<usize> = LazyLock::new(|| {
    let most = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    // One that is a thread of this process has a second descriptor of each.
    usize::try_from(most / 8).unwrap_or(usize::MAX)
});
static LENT_OF_ALL: AtomicUsize = AtomicUsize::new(0);

/// Numbers of slots of the worker's that nobody here needs any more.
pub(crate) type Released = Arc<Mutex<Vec<u64>>>;

pub(crate) struct OutgoingFrames {
    socket: Arc<OwnedFd>,
    waiting: VecDeque<Piece>,
    pool: SlotPool,
    announced: HashSet<u64>,
    /// Of the pool, when the worker was last told of them.
    drops: u64,
    /// What the worker reads, until it says that it needs it no more.
    lent: HashMap<u64, Lent>,
    released: Released,
}

struct Piece {
    bytes: Vec<u8>,
    sent: usize,
    /// Its descriptor leaves with the first byte.
    slot: Option<LentSlot>,
}

/// A slot, and its share of those that all workers may have.
struct Lent(#[expect(dead_code, reason = "kept until the worker needs it no more")] LentSlot);

impl Lent {
    fn new(slot: LentSlot) -> Self {
        LENT_OF_ALL.fetch_add(1, Ordering::Relaxed);
        Self(slot)
    }

    /// Whether all workers together have as many as they may.
    fn is_full() -> bool {
        LENT_OF_ALL.load(Ordering::Relaxed) >= *MOST_LENT_OF_ALL
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        LENT_OF_ALL.fetch_sub(1, Ordering::Relaxed);
    }
}

impl OutgoingFrames {
    pub(crate) fn new(socket: Arc<OwnedFd>, released: Released) -> Self {
        Self {
            socket,
            waiting: VecDeque::new(),
            pool: SlotPool::new(KEPT),
            announced: HashSet::new(),
            drops: 0,
            lent: HashMap::new(),
            released,
        }
    }

    pub(crate) fn is_blocked(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// The worker needs a slot no more.
    pub(crate) fn take_back(&mut self, slot: u64) {
        self.lent.remove(&slot);
    }

    /// Tells the worker now which of its slots nobody needs, and not with the next frame.
    pub(crate) fn give_back(&mut self) {
        let mut bytes = Vec::new();
        self.add_releases(&mut bytes);
        self.forget_dropped(&mut bytes);
        if !bytes.is_empty() {
            self.push(bytes, None);
        }
    }

    /// The same where there are many, or where slots of this side are no more: the worker keeps their memory until it
    /// hears of that. To be called now and then.
    pub(crate) fn tidy(&mut self) {
        let released = self.released.lock().unwrap_or_else(PoisonError::into_inner).len();
        if released >= MANY_RELEASED || self.drops != self.pool.drops() {
            self.give_back();
        }
    }

    fn add_releases(&self, bytes: &mut Vec<u8>) {
        for slot in std::mem::take(&mut *self.released.lock().unwrap_or_else(PoisonError::into_inner)) {
            Head { kind: kind::RELEASE_SLOT, slot, ..Head::default() }.write(bytes);
        }
    }

    /// Short.
    pub(crate) fn send_text(&mut self, kind: u32, count: u32, id: u64, text: &[u8]) -> io::Result<()> {
        let payload = Payload { heads: text.to_vec(), tensors: Vec::new(), length: text.len() };
        self.send(kind, count, id, &payload)
    }

    /// Fails where there is no memory for a long payload; then nothing is sent.
    pub(crate) fn send(&mut self, kind: u32, count: u32, id: u64, payload: &Payload<'_>) -> io::Result<()> {
        let slot = self.take_slot(payload.length)?;
        let mut bytes = Vec::new();
        let size = 128 + if slot.is_none() { payload.length } else { 0 };
        bytes.try_reserve(size).map_err(|_| io::ErrorKind::OutOfMemory)?;
        self.add_releases(&mut bytes);
        let mut head = Head { kind, count, id, slot: 0, length: payload.length as u64 };
        let Some(slot) = slot else {
            head.write(&mut bytes);
            let start = bytes.len();
            bytes.extend_from_slice(&payload.heads);
            for (at, data) in &payload.tensors {
                bytes.resize(start + at, 0);
                bytes.extend_from_slice(data);
            }
            self.push(bytes, None);
            return Ok(());
        };
        slot.write(0, &payload.heads);
        for (at, data) in &payload.tensors {
            slot.write(*at, data);
        }
        self.forget_dropped(&mut bytes);
        if self.announced.insert(slot.id()) {
            let mut add = Vec::new();
            let size = slot.len() as u64;
            Head { kind: kind::ADD_SLOT, id: size, slot: slot.id(), ..Head::default() }.write(&mut add);
            self.push(add, Some(slot.clone()));
        }
        head.slot = slot.id();
        head.write(&mut bytes);
        self.lent.insert(slot.id(), Lent::new(slot));
        self.push(bytes, None);
        Ok(())
    }

    /// `None`: the payload goes through the socket.
    fn take_slot(&self, length: usize) -> io::Result<Option<LentSlot>> {
        if length <= INLINE_BYTES || self.lent.len() >= MOST_LENT || Lent::is_full() {
            return Ok(None);
        }
        match self.pool.take(length) {
            Ok(slot) => Ok(Some(slot)),
            Err(error) => match Errno::from_io_error(&error) {
                Some(Errno::MFILE | Errno::NFILE) => Ok(None),
                _ => Err(error),
            },
        }
    }

    /// Tells the worker of slots that are no more.
    fn forget_dropped(&mut self, bytes: &mut Vec<u8>) {
        if self.drops == self.pool.drops() {
            return;
        }
        self.drops = self.pool.drops();
        let pool = &self.pool;
        self.announced.retain(|&slot| {
            let is_alive = pool.is_alive(slot);
            if !is_alive {
                Head { kind: kind::DROP_SLOT, slot, ..Head::default() }.write(bytes);
            }
            is_alive
        });
    }

    /// A socket that fails is found by the supervisor, which sends the rest.
    fn push(&mut self, bytes: Vec<u8>, slot: Option<LentSlot>) {
        let was_blocked = self.is_blocked();
        self.waiting.push_back(Piece { bytes, sent: 0, slot });
        if !was_blocked {
            let _ = self.flush();
        }
    }

    /// Sends as much as the socket takes.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        while let Some(piece) = self.waiting.front_mut() {
            let descriptor = piece.slot.as_ref().filter(|_| piece.sent == 0).map(|slot| slot.fd());
            match send(self.socket.as_fd(), &[IoSlice::new(&piece.bytes[piece.sent..])], descriptor) {
                Ok(sent) => piece.sent += sent,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
            if piece.sent == piece.bytes.len() {
                self.waiting.pop_front();
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    use super::*;

    #[test]
    fn a_worker_that_does_not_read_takes_a_bounded_number_of_slots() {
        let (ours, _theirs) =
            socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::NONBLOCK, None).unwrap();
        let mut outgoing = OutgoingFrames::new(Arc::new(ours), Released::default());
        let long =
            Payload { heads: vec![7; INLINE_BYTES + 1], tensors: Vec::new(), length: INLINE_BYTES + 1 };
        let most = MOST_LENT.min(*MOST_LENT_OF_ALL);
        for id in 0..most as u64 + 8 {
            outgoing.send(kind::CALL_RESPONSE, 0, id, &long).unwrap();
        }
        assert_eq!(outgoing.lent.len(), most);
        let last = &outgoing.waiting.back().unwrap().bytes;
        assert!(last.ends_with(&long.heads), "the last one goes as it is");
        let given_back = *outgoing.lent.keys().next().unwrap();
        outgoing.take_back(given_back);
        outgoing.send(kind::CALL_RESPONSE, 0, 0, &long).unwrap();
        assert_eq!(outgoing.lent.len(), most, "there is room for one more");

        // As if the worker had read all.
        outgoing.waiting.clear();
        let all: Vec<u64> = outgoing.lent.keys().copied().collect();
        for slot in all {
            outgoing.take_back(slot);
        }
        assert!(outgoing.announced.len() >= most, "it has heard of none that is no more");
        outgoing.tidy();
        assert_eq!(outgoing.announced.len(), KEPT.kept_slots, "the others go without anything else to send");
    }
}
