"""Requests whose tensors lie in regions of shared memory."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
from tritonclient import http
from tritonclient.http import InferenceServerClient as Client

from tests.shared_memory import Object

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.serving import Server

__all__ = [
    "ADD_SUB_BYTES",
    "FIRST",
    "SECOND",
    "add_sub_inputs",
    "connect",
    "infer_add_sub",
    "open_objects",
    "registered",
    "shared_input",
    "shared_output",
]

FIRST: Final = np.arange(16, dtype=np.int32).reshape(1, 16)
SECOND: Final = np.full((1, 16), 3, dtype=np.int32)
ADD_SUB_BYTES: Final = FIRST.tobytes() + SECOND.tobytes()


def connect(server: Server) -> Client:
    return Client(f"{server.http[0]}:{server.http[1]}")


@contextmanager
def registered(client: Client, name: str, content: bytes | int) -> Iterator[Object]:
    """An object that is registered under a name, and unlinked at the end but not unregistered."""
    with Object(content) as memory:
        client.register_system_shared_memory(name, memory.key, memory.size)
        yield memory


def open_objects(server: Server) -> int:
    """How many objects in shared memory the server has open."""
    count = 0
    for link in Path(f"/proc/{server.pid}/fd").iterdir():
        try:
            count += str(link.readlink()).startswith("/dev/shm/kushi-test")
        except FileNotFoundError:
            continue
    return count


def shared_input(
    name: str, datatype: str, shape: tuple[int, ...], region: str, size: int, *, at: int = 0
) -> http.InferInput:
    made = http.InferInput(name, list(shape), datatype)
    made.set_shared_memory(region, size, at)
    return made


def shared_output(name: str, region: str, size: int, *, at: int = 0) -> http.InferRequestedOutput:
    made = http.InferRequestedOutput(name, binary_data=False)
    made.set_shared_memory(region, size, at)
    return made


def add_sub_inputs(region: str = "in") -> list[http.InferInput]:
    """The two rows of ``ADD_SUB_BYTES``."""
    return [
        shared_input("INPUT0", "INT32", (1, 16), region, 64),
        shared_input("INPUT1", "INT32", (1, 16), region, 64, at=64),
    ]


def infer_add_sub(client: Client, region: str = "in") -> None:
    """Asks for the sum of what the region holds, and checks it."""
    answer = client.infer("add_sub", add_sub_inputs(region)).as_numpy("OUTPUT0")
    np.testing.assert_array_equal(answer, FIRST + SECOND)
