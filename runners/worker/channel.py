"""
Frames to and from the server, on one socket, and the memory that both share.

A frame is a head of fixed length and a payload. A short payload follows the head; a long one lies in a slot, which is
memory of the process that sent it and is announced with its descriptor. Whoever reads a slot says when nobody needs it
any more. The layout is that of `native/crates/engine-worker/src/frame.rs`.

Code of the model may run in the midst of all this, as a destructor or as the handler of a signal, and raise or send in
its turn. What it sends then leaves behind the frame that is sent just now; where it may have cut a frame, the channel
is closed.
"""

from __future__ import annotations

import array
import errno
import fcntl
import mmap
import os
import socket
import struct
import sys
import threading
import weakref
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from typing import Callable, NoReturn

__all__ = ["INLINE_BYTES", "Channel", "Closed", "Frame"]

# kind, count, id, slot, length
_HEAD = struct.Struct("<IIQQQ")
_HEAD_BYTES = _HEAD.size
# no bytes that are sent, so that one sees whether some have come
_NOTHING = os.urandom(_HEAD_BYTES)
_DESCRIPTOR_BYTES = socket.CMSG_SPACE(4)
_READ_BYTES = 256 << 10
# longer payloads lie in slots
INLINE_BYTES = 32 << 10

# frames that both sides send, about slots
ADD_SLOT = 1
DROP_SLOT = 2
RELEASE_SLOT = 3

_SMALLEST_SLOT = 64 << 10
_KEPT_SLOTS = 8
_KEPT_BYTES = 256 << 20
# each is an open file; the server refuses 1,024 of them, and gives small ones back early (`CROWD` in incoming.rs)
_MOST_IN_USE = 256
# the server has an open file for each of its slots, too: from so many on that the model keeps, what comes is copied, so
# that its slot goes back at once; longer payloads are not
_CROWD = 128
_MOST_COPIED = 8 << 20
# so many go back by themselves, where nothing is sent with which they would
_MANY_RELEASED = 32

_GONE = frozenset({errno.EPIPE, errno.ECONNRESET, errno.EBADF, errno.ENOTCONN, errno.ENOTSOCK})

_F_ADD_SEALS = 1033
_SEALS = 0x0001 | 0x0002 | 0x0004  # sealing, shrinking, growing


class Closed(Exception):
    """The server has gone"""

    def __str__(self) -> str:
        return "the server has gone, or this is a process that the model has forked"


class Frame(NamedTuple):
    """What came: the payload can be written to, and lives as long as anything that points into it"""

    kind: int
    value: int
    id: int
    payload: Any


class _Block(np.ndarray[Any, Any]):
    """The bytes of one frame in a slot of the server's; a class of its own, so that views of it keep it alive"""


class _Slot:
    """Memory of this process that the server can read"""

    def __init__(self, number: int, length: int) -> None:
        self.number = number
        self.length = length
        self.descriptor = os.memfd_create("kushi-worker", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            os.ftruncate(self.descriptor, length)
            fcntl.fcntl(self.descriptor, _F_ADD_SEALS, _SEALS)
            self.memory = mmap.mmap(self.descriptor, length)
        except BaseException:
            os.close(self.descriptor)
            raise
        self.announced = False

    def is_announced(self) -> None:
        """The server has it; the memory has a descriptor of its own"""
        self.announced = True
        os.close(self.descriptor)

    def close(self) -> None:
        if not self.announced:
            os.close(self.descriptor)
        # goes with the last view of it
        del self.memory


class Channel:
    """The socket, read by one thread at a time and written to by any"""

    def __init__(self, descriptor: int) -> None:
        self._socket = socket.socket(fileno=descriptor)
        self._socket.set_inheritable(False)
        self._unread = bytearray()
        self._descriptors: list[int] = []
        self._room = bytearray(_READ_BYTES)
        self._rooms = [self._room]
        self._theirs: dict[int, mmap.mmap] = {}
        # waits until something that comes has made it so: for a slot, where too many are in use
        self.until: Callable[[Callable[[], bool]], None] | None = None
        # what was raised while nothing was read yet
        self._passing: BaseException | None = None
        self._sending = threading.RLock()
        self._later: deque[tuple[int, list[Any], int, int]] = deque()
        # slots that came back meanwhile
        self._returned: deque[int] = deque()
        # slots of the server's that something here points into, and those that nobody here needs any more
        self._kept: set[int] = set()
        self._released: list[int] = []
        self._own: dict[int, _Slot] = {}
        self._free: list[_Slot] = []
        self._next_slot = 1

    def close(self) -> None:
        """Whoever waits for it hears that it has gone"""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def read(self) -> Frame | None:
        """
        Waits for the next frame that is not about slots, or until there is a free slot again where there was none: then
        it answers with nothing. Raises Closed, or what the handler of a signal raises
        """
        try:
            while True:
                # others may have taken the last one meanwhile
                had_room = self._has_room()
                frame = self._next() if self._unread else None
                if frame is None and not had_room and self._has_room():
                    return None
                if frame is None:
                    frame = self._receive()
                if frame is not None:
                    return frame
        except Closed:
            raise
        except BaseException as error:
            if error is self._passing:
                self._passing = None
                raise
            self._broken("what the server has sent cannot be read", error)

    def send(self, kind: int, payload: list[Any], *, count: int = 0, id: int = 0) -> None:  # noqa: A002
        """
        Sends a frame whose payload are these buffers, one behind the other; raises Closed. Where it raises anything
        else, nothing of it was sent
        """
        if self.is_sending():
            self._later.append((kind, payload, count, id))
            return
        length = sum(map(len, payload))
        until = self.until
        if length > INLINE_BYTES and until and not self._has_room():
            until(self._has_room)
        try:
            with self._sending:
                self._send(kind, payload, length, count, id)
        finally:
            self._catch_up()

    def leave(self) -> None:
        """Of a process that was forked: the server talks with its parent alone, and from now on it is closed here"""
        self._socket.close()
        # some other thread of the parent may have held it
        self._sending = threading.RLock()
        self._later.clear()
        self._returned.clear()

    def is_sending(self) -> bool:
        """Whether this very thread does, so that this is code which runs in the midst of it"""
        is_owned: bool = self._sending._is_owned()  # type: ignore[attr-defined]  # noqa: SLF001 - as Condition asks it
        return is_owned

    def _has_room(self) -> bool:
        return len(self._own) - len(self._free) < _MOST_IN_USE

    def _catch_up(self) -> None:
        """With what had to wait for another frame; its senders have been told that it has left"""
        while self._later or self._returned:
            with self._sending:
                try:
                    while self._returned:
                        self._keep(self._returned.popleft())
                    if self._later:
                        kind, payload, count, number = self._later.popleft()
                        self._send(kind, payload, sum(map(len, payload)), count, number)
                except Closed:
                    raise
                except BaseException as error:  # noqa: BLE001 - of whoever sent it, who is not here
                    self._broken("what was to be sent to the server cannot be", error)

    def _send(self, kind: int, payload: list[Any], length: int, count: int, number: int) -> None:
        if length <= INLINE_BYTES:
            self._write(b"".join([self._releases(), _HEAD.pack(kind, count, number, 0, length), *payload]))
            return
        slot = self._take(length)
        try:
            offset = 0
            for piece in payload:
                slot.memory[offset : offset + len(piece)] = piece
                offset += len(piece)
            if not slot.announced:
                self._announce(slot)
            head = self._releases() + _HEAD.pack(kind, count, number, slot.number, length)
        except BaseException:
            self._free.append(slot)
            raise
        self._write(head)

    def _next(self) -> Frame | None:
        unread = self._unread
        while len(unread) >= _HEAD_BYTES:
            kind, count, number, slot, length = _HEAD.unpack_from(unread)
            end = _HEAD_BYTES if slot else _HEAD_BYTES + length
            if len(unread) < end:
                return None
            payload: Any = unread[_HEAD_BYTES:end]
            del unread[:end]
            if kind == ADD_SLOT:
                self._theirs[slot] = _mapped(self._descriptors.pop(0), number)
            elif kind == DROP_SLOT:
                self._theirs.pop(slot, None)
            elif kind == RELEASE_SLOT:
                self._give_back(slot)
            else:
                frame = Frame(kind, count, number, self._block(slot, length) if slot else payload)
                if len(self._released) >= _MANY_RELEASED and not self.is_sending():
                    with self._sending:
                        self._write(self._releases())
                return frame
        return None

    def _receive(self) -> Frame | None:
        """Takes what the socket has; answers with the frame, where that is just one"""
        self._room[:_HEAD_BYTES] = _NOTHING
        try:
            length, ancillary, flags, _ = self._socket.recvmsg_into(self._rooms, _DESCRIPTOR_BYTES)
        except BaseException as error:
            if isinstance(error, OSError) and error.errno is not None:
                raise Closed from error
            # a handler may also raise when something has come already
            if self._room[:_HEAD_BYTES] == _NOTHING:
                self._passing = error
            raise
        if length == 0:
            raise Closed
        if ancillary or flags:
            self._take_descriptors(ancillary, flags)
        elif not self._unread and length >= _HEAD_BYTES:
            kind, count, number, slot, behind = _HEAD.unpack_from(self._room)
            if kind > RELEASE_SLOT and slot == 0 and length == _HEAD_BYTES + behind:
                return Frame(kind, count, number, self._room[_HEAD_BYTES:length])
        self._unread += memoryview(self._room)[:length]
        return None

    def _take_descriptors(self, ancillary: list[Any], flags: int) -> None:
        for level, kind, data in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                self._descriptors.extend(array.array("i", data[: len(data) - len(data) % 4]))
        if flags & socket.MSG_CTRUNC:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    def _block(self, slot: int, length: int) -> Any:
        # of the mapping itself: of two arrays in a row, NumPy's views refer to the inner one alone
        block = _Block(length, np.uint8, self._theirs[slot])
        if len(self._kept) >= _CROWD and length <= _MOST_COPIED:
            copy = block.copy()
            self._released.append(slot)
            return copy
        self._kept.add(slot)
        # this channel does not live as long as what the model keeps
        weakref.finalize(block, _no_longer_kept, self._kept, self._released, slot).atexit = False
        return block

    def _releases(self) -> bytes:
        released = self._released
        heads = b""
        while released:
            heads += _HEAD.pack(RELEASE_SLOT, 0, 0, released.pop(), 0)
        return heads

    def _take(self, length: int) -> _Slot:
        """The smallest free slot that is large enough, and not far too large; otherwise a new one"""
        fitting = [slot for slot in self._free if length <= slot.length <= 2 * length + _SMALLEST_SLOT]
        if fitting:
            slot = min(fitting, key=lambda slot: slot.length)
            self._free.remove(slot)
            return slot
        length = max(_SMALLEST_SLOT, length + length // 8)
        slot = _Slot(self._next_slot, -(-length // mmap.PAGESIZE) * mmap.PAGESIZE)
        self._next_slot += 1
        self._own[slot.number] = slot
        return slot

    def _give_back(self, number: int) -> None:
        # the handler of a signal may wait in the midst of a frame
        self._returned.append(number)
        if not self.is_sending():
            self._catch_up()

    def _keep(self, number: int) -> None:
        slot = self._own.get(number)
        if slot is not None:
            self._free.append(slot)
            while len(self._free) > _KEPT_SLOTS or sum(slot.length for slot in self._free) > _KEPT_BYTES:
                dropped = self._free.pop(0)
                del self._own[dropped.number]
                if dropped.announced:
                    self._write(_HEAD.pack(DROP_SLOT, 0, 0, dropped.number, 0))
                dropped.close()

    def _announce(self, slot: _Slot) -> None:
        head = _HEAD.pack(ADD_SLOT, 0, slot.length, slot.number, 0)
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [slot.descriptor]))]
        try:
            sent = self._socket.sendmsg([head], rights)
            if sent < len(head):
                self._socket.sendall(head[sent:])
            slot.is_announced()
        except BaseException as error:  # noqa: BLE001 - as below
            self._failed(error)

    def _write(self, data: bytes) -> None:
        try:
            self._socket.sendall(data)
        except BaseException as error:  # noqa: BLE001 - the handler of a signal raises what it likes
            self._failed(error)

    def _failed(self, error: BaseException) -> NoReturn:
        if isinstance(error, OSError) and error.errno in _GONE:
            raise Closed from error
        self._broken("what was sent to the server may have been cut", error)

    def _broken(self, what: str, error: BaseException) -> NoReturn:
        with suppress(Exception):
            sys.stderr.write(f"{what}, so that this process ends: {type(error).__name__}: {error}\n")
        self.close()
        raise Closed from error


def _no_longer_kept(kept: set[int], released: list[int], slot: int) -> None:
    kept.discard(slot)
    released.append(slot)


def _mapped(descriptor: int, length: int) -> mmap.mmap:
    try:
        return mmap.mmap(descriptor, length)
    finally:
        os.close(descriptor)
