//! A socket that never blocks: it notes what it waits for, and somebody else waits.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::pin::Pin;
use std::process;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::task::{Context, Poll};

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendAncillaryBuffer, SendFlags, Shutdown, SocketAddrUnix, SocketFlags,
    SocketType, recv, send, sendmsg, shutdown, socket_with,
};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// What one turn may read, whatever a server sends: other connections wait for their turn.
const TURN_BYTES: usize = 1 << 20;
const READ_BYTES: usize = 128 << 10;

/// Opens a connection to the socket at `path`. `WouldBlock`: its queue is full.
pub fn connect(path: &Path) -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    rustix::net::connect(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(socket)
}

pub(super) struct Socket {
    /// Shared with whoever waits for it: its number must not get another meaning meanwhile.
    descriptor: Arc<OwnedFd>,
    seen: Arc<Seen>,
    /// The process that has opened it: a forked child has a copy.
    process: u32,
}

/// What is known of a socket, for whoever waits for it.
#[derive(Default)]
pub(super) struct Seen {
    /// Nothing was there, and more is wanted.
    awaits_bytes: AtomicBool,
    awaits_room: AtomicBool,
    /// All that had come was read.
    is_empty: AtomicBool,
    /// Nobody reads there what is written.
    is_cut: AtomicBool,
    left_in_turn: AtomicUsize,
    read: AtomicUsize,
    written: AtomicUsize,
}

impl Seen {
    pub(super) fn begin_turn(&self, look_again: bool) {
        self.left_in_turn.store(TURN_BYTES, Relaxed);
        // Whoever still wants something says so again.
        self.awaits_bytes.store(false, Relaxed);
        self.awaits_room.store(false, Relaxed);
        if look_again {
            self.is_empty.store(false, Relaxed);
        }
    }

    pub(super) fn awaits_bytes(&self) -> bool {
        self.awaits_bytes.load(Relaxed)
    }

    pub(super) fn awaits_room(&self) -> bool {
        self.awaits_room.load(Relaxed)
    }

    pub(super) fn begin_exchange(&self) {
        self.read.store(0, Relaxed);
        self.written.store(0, Relaxed);
    }

    /// Of this exchange.
    pub(super) fn has_read(&self) -> bool {
        self.read.load(Relaxed) > 0
    }

    pub(super) fn has_written(&self) -> bool {
        self.written.load(Relaxed) > 0
    }
}

impl Socket {
    pub(super) fn new(descriptor: Arc<OwnedFd>) -> (Self, Arc<Seen>) {
        let seen = Arc::new(Seen::default());
        (Self { descriptor, seen: seen.clone(), process: process::id() }, seen)
    }

    fn sent(&self, context: &Context<'_>, sent: rustix::io::Result<usize>) -> Poll<io::Result<usize>> {
        let seen = &*self.seen;
        seen.awaits_room.store(false, Relaxed);
        match sent {
            Ok(count) => {
                seen.written.fetch_add(count, Relaxed);
                Poll::Ready(Ok(count))
            }
            Err(Errno::AGAIN) => {
                seen.awaits_room.store(true, Relaxed);
                Poll::Pending
            }
            // The server may have answered before it closed: what it has said is read first.
            Err(Errno::PIPE | Errno::CONNRESET) => {
                seen.is_cut.store(true, Relaxed);
                seen.is_empty.store(false, Relaxed);
                context.waker().wake_by_ref();
                Poll::Pending
            }
            Err(error) => Poll::Ready(Err(error.into())),
        }
    }
}

impl Drop for Socket {
    /// The end reaches the server also when a child has inherited the socket.
    fn drop(&mut self) {
        if process::id() == self.process {
            let _ = shutdown(&*self.descriptor, Shutdown::Both);
        }
    }
}

impl AsyncRead for Socket {
    fn poll_read(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let seen = &*self.seen;
        let left = seen.left_in_turn.load(Relaxed);
        if left == 0 || seen.is_empty.load(Relaxed) {
            seen.awaits_bytes.store(true, Relaxed);
            return Poll::Pending;
        }
        let wanted = buffer.remaining().min(left).min(READ_BYTES);
        let received = recv(&*self.descriptor, buffer.initialize_unfilled_to(wanted), RecvFlags::DONTWAIT);
        seen.awaits_bytes.store(false, Relaxed);
        match received {
            Ok((count, _)) => {
                // A socket that had less has nothing more; the end is told by itself.
                seen.is_empty.store(0 < count && count < wanted, Relaxed);
                seen.left_in_turn.store(left - count, Relaxed);
                seen.read.fetch_add(count, Relaxed);
                buffer.advance(count);
                Poll::Ready(Ok(()))
            }
            Err(Errno::AGAIN) if seen.is_cut.load(Relaxed) => {
                Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()))
            }
            Err(Errno::AGAIN) => {
                seen.is_empty.store(true, Relaxed);
                seen.awaits_bytes.store(true, Relaxed);
                Poll::Pending
            }
            Err(error) => Poll::Ready(Err(error.into())),
        }
    }
}

impl AsyncWrite for Socket {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        self.sent(context, send(&*self.descriptor, bytes, flags))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        let _ = shutdown(&*self.descriptor, Shutdown::Write);
        Poll::Ready(Ok(()))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        let mut nothing_else = SendAncillaryBuffer::default();
        self.sent(context, sendmsg(&*self.descriptor, pieces, &mut nothing_else, flags))
    }
}
