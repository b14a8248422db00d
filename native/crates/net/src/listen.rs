//! Listening sockets: bound with clear errors, accepted on a thread of their own, handed out to all.

use std::io;
use std::net::{self, SocketAddr, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use kushi_core::{Complaints, Error, ErrorKind, os_text};
use rustix::fs::Mode;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, accept_with};
use socket2::SockRef;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::net::TcpSocket;

use crate::door::Door;
use crate::io::{INBOX_CAPACITY, IoThreads};

const BACKLOG: u32 = 4096;
/// Out of file descriptors, say: try again after this.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// The system says that there is room for more of an answer when half of this has left. Its own measure is
/// a third of what it holds, megabytes: of a client that reads slowly nothing would be heard for minutes.
const UNSENT_BYTES: u32 = 256 << 10;

pub enum Socket {
    Tcp(net::TcpStream),
    Unix(unix::net::UnixStream),
}

/// Who serves the connections of one listener, how many there are, and their bound.
pub struct Entrance {
    door: Arc<dyn Door>,
    most: usize,
    open: AtomicUsize,
}

/// A connection's place at its entrance.
pub struct Guest {
    entrance: Arc<Entrance>,
    /// There is no place for it: it hears that the door is full.
    pub over_limit: bool,
}

impl Entrance {
    pub fn new(door: Arc<dyn Door>, most: usize) -> Arc<Self> {
        Arc::new(Self { door, most, open: AtomicUsize::new(0) })
    }

    pub fn admit(self: &Arc<Self>) -> Guest {
        let before = self.open.fetch_add(1, Ordering::Relaxed);
        Guest { entrance: self.clone(), over_limit: before >= self.most }
    }
}

impl Guest {
    pub fn entrance(&self) -> &Arc<Entrance> {
        &self.entrance
    }

    /// Whether there is a place for it by now.
    pub fn has_room(&self) -> bool {
        self.entrance.open.load(Ordering::Relaxed) <= self.entrance.most
    }

    pub fn door(&self) -> &Arc<dyn Door> {
        &self.entrance.door
    }

    pub fn most(&self) -> usize {
        self.entrance.most
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        self.entrance.open.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Bound and listening, not yet tied to a runtime.
pub enum Listener {
    Tcp(net::TcpListener),
    Unix(unix::net::UnixListener),
}

impl Listener {
    pub fn tcp(address: &str, port: u16, reuse_port: bool) -> Result<(Self, u16), Error> {
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
    pub fn unix(path: &Path) -> Result<Self, Error> {
        Self::unix_with(path, |path| unix::net::UnixListener::bind(path))
    }

    /// The same with a file that only its owner may connect to.
    pub fn private_unix(path: &Path) -> Result<Self, Error> {
        Self::unix_with(path, bind_private)
    }

    fn socket(&self, accepted: OwnedFd) -> Socket {
        match self {
            Self::Tcp(_) => Socket::Tcp(accepted.into()),
            Self::Unix(_) => Socket::Unix(accepted.into()),
        }
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

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(listener) => listener.as_fd(),
            Self::Unix(listener) => listener.as_fd(),
        }
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
    // Connections have it from their listener.
    SockRef::from(&socket).set_tcp_notsent_lowat(UNSENT_BYTES)?;
    socket.bind(at)?;
    socket.listen(BACKLOG)?.into_std()
}

/// Until it is dropped. The listener stays open, and can be accepted from again.
pub async fn accept(listener: &Listener, entrance: &Arc<Entrance>, threads: &IoThreads) {
    let complaints = Complaints::default();
    let connections = loop {
        #[allow(
            deprecated,
            reason = "what takes its place is unsafe; this descriptor is open until it is dropped"
        )]
        match AsyncFd::with_interest(listener.as_fd(), Interest::READABLE) {
            Ok(connections) => break connections,
            Err(error) => pause(&error, threads, &complaints).await,
        }
    };
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    loop {
        match connections.async_io(Interest::READABLE, |socket| Ok(accept_with(socket, flags)?)).await {
            Ok(socket) => hand_in(listener.socket(socket), entrance, threads, &complaints),
            Err(error) => pause(&error, threads, &complaints).await,
        }
    }
}

fn hand_in(socket: Socket, entrance: &Arc<Entrance>, threads: &IoThreads, complaints: &Complaints) {
    let guest = entrance.admit();
    if guest.over_limit {
        let most = entrance.most;
        complaints.warn("full", || {
            format!(
                "{most} connections are open at a door (--http-max-connections): silent ones are closed for new \
                 ones, or those are refused"
            )
        });
        if !entrance.door.answers_when_full() {
            return;
        }
    }
    if !threads.hand_out(socket, guest) {
        complaints.warn("inbox", || {
            format!("closing new connections: {INBOX_CAPACITY} wait for an io thread already")
        });
    }
}

async fn pause(error: &io::Error, threads: &IoThreads, complaints: &Complaints) {
    if matches!(error.kind(), io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset) {
        return;
    }
    let no_descriptor = [Errno::MFILE, Errno::NFILE].map(|errno| Some(errno.raw_os_error()));
    let remedy = if no_descriptor.contains(&error.raw_os_error()) {
        threads.make_room();
        "; silent connections are closed for new ones (ulimit -n)"
    } else {
        ""
    };
    complaints.warn("accept", || format!("cannot accept a connection: {}{remedy}", os_text(error)));
    tokio::time::sleep(ACCEPT_PAUSE).await;
}
