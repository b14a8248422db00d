"""
A model is tried, in a process that is there for nothing else: it is loaded as by a server, warmed up, and asked. Only
whether the process outlives that is of interest.
"""

from __future__ import annotations

import logging
import threading
from contextlib import suppress
from itertools import product
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from kushi_native import Core, register_errors

from ..errors import ConfigInvalid, Unsupported, factories
from ..samples import NUMBERS
from ..settings import EngineOptions, MetricsOptions
from . import pipeline
from .isolated_batches import bfloat16
from .isolation_messages import Order

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from numpy.typing import NDArray

    from ..repository.specification import Specification

__all__ = ["TriedModel"]

_LOG = logging.getLogger(__name__)
_OPTIONS = EngineOptions(io_threads=1, metrics=MetricsOptions(cpu=False, gpu=False))
_ENOUGH_SECONDS = 30.0
"""So long it is asked: one that goes on for longer does not end the process"""
_SIZES = (1, 3, 32)
"""Of dimensions that may vary"""
_VALUES = (0, 1, -1, 1e9)
_MOST_ELEMENTS = 16 * 1024 * 1024
"""Of a row, but for the smallest one"""
_MOST_OF_THE_SMALLEST = 16 * _MOST_ELEMENTS
_MOST_DIMS = 64
"""Of NumPy's arrays; 32 before its version 2"""
_TYPES: Mapping[str, Any] = {**NUMBERS, "BYTES": np.object_, **({"BF16": bfloat16} if bfloat16 else {})}


class TriedModel:
    """What the loop of a worker calls"""

    @staticmethod
    def auto_complete_config(config: Any) -> Any:  # noqa: ANN401 - a ModelConfig of the worker
        """Tries the version that an order is about"""
        # where memory is short, the system takes this process and not the server
        with suppress(OSError):
            Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")
        plain: dict[str, Any] = config.as_dict()
        order = Order.of(plain)
        seconds = min(_ENOUGH_SECONDS, plain["seconds"] / 3)
        plain.clear()
        try:
            plain["is_over"] = _try(order, seconds)
        except _NotAsked as error:
            plain["refused"] = str(error)
        return config


class _NotAsked(Exception):
    """It cannot be asked anything here, so that nobody knows what it does then"""


def _try(order: Order, seconds: float) -> bool:
    """
    Whether it was asked to the end. Memory, threads or files may have been missing, and be there the next time; what a
    load refuses under these settings, another one may open
    """
    register_errors(factories())
    try:
        loaded = pipeline.load(
            order.source,
            order.config,
            order.version,
            auto_complete=order.auto_complete,
            settings=order.settings,
            limits=order.limits,
        )
        core = Core(_OPTIONS.to_json((), logs=False))
        specification = loaded.specification.model_copy(update={"rates": ()})
        _check_ranks(specification)
        started = core.start(specification.name, specification.model_dump_json(), loaded.sessions)
        if loaded.warm_up:
            started.warm_up(loaded.warm_up)
        core.publish(specification.name, [started])
        is_over = threading.Event()
        asking = threading.Thread(target=_ask, args=(core, specification, is_over), daemon=True)
        asking.start()
        asking.join(seconds)
        # it has answered, or still computes
        return is_over.is_set() or asking.is_alive()
    except _NotAsked:
        raise
    except (ConfigInvalid, Unsupported) as error:
        _LOG.info("'%s' is refused, and not tried: %s", order.config.name, error)
        return False
    except Exception as error:  # noqa: BLE001 - whatever was missing
        _LOG.warning("'%s' was not tried to the end: %s", order.config.name, error)
        return False


def _check_ranks(specification: Specification) -> None:
    for one in specification.inputs:
        if len(one.dims) + bool(specification.max_batch_size) > _MOST_DIMS:
            raise _NotAsked(
                f"has the input '{one.name}' of more than {_MOST_DIMS} dimensions, which it cannot be asked with"
            )


def _ask(core: Core, specification: Specification, is_over: threading.Event) -> None:
    count = 0
    for count, row in enumerate(_rows(specification), 1):  # noqa: B007 - of all
        # whatever it says to it
        with suppress(Exception):
            core.infer(specification.name, (row,), "", None, None, None, 0, "")
    if count == 0:
        _LOG.warning("'%s' was loaded and not asked: there is no input for it here", specification.name)
    is_over.set()


def _rows(specification: Specification) -> Iterator[Mapping[str, NDArray[Any]]]:
    """
    For batches of one, two and as many as there may be, and without what may be left out as well. Small ones come
    first: a slow model answers no more in its time
    """
    most = specification.max_batch_size
    batches = [(size,) for size in sorted({1, min(2, most), most})] if most else [()]
    needed = [one for one in specification.inputs if not one.optional]
    some = [specification.inputs, *([needed] if 0 < len(needed) < len(specification.inputs) else [])]
    sizes = _SIZES if any(dim < 0 for one in specification.inputs for dim in one.dims) else _SIZES[:1]
    # a model may have no smaller one
    room = 0
    for size, batch, inputs, number in product(sizes, batches, some, _VALUES):
        shapes = [(*batch, *(size if dim < 0 else dim for dim in one.dims)) for one in inputs]
        elements = sum(map(prod, shapes))
        room = room or max(min(elements, _MOST_OF_THE_SMALLEST), _MOST_ELEMENTS)
        if elements <= room and all(one.datatype in _TYPES for one in inputs):
            yield {one.name: _filled(shape, one.datatype, number) for one, shape in zip(inputs, shapes, strict=True)}


def _filled(shape: tuple[int, ...], datatype: str, number: float) -> NDArray[Any]:
    kind = _TYPES[datatype]
    value: Any = number
    if kind is np.object_:
        value = str(number).encode()
    elif issubclass(kind, np.integer):
        value = min(max(int(number), int(np.iinfo(kind).min)), int(np.iinfo(kind).max))
    with np.errstate(over="ignore"):
        return np.full(shape, value, kind)
