//! A connection to a server, open and ready to be spoken on.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use kushi_core::{Error, ErrorKind};
use rustix::net::{Shutdown, shutdown, sockopt};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::timeout_at;
use tokio_rustls::client::TlsStream;

use crate::address::Address;
use crate::tls::{self, Tls};

/// A peer that vanished without a word is noticed after about half a minute.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(15);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(5);
const KEEPALIVE_PROBES: u32 = 3;

/// In the clear, or with TLS.
pub(crate) enum Opened {
    Plain(Socket),
    Secure(Box<TlsStream<Socket>>),
}

pub(crate) async fn open(address: &Address, tls: Option<&Tls>, patience: Duration) -> Result<Opened, Error> {
    let until = Instant::now() + patience;
    let within = |error| not_connected(address, &error);
    let connect = TcpStream::connect((address.host.as_str(), address.port));
    let stream = in_time(until, connect).await.map_err(within)?;
    prepare(&stream).map_err(within)?;
    let socket = Socket(stream);
    match tls {
        None => Ok(Opened::Plain(socket)),
        Some(tls) => {
            let stream = in_time(until, tls.connect(socket)).await.map_err(within)?;
            Ok(Opened::Secure(Box::new(stream)))
        }
    }
}

fn not_connected(address: &Address, error: &io::Error) -> Error {
    if let Some(what) = tls::error_text(error) {
        return Error::new(ErrorKind::ConnectionLost, format!("cannot connect to {address}: {what}"));
    }
    let what = match error.kind() {
        io::ErrorKind::ConnectionRefused => "nothing listens there".to_owned(),
        io::ErrorKind::TimedOut => "no answer in time".to_owned(),
        _ => error.to_string(),
    };
    let advice = "start the server, or give the client its address";
    Error::new(ErrorKind::ConnectionLost, format!("cannot connect to {address}: {what}; {advice}"))
}

async fn in_time<T>(until: Instant, work: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    timeout_at(until.into(), work).await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}

fn prepare(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, KEEPALIVE_IDLE)?;
    sockopt::set_tcp_keepintvl(stream, KEEPALIVE_INTERVAL)?;
    sockopt::set_tcp_keepcnt(stream, KEEPALIVE_PROBES)?;
    Ok(())
}

/// Ends the connection when it is dropped, also when a forked child has inherited the socket.
pub(crate) struct Socket(TcpStream);

impl Drop for Socket {
    fn drop(&mut self) {
        let _ = shutdown(&self.0, Shutdown::Both);
    }
}

impl AsyncRead for Socket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(context, buffer)
    }
}

impl AsyncWrite for Socket {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(context)
    }

    fn is_write_vectored(&self) -> bool {
        self.0.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write_vectored(context, pieces)
    }
}
