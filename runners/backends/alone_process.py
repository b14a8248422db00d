"""A model is asked in its runtime alone, in a process that is there for nothing else"""

from __future__ import annotations

import logging
import time
from contextlib import suppress
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

import numpy as np
from kushi_native import register_errors

from ..differences import are_alike, as_plain
from ..errors import factories
from ..repository.discovery import descriptor_of
from ..timing import median_milliseconds
from ..tolerance import Tolerance
from .alone import ALL_ROWS, Bounds, new_file, pack, unpack
from .fitting import backend_of
from .isolation_messages import Order

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ..repository.messages import ModelConfig
    from ..samples import Row

    Ask = Callable[[Row], Row]

__all__ = ["AskedModel", "Script"]

_LOG = logging.getLogger(__name__)
_TIMED_SECONDS = 0.5


class AskedModel:
    """What the loop of a worker calls"""

    @staticmethod
    def auto_complete_config(config: Any) -> Any:  # noqa: ANN401 - a ModelConfig of the worker
        """Asks the version that an order is about"""
        # where memory is short, the system takes this process and not the server
        with suppress(OSError):
            Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")
        register_errors(factories())
        plain: dict[str, Any] = config.as_dict()
        asked = {**plain}
        plain.clear()
        try:
            script = _opened(Order.of(asked), asked)
        except Exception as error:  # noqa: BLE001 - whatever the runtime raises
            plain["error"] = _text(error)
            return config
        try:
            plain.update(_ask(script, asked))
        except Exception as error:  # noqa: BLE001 - as above
            plain["unanswered"] = _text(error)
        return config


def _text(error: Exception) -> str:
    _LOG.debug("asked alone", exc_info=error)
    return f"{type(error).__name__}: {error}"


def _opened(order: Order, asked: Mapping[str, Any]) -> Script:
    config, descriptor = order.config, descriptor_of(order.config.backend)
    directory = order.source.versions[order.version]
    path = backend_of(config.backend, order.settings).locate(directory, config.default_model_filename)
    return Script(config, resolve_name(descriptor.alone)(path, config, threads=asked["threads"], gpu=asked["gpu"]))


def _ask(script: Script, asked: Mapping[str, Any]) -> dict[str, Any]:
    given = Path(asked["rows"])
    rows = [*unpack(given).values()]
    # nothing of it stays where this process or the server is ended
    given.unlink(missing_ok=True)
    bounds, tolerance = Bounds(**asked["bounds"]), Tolerance(**asked["tolerance"])
    first = script.ask(rows[0])
    answers, begun = {"0": first}, time.monotonic()
    varies = not are_alike(script.ask(rows[0]), first, tolerance)
    most = max(1, bounds.answer_bytes // max(1, _size(first)))
    for number, row in enumerate(rows[1:most], 1):
        if time.monotonic() - begun > bounds.seconds:
            break
        answers[str(number)] = script.ask(row)
    milliseconds = median_milliseconds(lambda: script.ask(rows[0]), _TIMED_SECONDS)
    some = script.batch_of(rows[: min(len(answers), int(bounds.seconds * 1e3 / milliseconds))])
    if some:
        answers[ALL_ROWS] = script.ask({name: np.concatenate([row[name] for row in some]) for name in some[0]})
    answered = new_file()
    pack(answered, answers)
    return {"answers": str(answered), "varies": varies, "together": len(some), "milliseconds": milliseconds}


def _size(row: Row) -> int:
    return sum(array.nbytes for array in row.values())


class Script:
    """What clients send, in the shapes that the model has, and the other way round"""

    def __init__(self, config: ModelConfig, ask: Ask) -> None:
        self._most = config.max_batch_size
        self._ask = ask
        self._inputs = {one.name: tuple(one.reshape.shape) for one in config.input if one.HasField("reshape")}
        self._outputs = {one.name: tuple(one.dims) for one in config.output if one.HasField("reshape")}

    def ask(self, row: Row) -> Row:
        answered = self._ask(self._shaped(row, self._inputs))
        return self._shaped({name: as_plain(array) for name, array in answered.items()}, self._outputs)

    def batch_of(self, rows: Sequence[Row]) -> Sequence[Row]:
        """As many as the model takes at once; none where it has no batches, or they have different shapes"""
        some = rows[: self._most]
        shapes = {tuple(array.shape for array in row.values()) for row in some}
        return some if len(some) > 1 and len(shapes) == 1 else ()

    def _shaped(self, row: Row, shapes: Mapping[str, tuple[int, ...]]) -> Row:
        """A dimension of any size is what is left"""
        return {
            name: array.reshape((len(array), *shapes[name]) if self._most else shapes[name])
            if name in shapes
            else array
            for name, array in row.items()
        }
