//! A few threads for what would keep an io thread from its connections: large bodies to be put
//! together and read, large answers to be written.
//!
//! It runs at a lower priority than io threads, and models take turns, so that the work of one does not stand
//! in front of that of all others. So does work of different sizes: what is small does not wait behind much that
//! is large. What waits here holds its share of `max_inflight_bytes`, which bounds the queue, and goes with
//! whoever asked for it. Threads start when there is work for them.

use std::collections::{BTreeMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use kushi_core::{Complaints, Error, ErrorKind, ModelSpec, os_text};
use tokio::sync::oneshot;

use crate::body_memory::BodyMemory;

type Job = Box<dyn FnOnce(&BodyMemory) + Send>;

pub struct Pool {
    shared: Arc<Shared>,
    most_threads: usize,
    start: fn(),
}

#[derive(Default)]
struct Shared {
    queue: Mutex<Queue>,
    arrived: Condvar,
    /// A thread has come to its end.
    ended: Condvar,
    complaints: Complaints,
}

#[derive(Default)]
struct Queue {
    /// By their turns: the first has the next one.
    lines: VecDeque<(Line, BTreeMap<u64, Job>)>,
    waiting: usize,
    /// Of the next job.
    number: u64,
    idle: usize,
    closed: bool,
    threads: Vec<JoinHandle<()>>,
    /// Threads that have not come to their end.
    running: usize,
}

/// Whose work it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner(usize);

/// Jobs that are done in the order in which they came: of one owner, and of about the same size.
type Line = (Owner, u32);

/// Work on its way. Given up when dropped, if it has not begun.
pub struct Begun<T> {
    result: oneshot::Receiver<T>,
    _queued: Queued,
}

struct Queued {
    shared: Arc<Shared>,
    line: Line,
    number: u64,
}

impl Owner {
    /// Work on requests of no model.
    pub const SERVER: Self = Self(0);

    /// A model, which is told by where its specification lies.
    pub fn model(spec: &Arc<ModelSpec>) -> Self {
        Self(Arc::as_ptr(spec).addr())
    }

    fn line(self, bytes: usize) -> Line {
        (self, bytes.checked_ilog2().unwrap_or(0))
    }
}

impl Pool {
    /// Each thread begins with `start`.
    pub fn new(most_threads: usize, start: fn()) -> Self {
        Self { shared: Arc::default(), most_threads: most_threads.max(1), start }
    }

    /// What `work` on so many bytes makes of memory that is the thread's.
    pub async fn run<T: Send + 'static>(
        &self,
        owner: Owner,
        bytes: usize,
        work: impl FnOnce(&BodyMemory) -> T + Send + 'static,
    ) -> Result<T, Error> {
        self.begin(owner, bytes, work)?.end().await
    }

    /// The same for work that goes on while others do something else.
    pub fn begin<T: Send + 'static>(
        &self,
        owner: Owner,
        bytes: usize,
        work: impl FnOnce(&BodyMemory) -> T + Send + 'static,
    ) -> Result<Begun<T>, Error> {
        let (done, result) = oneshot::channel();
        let job = Box::new(move |memory: &BodyMemory| {
            // Whoever asked may have gone.
            let _ = done.send(work(memory));
        });
        let line = owner.line(bytes);
        let number = self.push(line, job)?;
        Ok(Begun { result, _queued: Queued { shared: self.shared.clone(), line, number } })
    }

    /// Gives memory back there: for large memory that takes long.
    pub fn drop_there(&self, large: impl Send + 'static) {
        // Where there is no thread it has been dropped already.
        let _ = self.push(Owner::SERVER.line(0), Box::new(move |_| drop(large)));
    }

    fn push(&self, line: Line, job: Job) -> Result<u64, Error> {
        let mut queue = self.shared.lock();
        if queue.closed {
            return Err(Error::new(ErrorKind::ShuttingDown, "Server exiting"));
        }
        if queue.idle <= queue.waiting && queue.threads.len() < self.most_threads {
            let (shared, start) = (self.shared.clone(), self.start);
            let name = format!("kushi-body-{}", queue.threads.len());
            match thread::Builder::new().name(name).spawn(move || Running { shared }.attend(start)) {
                Ok(thread) => {
                    queue.threads.push(thread);
                    queue.running += 1;
                }
                Err(error) if queue.threads.is_empty() => {
                    let text = format!("cannot start a thread for large bodies: {}", os_text(&error));
                    return Err(Error::new(ErrorKind::Overloaded, text));
                }
                Err(error) => self
                    .shared
                    .complaints
                    .warn("thread", || format!("large bodies have one thread less: {}", os_text(&error))),
            }
        }
        let number = queue.add(line, job);
        drop(queue);
        self.shared.arrived.notify_one();
        Ok(number)
    }

    /// Drops what waits; whoever waits for it hears so. Waits so long for the threads: what a GPU or a disk keeps is left
    /// behind.
    pub fn close(&self, patience: Duration) {
        let until = Instant::now() + patience;
        let (waiting, threads) = {
            let mut queue = self.shared.lock();
            queue.closed = true;
            queue.waiting = 0;
            (std::mem::take(&mut queue.lines), std::mem::take(&mut queue.threads))
        };
        self.shared.arrived.notify_all();
        drop(waiting);
        let mut queue = self.shared.lock();
        while queue.running > 0 {
            let rest = until.saturating_duration_since(Instant::now());
            if rest.is_zero() {
                log::warn!("a thread for large bodies was still at work when the server closed");
                return;
            }
            let (same, _) =
                self.shared.ended.wait_timeout(queue, rest).unwrap_or_else(PoisonError::into_inner);
            queue = same;
        }
        drop(queue);
        for thread in threads {
            if thread.join().is_err() {
                log::error!("a thread for large bodies panicked");
            }
        }
    }
}

impl<T> Begun<T> {
    pub async fn end(mut self) -> Result<T, Error> {
        let lost = |_| Error::new(ErrorKind::Internal, "work on a large body was dropped");
        (&mut self.result).await.map_err(lost)
    }
}

impl Drop for Queued {
    fn drop(&mut self) {
        let job = self.shared.lock().remove(self.line, self.number);
        drop(job);
    }
}

impl Queue {
    fn add(&mut self, line: Line, job: Job) -> u64 {
        self.number += 1;
        self.waiting += 1;
        match self.lines.iter_mut().find(|(known, _)| *known == line) {
            Some((_, jobs)) => drop(jobs.insert(self.number, job)),
            None => self.lines.push_back((line, BTreeMap::from([(self.number, job)]))),
        }
        self.number
    }

    /// The first job of the line that has its turn, which is the last to have the next one.
    fn next(&mut self) -> Option<Job> {
        let (line, mut jobs) = self.lines.pop_front()?;
        let (_, job) = jobs.pop_first()?;
        self.waiting -= 1;
        if !jobs.is_empty() {
            self.lines.push_back((line, jobs));
        }
        Some(job)
    }

    fn remove(&mut self, line: Line, number: u64) -> Option<Job> {
        let index = self.lines.iter().position(|(known, _)| *known == line)?;
        let job = self.lines[index].1.remove(&number)?;
        self.waiting -= 1;
        if self.lines[index].1.is_empty() {
            self.lines.remove(index);
        }
        Some(job)
    }
}

/// A thread, until its end.
struct Running {
    shared: Arc<Shared>,
}

impl Running {
    fn attend(&self, start: fn()) {
        self.shared.attend(start);
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.shared.lock().running -= 1;
        self.shared.ended.notify_all();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn attend(&self, start: fn()) {
        start();
        let memory = BodyMemory::default();
        while let Some(job) = self.next() {
            if catch_unwind(AssertUnwindSafe(|| job(&memory))).is_err() {
                self.complaints.error("panic", || "work on a large body panicked".to_owned());
            }
        }
    }

    fn next(&self) -> Option<Job> {
        let mut queue = self.lock();
        loop {
            if queue.closed {
                return None;
            }
            if let Some(job) = queue.next() {
                return Some(job);
            }
            queue.idle += 1;
            queue = self.arrived.wait(queue).unwrap_or_else(PoisonError::into_inner);
            queue.idle -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    fn block_on<T>(future: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
    }

    const OWNER: Owner = Owner::SERVER;

    #[test]
    fn work_is_done_elsewhere_and_survives_a_panic() {
        let pool = Pool::new(1, || {});
        let here = thread::current().id();
        let there = block_on(pool.run(OWNER, 0, |_| thread::current().id())).unwrap();
        assert_ne!(here, there);
        let error: Error = block_on(pool.run::<()>(OWNER, 0, |_| panic!("out of flour"))).unwrap_err();
        assert_eq!(error.kind, ErrorKind::Internal);
        assert_eq!(block_on(pool.run(OWNER, 0, |_| thread::current().id())).unwrap(), there);
    }

    #[test]
    fn owners_and_sizes_take_turns_and_what_nobody_waits_for_is_dropped() {
        let pool = Pool::new(1, || {});
        let (gate, wait) = mpsc::channel::<()>();
        let busy = pool.begin(OWNER, 0, move |_| wait.recv().is_err()).unwrap();
        let (done, order) = mpsc::channel();
        let begin = |owner, bytes, name: &'static str| {
            let done = done.clone();
            pool.begin(Owner(owner), bytes, move |_| done.send(name).is_ok()).unwrap()
        };
        let jobs = [
            (1, 16 << 20, "first"),
            (1, 17 << 20, "second"),
            (1, 16 << 20, "third"),
            (1, 70_000, "small"),
            (2, 16 << 20, "another model's"),
            (2, 16 << 20, "its second"),
        ];
        let mut given: Vec<_> =
            jobs.into_iter().map(|(owner, bytes, name)| begin(owner, bytes, name)).collect();
        let memory = Arc::new(());
        let held = memory.clone();
        let left = pool.begin(Owner(2), 16 << 20, move |_| drop(held)).unwrap();
        drop(left);
        assert_eq!(Arc::strong_count(&memory), 1, "while the thread is still busy");
        drop(given.remove(1));
        drop(gate);
        assert_eq!(block_on(busy.end()), Ok(true));
        assert!(given.into_iter().all(|begun| block_on(begun.end()) == Ok(true)));
        drop(done);
        let order: Vec<_> = order.iter().collect();
        assert_eq!(order, ["first", "small", "another model's", "third", "its second"]);
    }

    #[test]
    fn work_that_hangs_is_left_behind() {
        let pool = Pool::new(2, || {});
        let (gate, wait) = mpsc::channel::<()>();
        let (begun, has_begun) = mpsc::channel();
        let work = move |_: &_| begun.send(()).is_ok() && wait.recv().is_err();
        let hangs = pool.begin(OWNER, 0, work).unwrap();
        has_begun.recv().unwrap();
        pool.close(Duration::ZERO);
        drop(gate);
        assert_eq!(block_on(hangs.end()), Ok(true));
    }

    #[test]
    fn a_closed_pool_refuses() {
        let pool = Pool::new(2, || {});
        assert_eq!(block_on(pool.run(OWNER, 0, |_| 7)), Ok(7));
        pool.close(Duration::from_secs(60));
        let refused = block_on(pool.run(OWNER, 0, |_| 7));
        assert_eq!(refused.map_err(|error| error.kind), Err(ErrorKind::ShuttingDown));
    }
}
