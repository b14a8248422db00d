"""
Other forms of an ONNX model: smaller numbers, a simpler graph, another runtime's format. Each is served by an engine
and held against the original, in answers, time and size; one of them can be written into a repository.

    from kushi.optimize import optimize

    for result in optimize("model.onnx", samples="rows.npz").results:
        print(result)

ONNX and the tools that convert are imported when something is converted.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from ..backends.onnxruntime.library import runtime_library
from ..errors import InvalidInput, Unsupported
from ..export.place import choose

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["FORMS", "ORIGINAL", "Optimized", "Result", "optimize"]

ORIGINAL = "original"
FORMS = {
    "simplified": "the same numbers: constants folded, nodes without effect removed",
    "fp16": "weights and arithmetic in half precision, inputs and outputs as they were",
    "int8-dynamic": "weights in 8 bits, the rest quantised as it comes",
    "int8-static": "weights and activations in 8 bits, by ranges that the samples show",
    "openvino": "OpenVINO's own format, for the backend 'openvino'",
}
"""What an ONNX model can be made into"""


@dataclass(frozen=True)
class Result:
    """One form, served and compared; where it cannot be made, served or compared, only `failure` says something"""

    form: str
    failure: str = ""
    size: int = 0
    """In bytes, all of its files"""
    milliseconds: float = 0.0
    """Of one request with one row, the median"""
    largest_difference: float = 0.0
    """From the original's numbers, over all outputs"""
    relative_difference: float = 0.0
    """The same as a part of the largest number of that output"""
    cosine: float | None = 1.0
    """The least of any row of an output with fractions, between its numbers and the original's; None: there is none"""
    agreement: float | None = 1.0
    """
    In what part of the rows each output that may be scores of classes has its largest number at the same place, and
    whole numbers and texts are the same; None: there are no such outputs
    """
    note: str = ""
    """What the comparison cannot show"""


@dataclass(frozen=True)
class Optimized:
    """All forms that were asked for, the original first"""

    results: Sequence[Result]
    rows: int
    """That were compared"""
    drawn: bool
    """The samples were random numbers"""
    path: Path | None
    """The file that was written"""


def optimize(
    source: str | Path,
    *,
    forms: Sequence[str] = tuple(FORMS),
    samples: str | Path | None = None,
    write: str | None = None,
    directory: str | Path | None = None,
    version: int | Literal["next"] = "next",
    force: bool = False,
) -> Optimized:
    """
    Makes the forms of an ONNX file and compares them.

    samples: an .npz file with an array for each input, its rows along the first dimension; random numbers where there
        is none, which tell little of the accuracy of a model.
    write: the form to be written to `directory`/VERSION, and `directory`/config.pbtxt where there is none.
    version, force: as for `export`.
    """
    unknown = [form for form in (*forms, *([write] if write else [])) if form not in FORMS]
    if unknown:
        raise InvalidInput(f"form '{unknown[0]}' is not known, expected {', '.join(FORMS)}")
    if bool(write) != bool(directory):
        raise InvalidInput("what is written, and where: expected both or neither")
    if not Path(source).is_file():
        raise InvalidInput(f"'{source}' is not a file, expected an ONNX model")
    place = choose(Path(directory), version, force=force) if directory else None
    runtime_library()
    if find_spec("onnx") is None:
        raise Unsupported('converting needs onnx, not found here: pip install "kushi[optimize]"')
    wanted = [form for form in FORMS if form in forms or form == write]
    optimizer = import_module(".optimizer", __package__)
    optimized: Optimized = optimizer.optimize(
        Path(source), wanted, samples=Path(samples) if samples else None, write=write, place=place
    )
    return optimized
