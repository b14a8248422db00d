//! Bytes over a Unix stream, with at most one file descriptor beside them, and who is at the other end.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use bytes::BytesMut;
use rustix::cmsg_space;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};

/// What one call of [`receive`] brought.
#[derive(Debug)]
pub struct Received {
    /// 0: the other side has closed.
    pub bytes: usize,
    /// It belongs to these bytes or to those behind them.
    pub descriptor: Option<OwnedFd>,
}

/// The process at the other end of a Unix socket, as it was when it connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// 0: it cannot be seen from here, being in another container say.
    pub process: i32,
    pub user: u32,
}

pub fn peer(socket: impl AsFd) -> io::Result<Peer> {
    let mut credentials = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut length = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: the descriptor is open, and the kernel writes at most `length` bytes of plain numbers.
    let result = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut credentials).cast(),
            &raw mut length,
        )
    };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(Peer { process: credentials.pid, user: credentials.uid })
}

/// Sends as much as the socket takes and answers how much that was; when it is anything, the descriptor
/// has left with its first byte. Blocks if the socket does.
pub fn send(
    socket: impl AsFd,
    pieces: &[IoSlice<'_>],
    descriptor: Option<BorrowedFd<'_>>,
) -> io::Result<usize> {
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(1))];
    let descriptors = descriptor.as_slice();
    loop {
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !descriptors.is_empty() {
            control.push(SendAncillaryMessage::ScmRights(descriptors));
        }
        match sendmsg(&socket, pieces, &mut control, SendFlags::NOSIGNAL) {
            Err(rustix::io::Errno::INTR) => {}
            sent => return Ok(sent?),
        }
    }
}

/// Appends what has come to `into`, as much as it has room for. Descriptors that come are closed on
/// exec. More than one at once is an error of the kind `InvalidData`, and all of them are closed;
/// so is one that the kernel could not hand over. Blocks if the socket does.
pub fn receive(socket: impl AsFd, into: &mut BytesMut) -> io::Result<Received> {
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let room = into.spare_capacity_mut();
    // SAFETY: the slice is only handed to the kernel, which writes to it and never reads.
    let room = unsafe { std::slice::from_raw_parts_mut(room.as_mut_ptr().cast::<u8>(), room.len()) };
    let mut pieces = [IoSliceMut::new(room)];
    let message = loop {
        match recvmsg(&socket, &mut pieces, &mut control, RecvFlags::CMSG_CLOEXEC) {
            Err(rustix::io::Errno::INTR) => {}
            received => break received?,
        }
    };
    let bytes = message.bytes;
    // SAFETY: the kernel has written so many bytes behind the old end.
    unsafe { into.set_len(into.len() + bytes) };
    let mut descriptor = None;
    let mut excess = message.flags.contains(ReturnFlags::CTRUNC);
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(descriptors) = message {
            for received in descriptors {
                excess |= descriptor.replace(received).is_some();
            }
        }
    }
    if excess {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "expected at most one file descriptor at a time and room for it",
        ));
    }
    Ok(Received { bytes, descriptor })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn a_descriptor_arrives_with_its_bytes_and_is_closed_on_exec() {
        let (one, other) = UnixStream::pair().unwrap();
        let (reader, writer) = io::pipe().unwrap();
        assert_eq!(send(&one, &[IoSlice::new(b"ab"), IoSlice::new(b"c")], Some(reader.as_fd())).unwrap(), 3);
        drop(reader);
        let mut into = BytesMut::with_capacity(64);
        let Received { bytes, descriptor } = receive(&other, &mut into).unwrap();
        assert_eq!((bytes, &into[..]), (3, &b"abc"[..]));
        let descriptor = descriptor.unwrap();
        assert!(rustix::io::fcntl_getfd(&descriptor).unwrap().contains(rustix::io::FdFlags::CLOEXEC));
        io::Write::write_all(&mut &writer, b"!").unwrap();
        let mut through = [0];
        rustix::io::read(&descriptor, &mut through).unwrap();
        assert_eq!(&through, b"!");
    }

    #[test]
    fn a_read_ends_behind_a_descriptor_so_that_two_never_come_at_once() {
        let (one, other) = UnixStream::pair().unwrap();
        let (reader, _writer) = io::pipe().unwrap();
        for _ in 0..2 {
            send(&one, &[IoSlice::new(b"frame")], Some(reader.as_fd())).unwrap();
        }
        let mut into = BytesMut::with_capacity(64);
        for _ in 0..2 {
            assert!(receive(&other, &mut into).unwrap().descriptor.is_some());
        }
        assert_eq!(&into[..], b"frameframe");
    }

    #[test]
    fn a_closed_other_side_is_no_signal() {
        let (one, other) = UnixStream::pair().unwrap();
        drop(other);
        let error = send(&one, &[IoSlice::new(b"x")], None).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
        assert_eq!(receive(&one, &mut BytesMut::with_capacity(1)).unwrap().bytes, 0);
    }

    #[test]
    fn the_other_side_is_known() {
        let (one, _other) = UnixStream::pair().unwrap();
        let here = Peer {
            process: std::process::id().cast_signed(),
            user: std::fs::metadata("/proc/self").unwrap().uid(),
        };
        assert_eq!(peer(&one).unwrap(), here);
    }
}
