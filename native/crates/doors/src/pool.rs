//! A few threads for what would keep an io thread from its connections: large bodies to be put
//! together and read, large answers to be written.
//!
//! First come, first served, at a lower priority than io threads. What waits here holds its share of
//! `max_inflight_bytes`, which bounds the queue. Threads start when there is work for them.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use kushi_core::{Error, ErrorKind, os_text};
use tokio::sync::oneshot;

use crate::http::body_memory::BodyMemory;

type Job = Box<dyn FnOnce(&BodyMemory) + Send>;

pub(crate) struct Pool {
    shared: Arc<Shared>,
    most_threads: usize,
    start: fn(),
}

#[derive(Default)]
struct Shared {
    queue: Mutex<Queue>,
    arrived: Condvar,
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<Job>,
    idle: usize,
    closed: bool,
    threads: Vec<JoinHandle<()>>,
}

/// Work on its way.
pub(crate) struct Begun<T>(oneshot::Receiver<T>);

impl Pool {
    /// Each thread begins with `start`.
    pub(crate) fn new(most_threads: usize, start: fn()) -> Self {
        Self { shared: Arc::default(), most_threads: most_threads.max(1), start }
    }

    /// What `work` makes of memory that is the thread's. Work that nobody waits for any more is not done.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce(&BodyMemory) -> T + Send + 'static,
    ) -> Result<T, Error> {
        self.begin(work)?.end().await
    }

    /// The same for work that goes on while others do something else.
    pub(crate) fn begin<T: Send + 'static>(
        &self,
        work: impl FnOnce(&BodyMemory) -> T + Send + 'static,
    ) -> Result<Begun<T>, Error> {
        let (done, result) = oneshot::channel();
        self.push(Box::new(move |memory| {
            if !done.is_closed() {
                // Whoever asked may have gone.
                let _ = done.send(work(memory));
            }
        }))?;
        Ok(Begun(result))
    }

    /// Gives memory back there: for large memory that takes long.
    pub(crate) fn drop_there(&self, large: impl Send + 'static) {
        // Where there is no thread it has been dropped already.
        let _ = self.push(Box::new(move |_| drop(large)));
    }

    fn push(&self, job: Job) -> Result<(), Error> {
        let mut queue = self.shared.lock();
        if queue.closed {
            return Err(Error::new(ErrorKind::ShuttingDown, "Server exiting"));
        }
        if queue.idle <= queue.waiting.len() && queue.threads.len() < self.most_threads {
            let (shared, start) = (self.shared.clone(), self.start);
            let name = format!("kushi-body-{}", queue.threads.len());
            match thread::Builder::new().name(name).spawn(move || shared.attend(start)) {
                Ok(thread) => queue.threads.push(thread),
                Err(error) if queue.threads.is_empty() => {
                    let text = format!("cannot start a thread for large bodies: {}", os_text(&error));
                    return Err(Error::new(ErrorKind::Overloaded, text));
                }
                Err(error) => log::warn!("large bodies have one thread less: {}", os_text(&error)),
            }
        }
        queue.waiting.push_back(job);
        drop(queue);
        self.shared.arrived.notify_one();
        Ok(())
    }

    /// Drops what waits; whoever waits for it hears so. Returns when the threads have ended.
    pub(crate) fn close(&self) {
        let (waiting, threads) = {
            let mut queue = self.shared.lock();
            queue.closed = true;
            (std::mem::take(&mut queue.waiting), std::mem::take(&mut queue.threads))
        };
        self.shared.arrived.notify_all();
        drop(waiting);
        for thread in threads {
            if thread.join().is_err() {
                log::error!("a thread for large bodies panicked");
            }
        }
    }
}

impl<T> Begun<T> {
    pub(crate) async fn end(self) -> Result<T, Error> {
        let lost = |_| Error::new(ErrorKind::Internal, "work on a large body was dropped");
        self.0.await.map_err(lost)
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
                log::error!("work on a large body panicked");
            }
        }
    }

    fn next(&self) -> Option<Job> {
        let mut queue = self.lock();
        loop {
            if queue.closed {
                return None;
            }
            if let Some(job) = queue.waiting.pop_front() {
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
    use super::*;

    fn block_on<T>(future: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
    }

    #[test]
    fn work_is_done_elsewhere_in_order_and_survives_a_panic() {
        let pool = Pool::new(1, || {});
        let here = thread::current().id();
        let there = block_on(pool.run(|_| thread::current().id())).unwrap();
        assert_ne!(here, there);
        let error: Error = block_on(pool.run::<()>(|_| panic!("out of flour"))).unwrap_err();
        assert_eq!(error.kind, ErrorKind::Internal);
        assert_eq!(block_on(pool.run(|_| thread::current().id())).unwrap(), there);
    }

    #[test]
    fn a_closed_pool_refuses() {
        let pool = Pool::new(2, || {});
        assert_eq!(block_on(pool.run(|_| 7)), Ok(7));
        pool.close();
        assert_eq!(block_on(pool.run(|_| 7)).map_err(|error| error.kind), Err(ErrorKind::ShuttingDown));
    }
}
