"""
A model in its runtime alone, as a script of its users would ask it. A self-test holds the served model against that.

It is asked in a process of its own, which ends behind it: nothing of it stays in this one.
"""

from __future__ import annotations

import json
import os
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import ConfigInvalid
from .worker_models import of_this_program

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ..samples import Row
    from ..tolerance import Tolerance
    from .isolation_messages import Order

__all__ = ["ALL_ROWS", "Answers", "Bounds", "Unanswered", "ask_alone", "new_file", "pack", "unpack"]

_FILE = Path(__file__).with_name("alone_entry.py")
_START_SECONDS = 1800.0
ALL_ROWS = "batch"
"""The name of the answers to all rows at once, beside those to each row by its number"""


class Unanswered(ConfigInvalid):
    """The runtime is there, and does not answer these rows"""


@dataclass(frozen=True)
class Bounds:
    """Of what a process asks: seconds of a way to ask, and bytes of answers"""

    seconds: float
    answer_bytes: int


@dataclass(frozen=True)
class Answers:
    """What came of it"""

    rows: Sequence[Row]
    """To as many requests as the bounds allow, and to one at least"""
    batch: Row | None
    """To the first rows at once, where the model has batches"""
    together: int
    """How many these are"""
    milliseconds: float
    """Of a request with the first row"""
    varies: bool
    """The first row was not answered the same when it was asked once more"""


def ask_alone(
    order: Order, rows: Sequence[Row], *, threads: int, gpu: int | None, bounds: Bounds, tolerance: Tolerance
) -> Answers:
    """
    Asks the model of this order, whose configuration is complete, with so many threads, on the CPU or on a GPU.
    `tolerance`: how far two answers to the same row may be apart
    """
    workers = of_this_program(_FILE, order.source, _START_SECONDS)
    asked = new_file()
    try:
        pack(asked, {str(number): row for number, row in enumerate(rows)})
        about = {
            "rows": str(asked),
            "threads": threads,
            "gpu": gpu,
            "bounds": asdict(bounds),
            "tolerance": asdict(tolerance),
        }
        answer = workers.complete(f"{order.config.name}_alone", json.dumps({**order.to_plain(), **about}))
    finally:
        asked.unlink(missing_ok=True)
    came: dict[str, Any] = json.loads(answer)
    if error := came.get("unanswered"):
        raise Unanswered(error)
    if error := came.get("error"):
        raise ConfigInvalid(f"{order.config.backend} alone cannot open it: {error}")
    answered = Path(came["answers"])
    try:
        answers = unpack(answered)
    finally:
        answered.unlink()
    batch = answers.pop(ALL_ROWS, None)
    found = [answers[str(number)] for number in range(len(answers))]
    return Answers(found, batch, came["together"], came["milliseconds"], came["varies"])


def new_file() -> Path:
    """One that goes as soon as it is read"""
    descriptor, name = tempfile.mkstemp(prefix="kushi-self-test-", suffix=".npz")
    os.close(descriptor)
    return Path(name)


def pack(path: Path, rows: Mapping[str, Row]) -> None:
    """Writes rows by their names"""
    # names of tensors may be what no name of a file can be
    names = [[key, [*row]] for key, row in rows.items()]
    arrays = {f"{at}.{place}": one for at, row in enumerate(rows.values()) for place, one in enumerate(row.values())}
    np.savez(path, allow_pickle=False, names=np.frombuffer(json.dumps(names).encode(), np.uint8), **arrays)


def unpack(path: Path) -> dict[str, Row]:
    """Reads what `pack` has written"""
    with np.load(path, allow_pickle=False) as arrays:
        names = json.loads(arrays["names"].tobytes())
        return {
            key: {name: arrays[f"{at}.{place}"] for place, name in enumerate(tensors)}
            for at, (key, tensors) in enumerate(names)
        }
