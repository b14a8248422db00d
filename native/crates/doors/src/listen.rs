//! Listening sockets: bound with clear errors, accepted on one thread, handed out to all.

use std::io;
use std::net::{self, SocketAddr, ToSocketAddrs};
use std::os::unix;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use kushi_core::{Error, ErrorKind, os_text};
use rustix::fs::Mode;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use socket2::SockRef;
use tokio::net::{TcpListener, TcpSocket, UnixListener};

use crate::complaints::Complaints;
use crate::io::{INBOX_CAPACITY, IoThreads, Purpose};

const BACKLOG: u32 = 4096;
/// Out of file descriptors, say: try again after this.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// The system says that there is room for more of an answer when half of this has left. Its own measure is
/// a third of what it holds, megabytes: of a client that reads slowly nothing would be heard for minutes.
const UNSENT_BYTES: u32 = 256 << 10;

pub(crate) enum Socket {
    Tcp(net::TcpStream),
    Unix(unix::net::UnixStream),
}

/// The connections of one listener, and their bound.
pub(crate) struct Door {
    pub purpose: Purpose,
    most: usize,
    open: AtomicUsize,
}

/// A connection's place at its door.
pub(crate) struct Guest {
    door: Arc<Door>,
    /// One too many: it hears that the door is full.
    pub surplus: bool,
}

impl Door {
    pub(crate) fn new(purpose: Purpose, most: usize) -> Arc<Self> {
        Arc::new(Self { purpose, most, open: AtomicUsize::new(0) })
    }

    fn admit(self: &Arc<Self>) -> Guest {
        let before = self.open.fetch_add(1, Ordering::Relaxed);
        Guest { door: self.clone(), surplus: before >= self.most }
    }
}

impl Guest {
    pub(crate) fn door(&self) -> &Arc<Door> {
        &self.door
    }

    pub(crate) fn purpose(&self) -> Purpose {
        self.door.purpose
    }

    pub(crate) fn most(&self) -> usize {
        self.door.most
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        self.door.open.fetch_sub(1, Ordering::Relaxed);
    }
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
    // Connections have it from their listener.
    SockRef::from(&socket).set_tcp_notsent_lowat(UNSENT_BYTES)?;
    socket.bind(at)?;
    socket.listen(BACKLOG)?.into_std()
}

pub(crate) async fn accept(listener: Listener, door: Arc<Door>, threads: Arc<IoThreads>) {
    let result = match listener {
        Listener::Tcp(listener) => accept_tcp(listener, &door, &threads).await,
        Listener::Unix(listener) => accept_unix(listener, &door, &threads).await,
    };
    if let Err(error) = result {
        log::error!("a listener failed: {error}");
    }
}

async fn accept_tcp(listener: net::TcpListener, door: &Arc<Door>, threads: &IoThreads) -> io::Result<()> {
    let listener = TcpListener::from_std(listener)?;
    let mut complaints = Complaints::default();
    loop {
        match listener.accept().await.and_then(|(stream, _)| stream.into_std()) {
            Ok(stream) => hand_in(Socket::Tcp(stream), door, threads, &mut complaints),
            Err(error) => pause(&error, threads, &mut complaints).await,
        }
    }
}

async fn accept_unix(
    listener: unix::net::UnixListener,
    door: &Arc<Door>,
    threads: &IoThreads,
) -> io::Result<()> {
    let listener = UnixListener::from_std(listener)?;
    let mut complaints = Complaints::default();
    loop {
        match listener.accept().await.and_then(|(stream, _)| stream.into_std()) {
            Ok(stream) => hand_in(Socket::Unix(stream), door, threads, &mut complaints),
            Err(error) => pause(&error, threads, &mut complaints).await,
        }
    }
}

fn hand_in(socket: Socket, door: &Arc<Door>, threads: &IoThreads, complaints: &mut Complaints) {
    let guest = door.admit();
    if guest.surplus {
        let most = door.most;
        complaints.say(|| {
            format!(
                "{most} connections are open at a door (--http-max-connections): silent ones are closed for new \
                 ones, or those are refused"
            )
        });
        if door.purpose == Purpose::Local {
            return;
        }
    }
    if !threads.hand_out(socket, guest) {
        complaints.say(|| format!("closing new connections: {INBOX_CAPACITY} wait for an io thread already"));
    }
}

async fn pause(error: &io::Error, threads: &IoThreads, complaints: &mut Complaints) {
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
    complaints.say(|| format!("cannot accept a connection: {}{remedy}", os_text(error)));
    tokio::time::sleep(ACCEPT_PAUSE).await;
}
