//! No descriptor and no mapping is left behind. One test at a time: they count those of the process.

use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::BytesMut;
use kushi_shm::{PoolLimits, Slot, SlotPool, View, receive, send};
use rustix::cmsg_space;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};

static COUNTING: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    COUNTING.lock().unwrap_or_else(PoisonError::into_inner)
}

fn open_descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

fn mapped_slots() -> usize {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    maps.lines().filter(|line| line.contains("kushi-slot")).count()
}

fn send_several(socket: &UnixStream, descriptors: &[BorrowedFd<'_>]) {
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(8))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    assert!(control.push(SendAncillaryMessage::ScmRights(descriptors)));
    sendmsg(socket, &[IoSlice::new(b"x")], &mut control, SendFlags::NOSIGNAL).unwrap();
}

#[test]
fn several_descriptors_at_once_are_an_error_and_none_leaks() {
    let _alone = alone();
    let (one, other) = UnixStream::pair().unwrap();
    let (reader, _writer) = io::pipe().unwrap();
    let before = open_descriptors();
    for count in [2, 3, 8] {
        send_several(&one, &vec![reader.as_fd(); count]);
        let error = receive(&other, &mut BytesMut::with_capacity(64)).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{count}");
    }
    assert_eq!(open_descriptors(), before);
}

#[test]
fn descriptors_on_their_way_go_with_the_socket() {
    let _alone = alone();
    let before = open_descriptors();
    {
        let (one, other) = UnixStream::pair().unwrap();
        let (reader, _writer) = io::pipe().unwrap();
        send(&one, &[IoSlice::new(b"x")], Some(reader.as_fd())).unwrap();
        drop(receive(&other, &mut BytesMut::with_capacity(64)).unwrap());
        send(&one, &[IoSlice::new(b"x")], Some(reader.as_fd())).unwrap();
    }
    assert_eq!(open_descriptors(), before);
}

#[test]
fn a_view_takes_its_descriptor_with_it_whether_it_can_be_mapped_or_not() {
    let _alone = alone();
    let slot = Slot::new(4096).unwrap();
    let before = (open_descriptors(), mapped_slots());
    let copy = || slot.fd().try_clone_to_owned().unwrap();
    assert!(View::map(copy(), 1).is_err());
    let (pipe, writer) = io::pipe().unwrap();
    assert!(View::map_read_only(OwnedFd::from(pipe), 4096).is_err());
    drop(writer);
    let view = View::map(copy(), slot.len() as u64).unwrap();
    let range = view.range(1, 2).unwrap();
    assert_eq!((open_descriptors(), mapped_slots()), (before.0, before.1 + 1));
    drop(view);
    assert_eq!(mapped_slots(), before.1 + 1, "a range keeps the mapping");
    drop(range);
    assert_eq!(mapped_slots(), before.1);
}

#[test]
fn a_pool_leaves_nothing() {
    let _alone = alone();
    let before = (open_descriptors(), mapped_slots());
    let pool = SlotPool::new(PoolLimits { kept_bytes: 1 << 20, kept_slots: 4 });
    let lent: Vec<_> = (0..16).map(|_| pool.take(1 << 17).unwrap()).collect();
    let view = lent[3].bytes(0..10).unwrap();
    drop(lent);
    assert_eq!(open_descriptors(), before.0 + 4 + 1, "four are kept, and one that is looked at");
    drop((pool, view));
    assert_eq!((open_descriptors(), mapped_slots()), before);
}
