//! What a thread does beside its connections, until it ends: it accepts new ones, or looks after something.
//!
//! A panic ends no duty. One that panics begins again by itself; all of them begin again with the thread.

use std::cell::RefCell;
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use tokio::task::JoinHandle;

use crate::io::IoThreads;
use crate::listen::{Entrance, Listener, accept};
use crate::net::{Chore, Net};
use crate::tls;

/// Then a duty that has panicked begins again.
const PAUSE: Duration = Duration::from_millis(50);
/// How often a chore is done.
const CHORE_EVERY: Duration = Duration::from_millis(500);

#[derive(Clone)]
pub(super) enum Duty {
    Listen(Arc<Listener>, Arc<Entrance>, Arc<IoThreads>),
    WatchTls,
    Chore(Chore),
}

/// Those of one thread.
#[derive(Default)]
pub(super) struct Duties(RefCell<Vec<BegunDuty>>);

struct BegunDuty {
    duty: Duty,
    task: JoinHandle<()>,
}

impl Duties {
    pub(super) fn begin(&self, duty: Duty, net: &Arc<Net>) {
        let task = duty.begin(net);
        self.0.borrow_mut().push(BegunDuty { duty, task });
    }

    /// The runtime of their tasks has gone.
    pub(super) fn begin_again(&self, net: &Arc<Net>) {
        self.0.borrow_mut().iter_mut().for_each(|begun| begun.task = begun.duty.begin(net));
    }

    /// Returns when nobody can connect any more.
    pub(super) async fn close_listeners(&self) {
        let listens = |begun: &mut BegunDuty| matches!(begun.duty, Duty::Listen(..));
        let listening: Vec<BegunDuty> = self.0.borrow_mut().extract_if(.., listens).collect();
        for BegunDuty { duty, task } in listening {
            drop(duty);
            task.abort();
            // Its end is what is waited for, not its result.
            let _ = task.await;
        }
    }
}

impl Duty {
    fn begin(&self, net: &Arc<Net>) -> JoinHandle<()> {
        let (duty, net) = (self.clone(), net.clone());
        tokio::task::spawn_local(async move {
            let complaints = &net.complaints;
            while panics(duty.attend(&net)).await {
                complaints.error("duty", || "a task of an io thread panicked: it begins again".to_owned());
                tokio::time::sleep(PAUSE).await;
            }
        })
    }

    async fn attend(&self, net: &Arc<Net>) {
        match self {
            Self::Listen(listener, entrance, threads) => accept(listener, entrance, threads).await,
            Self::WatchTls => tls::watch(net.clone()).await,
            Self::Chore(chore) => loop {
                tokio::time::sleep(CHORE_EVERY).await;
                chore();
            },
        }
    }
}

/// Whether it ends by a panic.
async fn panics(work: impl Future<Output = ()>) -> bool {
    let mut work = pin!(work);
    poll_fn(|context| match catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(context))) {
        Ok(polled) => polled.map(|()| false),
        Err(_) => Poll::Ready(true),
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_told_from_an_end() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let after_a_turn = |fails: bool| async move {
            tokio::task::yield_now().await;
            assert!(!fails, "out of charcoal");
        };
        assert!(runtime.block_on(panics(after_a_turn(true))));
        assert!(!runtime.block_on(panics(after_a_turn(false))));
    }
}
