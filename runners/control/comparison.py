"""
`kushi.samples`: a model with several forms has rows that all of them are asked before one is served.

Each form is loaded in a core of its own, asked, and let go before the next one. What cannot answer is not served; how
far the answers of the others are from those of the first stands in its configuration.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..alternatives import Candidate, samples_file
from ..backends.pipeline import Loaded
from ..backends.steps import NotYet
from ..differences import are_numbers, close, difference
from ..errors import ConfigInvalid, InvalidInput, KushiError, ShuttingDown, Unsupported, about
from ..failures import forget_frames
from ..repository.resolve import Resolved
from ..repository.supported_fields import SAMPLES
from ..repository.tensors import shape_text
from ..samples import Row, read_arrays, rows_of
from ..tolerance import Difference, Tolerance
from .load import Load
from .trial import Trial

__all__ = ["try_forms"]

_LOG = logging.getLogger(__name__)
_TOLERANCE = Tolerance()

_Array = NDArray[Any]
_Answers = Mapping[int, Sequence[Mapping[str, _Array]]]
"""Of each version, row by row"""
_Open = Callable[[Resolved, int], Loaded]
_FindRows = Callable[[Mapping[str, Any], bool], Sequence[Row]]
"""Of the metadata of a model, and whether it has batches"""


class _Unfit(Unsupported):
    """The rows are not for the inputs of a form"""


class _Silent(Unsupported):
    """A form that can be loaded, and does not answer the rows"""


@dataclass(frozen=True)
class _Asked:
    form: Candidate
    answers: _Answers | None
    """None where it could not be asked, which does not say that it cannot be served"""


@dataclass(frozen=True)
class _Failed:
    form: Candidate
    why: str


def try_forms(load: Load, forms: Sequence[Candidate], open_version: _Open) -> Sequence[Candidate]:
    """Those that answer the rows, in their order; the last one in any case, which says why none can be served"""
    resolved = forms[-1].resolved
    with about(resolved.source.stated_in):
        path = samples_file(resolved)
        arrays = load.run(path, partial(read_arrays, path, within=resolved.source.path))
    asked: list[_Asked] = []
    silent: list[_Failed] = []
    unfit: KushiError | None = None
    for form in forms:
        _LOG.info("model '%s': alternative '%s' is asked the rows of '%s'", resolved.source.name, form.name, path.name)
        try:
            asked.append(_Asked(form, _ask(load, form.resolved, arrays, path, open_version)))
        except ShuttingDown:
            raise
        except (NotYet, _Unfit) as error:
            unfit = error if isinstance(error, _Unfit) else unfit
            _LOG.warning("model '%s': alternative '%s' is not compared: %s", resolved.source.name, form.name, error)
            asked.append(_Asked(form, None))
            forget_frames(error)
        except KushiError as error:
            form.refuse(error)
            forget_frames(error)
            if isinstance(error, _Silent):
                silent.append(_Failed(form, str(error)))
    # one that cannot be loaded here may be the one that they are for
    if unfit and len(asked) == len(forms) and all(one.answers is None for one in asked):
        raise unfit
    if silent and not asked:
        raise ConfigInvalid(f"parameter '{SAMPLES}': no form answers the rows of '{path}': {silent[-1].why}")
    if asked:
        _compare_all(asked[0], asked[1:])
        for failed in silent:
            asked[0].form.add(f"'{failed.form.name}' is not compared: {failed.why}")
    return [one.form for one in asked] or forms[-1:]


def _ask(
    load: Load, resolved: Resolved, arrays: Mapping[str, _Array], path: Path, open_version: _Open
) -> dict[int, Sequence[Mapping[str, _Array]]]:
    """Version by version, each a step of the load, so that it ends soon when it is given up"""
    answers = {}
    for version in resolved.versions:
        # what a step that was given up still asks ends with it
        with closing(Trial()) as trial:
            step = partial(_answers_of, trial, resolved, version, open_version, rows=partial(_rows, arrays, path))
            answers[version] = load.run(resolved.source.path, step)
    return answers


def _answers_of(
    trial: Trial, resolved: Resolved, version: int, open_version: _Open, rows: _FindRows
) -> Sequence[Mapping[str, _Array]]:
    # closed on this thread, which has asked it, before it ends
    with trial:
        loaded = open_version(resolved, version)
        asked = rows(trial.publish(loaded), loaded.config.max_batch_size > 0)
        try:
            return [trial.ask(row) for row in asked]
        except KushiError as error:
            raise _Silent(f"it does not answer the rows of '{SAMPLES}': {error}") from error


def _rows(
    arrays: Mapping[str, _Array],
    path: Path,
    metadata: Mapping[str, Any],
    batching: bool,  # noqa: FBT001 - the last of two
) -> Sequence[Row]:
    try:
        return rows_of(arrays, path, metadata, batching=batching).rows
    except (InvalidInput, Unsupported) as error:
        raise _Unfit(f"parameter '{SAMPLES}': {error}") from error


def _compare_all(served: _Asked, others: Sequence[_Asked]) -> None:
    """Says it in the configuration of what is served, and warns of what is more than rounding"""
    for other in others:
        if served.answers is not None and other.answers is not None:
            alike, text = _compared(served.answers, other.answers, other.form.name)
            served.form.add(text)
            level = logging.INFO if alike else logging.WARNING
            _LOG.log(
                level, "model '%s': alternative '%s': %s", served.form.resolved.source.name, served.form.name, text
            )


def _compared(answers: _Answers, others: _Answers, other: str) -> tuple[bool, str]:
    if set(answers) != set(others):
        return False, f"'{other}' has the versions {', '.join(map(str, sorted(others)))}"
    alike, largest = True, Difference(0.0, 0.0)
    pairs = (pair for version in answers for pair in zip(answers[version], others[version], strict=True))
    for answer, wanted in pairs:
        if set(answer) != set(wanted):
            return False, f"'{other}' has the outputs {', '.join(sorted(wanted))}"
        for output, array in wanted.items():
            if answer[output].shape != array.shape:
                shape, its = shape_text(answer[output].shape), shape_text(array.shape)
                return False, f"its output '{output}' has the shape {shape}, that of '{other}' {its}"
            if are_numbers(answer[output]) and are_numbers(array):
                largest |= difference(answer[output], array)
            elif not np.array_equal(answer[output], array):
                return False, f"its output '{output}' differs from that of '{other}'"
            alike = alike and close(answer[output], array, _TOLERANCE)
    if not largest.absolute:
        return alike, f"it answers the same as '{other}'"
    by = f"{largest.absolute:.1e} ({largest.relative:.1e} of the largest number)"
    return alike, f"its answers differ from those of '{other}' by at most {by}"
