//! TLS handshakes of one io thread: limited in time and in number, and paced.
//!
//! Beyond the limit the one whose client has said nothing for the longest gives way: clients that connect
//! and stop keep nobody out. The costly part, a millisecond of arithmetic, is done for one client per
//! round of the thread, so that connections that are open do not wait for a crowd that arrives.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::io;
use std::rc::Rc;
use std::time::{Duration, Instant};

use rustls::server::Acceptor;
use tokio::net::TcpStream;
use tokio::sync::{Mutex, Notify};
use tokio::time::timeout;
use tokio_rustls::LazyConfigAcceptor;
use tokio_rustls::server::TlsStream;

use crate::tls::Tls;

/// Handshakes of one io thread that wait for their clients.
const MAX_WAITING: usize = 512;

#[derive(Default)]
pub(crate) struct Handshakes {
    /// In the order in which they began to wait.
    waiting: RefCell<BTreeMap<u64, Rc<Notify>>>,
    next: Cell<u64>,
    turn: Mutex<()>,
}

impl Handshakes {
    /// All of it may take as long as `patience`.
    pub(crate) async fn shake(
        &self,
        tls: &Tls,
        stream: TcpStream,
        patience: Duration,
    ) -> io::Result<TlsStream<TcpStream>> {
        let work = async {
            let start = self.heard(LazyConfigAcceptor::new(Acceptor::default(), stream)).await?;
            let turn = self.turn.lock().await;
            let accept = start.into_stream(tls.config(Instant::now()));
            tokio::task::yield_now().await;
            drop(turn);
            self.heard(accept).await
        };
        timeout(patience, work).await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
    }

    /// Ends those that wait for their clients: the server closes.
    pub(crate) fn end(&self) {
        self.waiting.borrow().values().for_each(|ended| ended.notify_one());
    }

    /// What becomes of `work`, which waits for the client.
    async fn heard<T>(&self, work: impl Future<Output = io::Result<T>>) -> io::Result<T> {
        let place = self.wait();
        tokio::select! {
            biased;
            done = work => done,
            () = place.ended.notified() => Err(io::Error::other("its place was needed, or the server closes")),
        }
    }

    fn wait(&self) -> Place<'_> {
        let mut waiting = self.waiting.borrow_mut();
        if waiting.len() >= MAX_WAITING
            && let Some((_, longest)) = waiting.pop_first()
        {
            longest.notify_one();
        }
        let number = self.next.replace(self.next.get() + 1);
        let ended = Rc::new(Notify::new());
        waiting.insert(number, ended.clone());
        Place { handshakes: self, number, ended }
    }
}

struct Place<'a> {
    handshakes: &'a Handshakes,
    number: u64,
    ended: Rc<Notify>,
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.handshakes.waiting.borrow_mut().remove(&self.number);
    }
}
