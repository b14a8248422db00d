"""
`kushi.self_test`: before a version serves, it is asked and held against its runtime alone, in numbers and in speed.

What differs in its answers is not served. A slower answer is said, and no reason to refuse it: what else a machine does
would decide.
"""

import logging
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..backends.alone import Answers, Bounds, Unanswered, ask_alone
from ..backends.isolation_messages import Order
from ..backends.pipeline import Loaded
from ..differences import are_alike, are_numbers, as_plain, close, difference
from ..errors import ConfigInvalid, KushiError, ShuttingDown, about
from ..repository.messages import ModelConfig, ModelInstanceGroup
from ..repository.said_here import SELF_TESTED
from ..repository.self_tests import SELF_TEST, SelfTest
from ..repository.specification import config_text
from ..repository.tensors import shape_text
from ..samples import VARYING, Row, draw, read_arrays, rows_of
from ..timing import median_milliseconds
from ..tolerance import Difference, Tolerance
from ..wanted import check_wanted
from .trial import Trial

__all__ = ["self_tested"]

_LOG = logging.getLogger(__name__)
_SECONDS = 10.0
"""For all rows; a long model answers fewer"""
_TIMED_SECONDS = 0.5
_MOST_BYTES = 64 * 1024 * 1024
"""Of the rows that are asked, and of the answers"""
_BOUNDS = Bounds(_SECONDS, _MOST_BYTES)
_AT_ONCE = 8
_Array = NDArray[Any]
_SLOW, _SLOW_MILLISECONDS = 1.5, 0.2
"""So much of the runtime's own time, and so much more than it, is worth a warning"""


def self_tested(loaded: Loaded, order: Order, wanted: SelfTest) -> Loaded:
    """
    The same version, with what came of it in its configuration. Raises where its answers differ; `order` has its
    complete configuration
    """
    config = order.config
    with about(order.source.stated_in), about(f"the self-test of model '{config.name}'"), Trial() as trial:
        try:
            rows, answers = _asked(wanted, order, trial.publish(loaded), loaded.intra_op_threads)
        except ShuttingDown:
            raise
        except KushiError as error:
            check_wanted()
            if wanted.is_stated:
                raise
            _LOG.warning("'%s' version %d: no self-test: %s", config.name, order.version, error)
            return loaded
        comparison = _Comparison(trial, config, wanted.tolerance)
        found = comparison.run(rows, answers)
        milliseconds = median_milliseconds(lambda: trial.ask(rows[0]), _TIMED_SECONDS)
    text = f"{found}; {milliseconds:.3g} ms a request, alone {answers.milliseconds:.3g} ms"
    is_slow = milliseconds > max(_SLOW * answers.milliseconds, answers.milliseconds + _SLOW_MILLISECONDS)
    level = logging.WARNING if is_slow else logging.INFO
    _LOG.log(level, "'%s' version %d: self-test: %s", config.name, order.version, text)
    return _noted(loaded, text)


def _asked(wanted: SelfTest, order: Order, metadata: Mapping[str, Any], threads: int) -> tuple[Sequence[Row], Answers]:
    """Rows, and what the runtime alone answers them"""
    batching = order.config.max_batch_size > 0
    gpu = next((gpu for group in order.config.instance_group if _on_gpu(group) for gpu in group.gpus), None)
    ask = partial(ask_alone, order, threads=threads, gpu=gpu, bounds=_BOUNDS, tolerance=wanted.tolerance)
    if wanted.samples:
        arrays = read_arrays(wanted.samples, within=order.source.path)
        rows = _few(rows_of(arrays, wanted.samples, metadata, batching=batching).rows)
        return rows, _steady(ask(rows), order.config)
    refusal: KushiError | None = None
    for varying in VARYING if _varies(metadata, batching=batching) else VARYING[:1]:
        rows = draw(metadata, batching=batching, varying=varying, most_bytes=_MOST_BYTES).rows
        try:
            answers = ask(rows)
        except Unanswered as error:
            refusal = error
            continue
        return rows, _steady(answers, order.config)
    raise ConfigInvalid(
        f"{order.config.backend} alone does not answer random numbers, so name an .npz file with rows that the model "
        f"takes: {refusal}"
    )


def _steady(answers: Answers, config: ModelConfig) -> Answers:
    if answers.varies:
        raise ConfigInvalid(
            f"{config.backend} alone answers the same request in another way when it is asked again, so that nothing "
            f"can be compared: leave '{SELF_TEST}' out"
        )
    return answers


def _varies(metadata: Mapping[str, Any], *, batching: bool) -> bool:
    """Whether an input has a dimension of any size, beside that of the batch"""
    return any(int(dim) < 0 for tensor in metadata["inputs"] for dim in tensor["shape"][1 if batching else 0 :])


def _on_gpu(group: ModelInstanceGroup) -> bool:
    return group.kind == ModelInstanceGroup.KIND_GPU


def _few(rows: Sequence[Row]) -> Sequence[Row]:
    size = max(1, sum(array.nbytes for array in rows[0].values()))
    return rows[: max(1, _MOST_BYTES // size)]


class _Comparison:
    """What the served version answers, held against the runtime alone"""

    def __init__(self, trial: Trial, config: ModelConfig, tolerance: Tolerance) -> None:
        self._trial = trial
        self._outputs = [tensor.name for tensor in config.output]
        self._alone = f"{config.backend} alone"
        self._tolerance = tolerance
        self._largest = Difference(0.0, 0.0)

    def run(self, rows: Sequence[Row], answers: Answers) -> str:
        """Each row alone, some of them in one request, and each beside others, so that they meet in batches"""
        end, asked = time.monotonic() + _SECONDS, 0
        for row, answer in zip(rows, answers.rows, strict=False):
            if asked and time.monotonic() > end:
                break
            check_wanted()
            self._check(self._trial.ask(row), answer, f"to row {asked}")
            asked += 1
        said = f"{asked} request{'s are' if asked > 1 else ' is'} answered as by {self._alone}"
        some = rows[: answers.together]
        if answers.batch is not None and time.monotonic() < end:
            said += f", {len(some)} of them also in one batch"
            given = {name: np.concatenate([row[name] for row in some]) for name in rows[0]}
            self._check(self._trial.ask(given), answers.batch, f"to {len(some)} rows in one request")
            if not _is_by_rows(answers, self._tolerance):
                said += f" (on which their answers depend, in {self._alone} as well)"
            elif time.monotonic() < end:
                said += " and beside others"
                with ThreadPoolExecutor(_AT_ONCE) as pool:
                    for number, answered in enumerate(pool.map(self._trial.ask, some)):
                        self._check(answered, answers.rows[number], f"to row {number}, asked beside others")
        if silent := [name for name in self._outputs if name not in answers.rows[0]]:
            said += f" (but for {', '.join(silent)}, which it does not compute)"
        by = self._largest.absolute
        return f"{said}; {f'differences of at most {by:.1e}' if by else 'the same answers'}"

    def _check(self, answered: Row, wanted: Row, which: str) -> None:
        for name, array in wanted.items():
            got = as_plain(answered[name])
            if got.shape != array.shape:
                shape, its = shape_text(got.shape), shape_text(array.shape)
                raise ConfigInvalid(
                    f"output '{name}', {which}: the served answer has the shape {shape}, that of {self._alone} {its}"
                )
            if not close(got, array, self._tolerance):
                raise ConfigInvalid(f"output '{name}', {which}: {self._apart(got, array)}")
            if are_numbers(array):
                self._largest |= difference(got, array)

    def _apart(self, got: _Array, wanted: _Array) -> str:
        """With the first element that differs"""
        if wanted.dtype.kind == "f":
            bounds = {"atol": self._tolerance.absolute, "rtol": self._tolerance.relative}
            apart = ~np.isclose(got.astype(np.float64), wanted.astype(np.float64), equal_nan=True, **bounds)
        else:
            apart = got != wanted
        at = np.unravel_index(int(apart.argmax()), apart.shape)
        by = f", by at most {difference(got, wanted).absolute:.1e}" if are_numbers(wanted) and are_numbers(got) else ""
        place = [int(index) for index in at]
        return f"the served answer is {got[at]} at {place}, that of {self._alone} {wanted[at]}{by}"


def _is_by_rows(answers: Answers, tolerance: Tolerance) -> bool:
    """Whether the runtime answers a row the same whatever stands beside it"""
    batch = answers.batch or {}
    if any(array.ndim == 0 or len(array) != answers.together for array in batch.values()):
        return False
    return all(
        are_alike({name: array[at : at + 1] for name, array in batch.items()}, answers.rows[at], tolerance)
        for at in range(answers.together)
    )


def _noted(loaded: Loaded, text: str) -> Loaded:
    config = ModelConfig()
    config.CopyFrom(loaded.config)
    config.parameters[SELF_TESTED].string_value = text
    stated = {"config_json": config_text(config), "config_message": tuple(config.SerializeToString())}
    return replace(loaded, config=config, specification=loaded.specification.model_copy(update=stated))
