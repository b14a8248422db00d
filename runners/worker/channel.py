"""
Frames to and from the server, on one socket, and the memory that both share.

A frame is a head of fixed length and a payload. A short payload follows the head; a long one lies in a slot, which is
memory of the process that sent it and is announced with its descriptor. Whoever reads a slot says when nobody needs it
any more. The layout is that of `native/crates/engine-worker/src/frame.rs`.
"""

from __future__ import annotations

import array
import fcntl
import mmap
import os
import socket
import struct
import threading
import weakref
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np

__all__ = ["INLINE_BYTES", "Channel", "Closed", "Frame"]

# kind, count, id, slot, length
_HEAD = struct.Struct("<IIQQQ")
_HEAD_BYTES = _HEAD.size
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

_F_ADD_SEALS = 1033
_SEALS = 0x0001 | 0x0002 | 0x0004  # sealing, shrinking, growing


class Closed(Exception):
    """The server has gone"""


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
        os.ftruncate(self.descriptor, length)
        fcntl.fcntl(self.descriptor, _F_ADD_SEALS, _SEALS)
        self.memory = mmap.mmap(self.descriptor, length)
        self.announced = False

    def close(self) -> None:
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
        self._sending = threading.Lock()
        # slots of the server's that nobody here needs any more
        self._released: list[int] = []
        self._own: dict[int, _Slot] = {}
        self._free: list[_Slot] = []
        self._next_slot = 1

    def close(self) -> None:
        """Whoever waits for it hears that it has gone"""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def read(self) -> Frame:
        """Waits for the next frame that is not about slots; raises Closed"""
        while True:
            frame = self._next() if self._unread else None
            if frame is None:
                frame = self._receive()
            if frame is not None:
                return frame

    def send(self, kind: int, payload: list[Any], *, count: int = 0, id: int = 0) -> None:  # noqa: A002
        """Sends a frame whose payload are these buffers, one behind the other; raises Closed"""
        length = sum(map(len, payload))
        with self._sending:
            if length <= INLINE_BYTES:
                payload.insert(0, _HEAD.pack(kind, count, id, 0, length))
                if self._released:
                    payload.insert(0, self._releases())
                self._write(payload)
                return
            slot = self._take(length)
            offset = 0
            for piece in payload:
                slot.memory[offset : offset + len(piece)] = piece
                offset += len(piece)
            if not slot.announced:
                slot.announced = True
                head = _HEAD.pack(ADD_SLOT, 0, slot.length, slot.number, 0)
                rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [slot.descriptor]))]
                sent = self._sendmsg([head], rights)
                self._write([head[sent:]])
            self._write([self._releases(), _HEAD.pack(kind, count, id, slot.number, length)])

    def leave(self) -> None:
        """Of a process that was forked: the server talks with its parent alone, and from now on it is closed here"""
        self._socket.close()
        # some other thread of the parent may have held it
        self._sending = threading.Lock()

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
                return Frame(kind, count, number, self._block(slot, length) if slot else payload)
        return None

    def _receive(self) -> Frame | None:
        """Takes what the socket has; answers with the frame, where that is just one"""
        try:
            length, ancillary, _, _ = self._socket.recvmsg_into(self._rooms, _DESCRIPTOR_BYTES)
        except OSError as error:
            raise Closed from error
        if length == 0:
            raise Closed
        if ancillary:
            for level, kind, data in ancillary:
                if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                    self._descriptors.extend(array.array("i", data[: len(data) - len(data) % 4]))
        elif not self._unread and length >= _HEAD_BYTES:
            kind, count, number, slot, behind = _HEAD.unpack_from(self._room)
            if kind > RELEASE_SLOT and slot == 0 and length == _HEAD_BYTES + behind:
                return Frame(kind, count, number, self._room[_HEAD_BYTES:length])
        self._unread += memoryview(self._room)[:length]
        return None

    def _block(self, slot: int, length: int) -> Any:
        # of the mapping itself: of two arrays in a row, NumPy's views refer to the inner one alone
        block = _Block(length, np.uint8, self._theirs[slot])
        weakref.finalize(block, self._released.append, slot).atexit = False
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
        with self._sending:
            slot = self._own.get(number)
            if slot is None:
                return
            self._free.append(slot)
            while len(self._free) > _KEPT_SLOTS or sum(slot.length for slot in self._free) > _KEPT_BYTES:
                dropped = self._free.pop(0)
                del self._own[dropped.number]
                self._write([_HEAD.pack(DROP_SLOT, 0, 0, dropped.number, 0)])
                dropped.close()

    def _write(self, pieces: list[Any]) -> None:
        data = b"".join(pieces)
        try:
            self._socket.sendall(data)
        except OSError as error:
            raise Closed from error

    def _sendmsg(self, pieces: list[bytes], ancillary: list[Any]) -> int:
        try:
            return self._socket.sendmsg(pieces, ancillary)
        except OSError as error:
            raise Closed from error


def _mapped(descriptor: int, length: int) -> mmap.mmap:
    try:
        return mmap.mmap(descriptor, length)
    finally:
        os.close(descriptor)
