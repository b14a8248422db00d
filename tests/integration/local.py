"""What the tests of ``Client("unix://…")`` share."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pytest
import uvloop
from onnx import helper

from tests import models
from tests.arrays import DTYPES, ones
from tests.gates import gate_name

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from runners import Client
    from tests.serving import Server

__all__ = [
    "EVERY_LOOP",
    "LARGE",
    "Run",
    "Start",
    "descriptors",
    "values",
    "works",
    "works_awaited",
    "write_gated_identity",
]

Run = Callable[[Awaitable[None]], None]
Start = Callable[[], "Server"]

EVERY_LOOP: Final = pytest.mark.parametrize("run", [asyncio.run, uvloop.run])

LARGE: Final = 300_000
"""Elements of a row that travels in shared memory whatever its type"""


def values(datatype: str, columns: int) -> NDArray[Any]:
    return (np.arange(2 * columns).reshape(2, columns) % 100).astype(DTYPES[datatype])


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def works(client: Client) -> bool:
    answer = client.infer("add_sub", ones(), ones())["OUTPUT0"]
    return bool((answer == 2).all())


async def works_awaited(client: Client) -> bool:
    answer = (await client.async_infer("add_sub", ones(), ones()))["OUTPUT0"]
    return bool((answer == 2).all())


def write_gated_identity(repository: Path) -> None:
    """``slow_identity``, the gated model that also answers OUTPUT1 = DATA, when STEPS are done."""
    built = models.slow(gate=gate_name(repository, "slow_identity"))
    built.graph.node.append(helper.make_node("Identity", ["DATA"], ["OUTPUT1"]))
    built.graph.input.append(models.tensor("DATA", "UINT8", ["batch", "n"]))
    built.graph.output.append(models.tensor("OUTPUT1", "UINT8", ["batch", "n"]))
    text = models.config(
        "slow_identity",
        [("STEPS", "INT64", [1]), ("DATA", "UINT8", [-1])],
        [("OUTPUT0", "INT64", [1]), ("OUTPUT1", "UINT8", [-1])],
        max_batch_size=1,
        extra=f"dynamic_batching {{ }} {models.ONE_INSTANCE} {models.ONE_THREAD} {models.OPERATORS}",
    )
    models.write(repository, "slow_identity", built, text)
    models.link_operators(repository / "slow_identity")
