"""Opens the sessions of a model whose batches have sizes: one for each size and instance"""

import logging
from collections.abc import Callable, Sequence

import kushi_native

from ...errors import ConfigInvalid, EngineFailed
from ...wanted import check_wanted
from .batch_sizes import BATCH_SIZES, BatchSizes

__all__ = ["Rehearse", "open_in_sizes"]

_LOG = logging.getLogger(__name__)

Rehearse = Callable[[kushi_native.OnnxModel, int], None]
"""Runs a batch of so many rows of zeros, or raises EngineFailed"""


def open_in_sizes(
    sizes: BatchSizes,
    largest: Sequence[kushi_native.OnnxModel],
    open_: Callable[[int, int], kushi_native.OnnxModel],
    rehearse: Rehearse,
) -> Sequence[kushi_native.OnnxModel]:
    """
    Each instance, in sizes. `largest`: its session for the largest batches, which is open; `open_` makes that of an
    instance, by its place in `largest`, for batches of so many rows. Where a size is not to be had, those below it are
    left out, unless the configuration asks for them.
    """
    model = sizes.model
    opened: list[dict[int, kushi_native.OnnxModel]] = [{} for _ in largest]
    rows = sizes.sizes[-1]
    try:
        for rows in reversed(sizes.sizes):
            # all have a size before any has the next: what is missing is missing to all
            for instance, of_rows in enumerate(opened):
                check_wanted()
                session = open_(instance, rows) if of_rows else largest[instance]
                _rehearse(rehearse, session, rows, sizes)
                of_rows[rows] = session
    except (ConfigInvalid, EngineFailed) as error:
        if sizes.stated:
            raise
        if not all(opened):
            _LOG.warning(
                "batches of '%s' run in whatever size they have, since one of %d fails: %s", model, rows, error
            )
            return largest
        _LOG.warning("batches of '%s' have no size of %d or less: %s", model, rows, error)
    shown = ", ".join(map(str, sorted(opened[0])))
    _LOG.info("batches of '%s' run in sizes of %s, each in a session of its own (%s)", model, shown, BATCH_SIZES)
    return [kushi_native.OnnxModel.of_rows(of_rows) for of_rows in opened]


def _rehearse(rehearse: Rehearse, session: kushi_native.OnnxModel, rows: int, sizes: BatchSizes) -> None:
    try:
        rehearse(session, rows)
    except EngineFailed as error:
        if not sizes.stated:
            raise
        _LOG.warning("a batch of '%s' of %d rows of zeros fails: %s", sizes.model, rows, error)
