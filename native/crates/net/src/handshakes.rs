//! TLS handshakes of one io thread: limited in time and in number, and paced.
//!
//! Beyond the limit the one whose client has said nothing for the longest gives way: clients that connect
//! and stop keep nobody out. The costly part, a millisecond of arithmetic, is done for one client per
//! round of the thread, so that connections that are open do not wait for a crowd that arrives.

use std::io;
use std::time::Duration;

use rustls::server::Acceptor;
use tokio::net::TcpStream;
use tokio::sync::Mutex;
use tokio::time::timeout;
use tokio_rustls::LazyConfigAcceptor;
use tokio_rustls::server::TlsStream;

use crate::tls::Tls;
use crate::waiting_limit::WaitingLimit;

/// Handshakes of one io thread that wait for their clients.
const MAX_WAITING: usize = 512;

pub struct Handshakes {
    waiting: WaitingLimit,
    turn: Mutex<()>,
}

impl Default for Handshakes {
    fn default() -> Self {
        Self { waiting: WaitingLimit::of(MAX_WAITING), turn: Mutex::default() }
    }
}

impl Handshakes {
    /// All of it may take as long as `patience`.
    pub async fn shake(
        &self,
        tls: &Tls,
        stream: TcpStream,
        patience: Duration,
    ) -> io::Result<TlsStream<TcpStream>> {
        let work = async {
            let start = self.heard(LazyConfigAcceptor::new(Acceptor::default(), stream)).await?;
            let turn = self.turn.lock().await;
            let accept = start.into_stream(tls.config());
            tokio::task::yield_now().await;
            drop(turn);
            self.heard(accept).await
        };
        timeout(patience, work).await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
    }

    /// Ends those that wait for their clients: the server closes.
    pub fn end(&self) {
        self.waiting.end();
    }

    /// What becomes of `work`, which waits for the client.
    async fn heard<T>(&self, work: impl Future<Output = io::Result<T>>) -> io::Result<T> {
        let ended = || Err(io::Error::other("its place was needed, or the server closes"));
        self.waiting.enter().keep(work).await.unwrap_or_else(ended)
    }
}
