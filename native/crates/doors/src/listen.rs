//! Listening sockets: bound with clear errors, accepted on one thread, handed out to all.

use std::io;
use std::net::{self, SocketAddr, ToSocketAddrs};
use std::os::unix;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use kushi_core::{Error, ErrorKind, os_text};
use rustix::fs::Mode;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use tokio::net::{TcpListener, TcpSocket, UnixListener};

use crate::io::{IoThreads, Purpose};

const BACKLOG: u32 = 4096;
/// Out of file descriptors, say: try again after this.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

pub(crate) enum Socket {
    Tcp(net::TcpStream),
    Unix(unix::net::UnixStream),
}

/// Bound and listening, not yet tied to a runtime.
pub(crate) enum Listener {
    Tcp(net::TcpListener),
    Unix(unix::net::UnixListener),
}

impl Listener {
    pub(crate) fn tcp(address: &str, port: u16, reuse_port: bool) -> Result<(Self, u16), Error> {
        let fault = |error: io::Error| {
            let text = if error.kind() == io::ErrorKind::AddrInUse {
                format!(
                    "Socket '{address}:{port}' already in use: choose another port, or stop what listens there"
                )
            } else {
                format!("cannot listen on {address}:{port}: {}", os_text(&error))
            };
            Error::new(ErrorKind::ConfigInvalid, text)
        };
        let at = (address, port).to_socket_addrs().map_err(fault)?.next();
        let at = at.ok_or_else(|| fault(io::ErrorKind::AddrNotAvailable.into()))?;
        bind(at, reuse_port)
            .and_then(|listener| Ok((listener.local_addr()?.port(), listener)))
            .map(|(port, listener)| (Self::Tcp(listener), port))
            .map_err(fault)
    }

    /// A socket file that nobody listens on any more is replaced; any other file is left alone.
    pub(crate) fn unix(path: &Path) -> Result<Self, Error> {
        Self::unix_with(path, |path| unix::net::UnixListener::bind(path))
    }

    /// The same with a file that only its owner may connect to.
    pub(crate) fn private_unix(path: &Path) -> Result<Self, Error> {
        Self::unix_with(path, bind_private)
    }

    fn unix_with(
        path: &Path,
        bind: impl FnOnce(&Path) -> io::Result<unix::net::UnixListener>,
    ) -> Result<Self, Error> {
        let fault = |error: io::Error| {
            let text = format!("cannot listen on the socket {}: {}", path.display(), os_text(&error));
            Error::new(ErrorKind::ConfigInvalid, text)
        };
        // A connection to a file that is no socket is refused in the same way.
        let is_socket = path.metadata().is_ok_and(|found| found.file_type().is_socket());
        if is_socket
            && let Err(error) = unix::net::UnixStream::connect(path)
            && error.kind() == io::ErrorKind::ConnectionRefused
        {
            std::fs::remove_file(path).map_err(fault)?;
        }
        let listener = bind(path).map_err(fault)?;
        listener.set_nonblocking(true).map_err(fault)?;
        Ok(Self::Unix(listener))
    }
}

/// The kernel gives the file the mode of the socket, so that there is no moment at which others could
/// connect.
fn bind_private(path: &Path) -> io::Result<unix::net::UnixListener> {
    let mode = Mode::RUSR | Mode::WUSR;
    let socket =
        rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    rustix::fs::fchmod(&socket, mode)?;
    rustix::net::bind(&socket, &SocketAddrUnix::new(path)?)?;
    // For a kernel that does not; nobody can connect before the socket listens.
    rustix::fs::chmod(path, mode)?;
    rustix::net::listen(&socket, BACKLOG as i32)?;
    Ok(socket.into())
}

fn bind(at: SocketAddr, reuse_port: bool) -> io::Result<net::TcpListener> {
    // tokio's socket has the options that the standard library lacks; it needs a runtime to listen.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    let _entered = runtime.enter();
    let socket = if at.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    socket.set_reuseaddr(true)?;
    if reuse_port {
        socket.set_reuseport(true)?;
    }
    socket.bind(at)?;
    socket.listen(BACKLOG)?.into_std()
}

pub(crate) async fn accept(listener: Listener, purpose: Purpose, threads: Arc<IoThreads>) {
    let result = match listener {
        Listener::Tcp(listener) => accept_tcp(listener, purpose, &threads).await,
        Listener::Unix(listener) => accept_unix(listener, purpose, &threads).await,
    };
    if let Err(error) = result {
        log::error!("a listener failed: {error}");
    }
}

async fn accept_tcp(listener: net::TcpListener, purpose: Purpose, threads: &IoThreads) -> io::Result<()> {
    let listener = TcpListener::from_std(listener)?;
    loop {
        match listener.accept().await.and_then(|(stream, _)| stream.into_std()) {
            Ok(stream) => threads.hand_out(Socket::Tcp(stream), purpose),
            Err(error) => pause(&error).await,
        }
    }
}

async fn accept_unix(
    listener: unix::net::UnixListener,
    purpose: Purpose,
    threads: &IoThreads,
) -> io::Result<()> {
    let listener = UnixListener::from_std(listener)?;
    loop {
        match listener.accept().await.and_then(|(stream, _)| stream.into_std()) {
            Ok(stream) => threads.hand_out(Socket::Unix(stream), purpose),
            Err(error) => pause(&error).await,
        }
    }
}

async fn pause(error: &io::Error) {
    if !matches!(error.kind(), io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset) {
        log::warn!("cannot accept a connection: {error}");
        tokio::time::sleep(ACCEPT_PAUSE).await;
    }
}
