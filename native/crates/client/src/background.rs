//! The thread of a client: takes calls from an inbox, runs each as a task, ends each exactly once.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use kushi_core::{Error, ErrorKind, Inbox};
use tokio::runtime::LocalOptions;
use tokio::sync::Notify;
use tokio::task::AbortHandle;

use crate::{Answer, Call, CallAnswer, InferCall, Streamed};

/// Calls under way at one time; beyond it they are refused at once.
const MAX_CALLS: usize = 65_536;

type InferDone = Box<dyn FnOnce(Box<InferCall>, Result<Answer, Error>) + Send>;
type Deliver = Box<dyn Fn(Streamed) + Send>;
type CallDone = Box<dyn FnOnce(Result<CallAnswer, Error>) + Send>;

/// A server, as the thread of its client sees it.
pub(crate) trait Remote: 'static {
    async fn infer(&self, call: &InferCall, deadline: Option<Instant>) -> Result<Answer, Error>;

    /// Answers go to `deliver` as they come.
    async fn stream(
        &self,
        call: &InferCall,
        deadline: Option<Instant>,
        deliver: &dyn Fn(Streamed),
    ) -> Result<(), Error>;

    async fn call(&self, call: &Call, deadline: Option<Instant>) -> Result<CallAnswer, Error>;
}

pub(crate) enum Job {
    Infer(Box<InferCall>, InferDone),
    Stream(Box<InferCall>, Deliver),
    Call(Call, CallDone),
}

impl Job {
    fn fail(self, error: Error) {
        match self {
            Self::Infer(call, done) => done(call, Err(error)),
            Self::Stream(_, deliver) => deliver(Streamed::End(Err(error))),
            Self::Call(_, done) => done(Err(error)),
        }
    }
}

enum BackgroundOrder {
    Run { id: u64, deadline: Option<Instant>, job: Job },
    Cancel(u64),
    Close,
}

/// The thread, as callers see it.
pub(crate) struct Background {
    inbox: Inbox<BackgroundOrder>,
    next_id: AtomicU64,
    under_way: AtomicUsize,
    /// Nobody looks into the inbox any more.
    ended: AtomicBool,
}

impl Background {
    pub(crate) fn start<R: Remote>(
        server: impl FnOnce() -> R + Send + 'static,
    ) -> Result<(Arc<Self>, JoinHandle<()>), Error> {
        let arrived = Arc::new(Notify::new());
        let bell = arrived.clone();
        let background = Arc::new(Self {
            inbox: Inbox::new(MAX_CALLS, move || bell.notify_one()),
            next_id: AtomicU64::new(0),
            under_way: AtomicUsize::new(0),
            ended: AtomicBool::new(false),
        });
        let own = background.clone();
        let (report, started) = mpsc::channel();
        let work = move || {
            let _end = EndOfThread(own.clone());
            match tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build_local(LocalOptions::default())
            {
                Ok(runtime) => {
                    let _ = report.send(Ok(()));
                    let calls = Rc::new(Calls {
                        server: server(),
                        tasks: RefCell::default(),
                        closing: Cell::new(false),
                        background: own,
                    });
                    // As a task like the others: waking the runtime's main future costs a look at the
                    // sockets.
                    let attending = runtime.spawn_local(attend(calls, arrived));
                    if let Err(error) = runtime.block_on(attending) {
                        log::error!("the thread of a client ended: {error}");
                    }
                    // A resolver that hangs holds up nobody who closes.
                    runtime.shutdown_background();
                }
                Err(error) => {
                    let _ = report.send(Err(error));
                }
            }
        };
        let thread = thread::Builder::new().name("kushi-client".into()).spawn(work);
        let thread = thread.and_then(|thread| {
            started.recv().map_err(std::io::Error::other)??;
            Ok(thread)
        });
        let thread = thread.map_err(|error| {
            Error::new(ErrorKind::Internal, format!("cannot start the thread of a client: {error}"))
        })?;
        Ok((background, thread))
    }

    pub(crate) fn submit(&self, job: Job, patience: Option<Duration>) -> u64 {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let deadline = patience.and_then(|patience| Instant::now().checked_add(patience));
        if self.under_way.fetch_add(1, Ordering::Relaxed) >= MAX_CALLS {
            self.under_way.fetch_sub(1, Ordering::Relaxed);
            let text = format!("{MAX_CALLS} calls of this client are under way already");
            job.fail(Error::new(ErrorKind::Overloaded, text));
            return id;
        }
        self.inbox.push_owed(BackgroundOrder::Run { id, deadline, job });
        self.refuse_the_rest_if_ended();
        id
    }

    pub(crate) fn cancel(&self, id: u64) {
        self.inbox.push_owed(BackgroundOrder::Cancel(id));
        self.refuse_the_rest_if_ended();
    }

    pub(crate) fn close(&self) {
        self.inbox.push_owed(BackgroundOrder::Close);
        self.refuse_the_rest_if_ended();
    }

    /// Whatever was pushed after the thread's last look is seen here: it announces its end before that look.
    fn refuse_the_rest_if_ended(&self) {
        if self.ended.load(Ordering::Acquire) {
            self.refuse_the_rest();
        }
    }

    fn refuse_the_rest(&self) {
        let mut rest = Vec::new();
        self.inbox.drain(&mut rest);
        for order in rest {
            if let BackgroundOrder::Run { job, .. } = order {
                self.under_way.fetch_sub(1, Ordering::Relaxed);
                job.fail(closed());
            }
        }
    }
}

fn closed() -> Error {
    Error::new(ErrorKind::ConnectionLost, "the client is closed")
}

/// Runs when the thread ends, also by a panic.
struct EndOfThread(Arc<Background>);

impl Drop for EndOfThread {
    fn drop(&mut self) {
        self.0.ended.store(true, Ordering::Release);
        self.0.refuse_the_rest();
    }
}

/// The calls under way, and what their tasks share.
struct Calls<R> {
    server: R,
    tasks: RefCell<HashMap<u64, AbortHandle>>,
    closing: Cell<bool>,
    background: Arc<Background>,
}

async fn attend<R: Remote>(calls: Rc<Calls<R>>, arrived: Arc<Notify>) {
    let mut burst = Vec::new();
    loop {
        calls.background.inbox.drain(&mut burst);
        for order in burst.drain(..) {
            match order {
                BackgroundOrder::Run { id, deadline, job } if !calls.closing.get() => {
                    let call = Running { calls: calls.clone(), id, job: Some(job) };
                    let task = tokio::task::spawn_local(call.run(deadline));
                    calls.tasks.borrow_mut().insert(id, task.abort_handle());
                }
                BackgroundOrder::Run { id, job, .. } => {
                    drop(Running { calls: calls.clone(), id, job: Some(job) });
                }
                BackgroundOrder::Cancel(id) => {
                    if let Some(task) = calls.tasks.borrow().get(&id) {
                        task.abort();
                    }
                }
                // The tasks end with the runtime.
                BackgroundOrder::Close => calls.closing.set(true),
            }
        }
        if calls.closing.get() {
            return;
        }
        arrived.notified().await;
    }
}

/// A call under way. Dropped before its end has come, it was cancelled, the client closed, or a bug.
struct Running<R> {
    calls: Rc<Calls<R>>,
    id: u64,
    job: Option<Job>,
}

impl<R: Remote> Running<R> {
    async fn run(mut self, deadline: Option<Instant>) {
        let server = &self.calls.server;
        match &self.job {
            Some(Job::Infer(call, _)) => {
                let answer = within(deadline, pin!(server.infer(call, deadline))).await;
                if let Some(Job::Infer(call, done)) = self.end() {
                    done(call, answer);
                }
            }
            Some(Job::Stream(call, deliver)) => {
                let ended = within(deadline, pin!(server.stream(call, deadline, deliver))).await;
                if let Some(Job::Stream(_, deliver)) = self.end() {
                    deliver(Streamed::End(ended));
                }
            }
            Some(Job::Call(call, _)) => {
                let answer = within(deadline, pin!(server.call(call, deadline))).await;
                if let Some(Job::Call(_, done)) = self.end() {
                    done(answer);
                }
            }
            None => {}
        }
    }
}

impl<R> Running<R> {
    fn end(&mut self) -> Option<Job> {
        self.calls.tasks.borrow_mut().remove(&self.id);
        let job = self.job.take()?;
        self.calls.background.under_way.fetch_sub(1, Ordering::Relaxed);
        Some(job)
    }
}

impl<R> Drop for Running<R> {
    fn drop(&mut self) {
        if let Some(job) = self.end() {
            job.fail(if thread::panicking() {
                Error::new(ErrorKind::Internal, "the client has failed, see standard error")
            } else if self.calls.closing.get() {
                closed()
            } else {
                // As the core words it.
                Error::new(ErrorKind::Cancelled, "")
            });
        }
    }
}

/// `work` by reference: a task is copied several times on its way, and its size counts.
async fn within<T>(
    deadline: Option<Instant>,
    work: Pin<&mut impl Future<Output = Result<T, Error>>>,
) -> Result<T, Error> {
    match deadline {
        None => work.await,
        // What is late already is not begun.
        Some(deadline) if deadline <= Instant::now() => Err(Error::expired()),
        Some(deadline) => {
            tokio::time::timeout_at(deadline.into(), work).await.unwrap_or_else(|_| Err(Error::expired()))
        }
    }
}
