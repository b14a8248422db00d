"""What the tests of hostile clients share: how a server is known to have got rid of them."""

from __future__ import annotations

import os
import select
import socket
import struct
from typing import TYPE_CHECKING

from tests.contract import requests
from tests.contract.requests import ADD_SUB_INPUTS, Infer, Output, Tensor
from tests.waiting import settles

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.raw_http import Connection
    from tests.serving import Server

__all__ = ["BODY", "HEADERS", "PATH", "SUM", "all_is_well", "descriptors", "image", "inflight_bytes", "reset", "speaks"]

HEADERS, BODY = requests.body(Infer("add_sub", ADD_SUB_INPUTS, [Output("OUTPUT0")]))
PATH = requests.path("add_sub")
SUM = list(range(1, 17))
SPARE_KIB = 160 * 1024
"""More than the memory that threads keep for the next large bodies."""


def image(side: int) -> tuple[list[tuple[str, str]], bytes]:
    """A request that brings 12 times `side` squared bytes, and gets them back"""
    tensor = Tensor("INPUT0", "FP32", (1, 3, side, side), raw=bytes(12 * side * side))
    return requests.body(Infer("image", [tensor], [Output("OUTPUT0", binary=True)]))


def descriptors(server: Server) -> int:
    return len(os.listdir(f"/proc/{server.pid}/fd"))  # noqa: PTH208 - the entries vanish while they are looked at


def inflight_bytes(server: Server) -> int:
    return int(server.metrics()["kushi_inflight_bytes"])


def waiting_or_running(server: Server) -> float:
    values = server.metrics()
    return values["kushi_queue_requests"] + values["kushi_running_requests"]


def all_is_well(server: Server) -> Iterator[Server]:
    """Around a test: afterwards nothing is left of it"""
    at_rest, memory = descriptors(server), server.memory_kib()
    yield server
    assert server.process.poll() is None, "the server died"
    settles(lambda: descriptors(server) <= at_rest + 4, "the connections are closed on the server's side too")
    settles(lambda: inflight_bytes(server) == 0, "nothing is in flight")
    settles(lambda: waiting_or_running(server) == 0, "nothing waits and nothing runs")
    response = server.post(PATH, BODY, HEADERS)
    assert response.json()["outputs"][0]["data"] == SUM
    grown = server.memory_kib() - memory
    assert grown < SPARE_KIB, grown


def reset(connection: Connection) -> None:
    """Ends a connection without a goodbye"""
    connection.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


def speaks(connection: Connection, within: float) -> bool:
    """Whether the server says something, or closes, soon"""
    return bool(select.select([connection.socket], [], [], within)[0])
