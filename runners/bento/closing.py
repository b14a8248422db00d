"""
The end of a listener without a reset. BentoML's supervisor holds the sockets until its workers have ended, and as long
as it does, the system completes the connections of new clients: one that no worker accepts any more would be reset.

So before the workers are told to end, a filter on each TCP socket drops the first packet (SYN) of every new client. The
client's system sends it again a second later. The workers accept those who had connected before. When nobody waits to
be accepted any more, the socket closes, and the packets that come again are answered with a refusal.
"""

from __future__ import annotations

import contextlib
import ctypes
import logging
import socket
import struct
from typing import TYPE_CHECKING, Final

from .internals.supervisor import stop_within

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from .internals.supervisor import Later

__all__ = ["close_without_reset", "drop_new_clients", "waiting_clients"]

_LOG = logging.getLogger(__name__)
# How long the workers have to accept those who have connected, and how often it is looked whether they have
_FIRST_LOOK_SECONDS: Final = 1.0
_LOOK_SECONDS: Final = 0.1

_SO_ATTACH_FILTER: Final = 26
_SO_DETACH_FILTER: Final = 27
_FLAGS_OFFSET: Final = 13
_SYN, _ACK = 0x02, 0x10
# operation, steps to jump over if the test is true, and if it is false, operand: see linux/bpf_common.h
_PROGRAM: Final = (
    (0x30, 0, 0, _FLAGS_OFFSET),  # load the byte of the flags
    (0x54, 0, 0, _SYN | _ACK),  # keep these
    (0x15, 0, 1, _SYN),  # the first packet of a client?
    (0x06, 0, 0, 0),  # it is dropped
    (0x06, 0, 0, 0xFFFFFFFF),  # any other is not
)
# tcpi_unacked of struct tcp_info: for a listener, how many wait to be accepted
_UNACKED: Final = slice(24, 28)


def close_without_reset() -> None:
    """Prepares the end of BentoML's supervisor, which is this process"""
    stop_within(_without_reset)


@contextlib.contextmanager
def _without_reset(listeners: Iterable[socket.socket], later: Later) -> Iterator[None]:
    filtered = [found for found in listeners if drop_new_clients(found)]
    try:
        yield
    except BaseException:
        # The supervisor does one thing at a time, and may be at another one.
        for listener in filtered:
            listener.setsockopt(socket.SOL_SOCKET, _SO_DETACH_FILTER, 0)
        raise
    if filtered:
        later(_FIRST_LOOK_SECONDS, _close_when_empty, later, filtered)


def drop_new_clients(listener: socket.socket) -> bool:
    """For all processes that share the socket; false where that cannot be"""
    if listener.family == socket.AF_UNIX:
        return False
    code = b"".join(struct.pack("HBBI", *step) for step in _PROGRAM)
    kept = ctypes.create_string_buffer(code, len(code))
    try:
        listener.setsockopt(
            socket.SOL_SOCKET, _SO_ATTACH_FILTER, struct.pack("HP", len(_PROGRAM), ctypes.addressof(kept))
        )
    except OSError as error:
        _LOG.warning("clients that connect while the service ends may be reset: no filter, %s", error)
        return False
    return True


def waiting_clients(listener: socket.socket) -> int:
    """How many have connected and not been accepted"""
    found = listener.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _UNACKED.stop)
    return int(struct.unpack("I", found[_UNACKED])[0])


def _close_when_empty(later: Later, listeners: Iterable[socket.socket]) -> None:
    left = []
    for listener in listeners:
        # The supervisor may have closed it.
        with contextlib.suppress(OSError):
            if waiting_clients(listener):
                left.append(listener)
            else:
                listener.shutdown(socket.SHUT_RDWR)
    if left:
        later(_LOOK_SECONDS, _close_when_empty, later, left)
