//! Opening a stream to the socket of a local door.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use kushi_core::Error;
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};

use super::texts::cannot_connect;

/// A stream that does not block. With `patience` it waits for its turn while a busy server has not taken
/// the connections before; without, it is now or never.
pub(crate) fn open(path: &Path, patience: Option<Duration>) -> Result<UnixStream, Error> {
    connected(path, patience).map_err(|error| cannot_connect(path, &error))
}

fn connected(path: &Path, patience: Option<Duration>) -> io::Result<UnixStream> {
    let address = SocketAddrUnix::new(path)?;
    let flags = match patience {
        None => SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
        Some(_) => SocketFlags::CLOEXEC,
    };
    let socket: OwnedFd = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    // Zero would mean for ever.
    let patience = patience.map(|patience| patience.max(Duration::from_micros(1)));
    set_socket_timeout(&socket, Timeout::Send, patience)?;
    loop {
        match connect(&socket, &address) {
            Ok(()) => break,
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    let stream = UnixStream::from(socket);
    stream.set_nonblocking(true)?;
    Ok(stream)
}
