"""kushi optimize: its flags, and the table of what was compared"""

import sys
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from typing import TYPE_CHECKING, Any

from ..errors import InvalidInput, KushiError
from ..integers import integer
from .command import Command
from .progress import show_progress

if TYPE_CHECKING:
    from ..optimize import Optimized, Result

__all__ = ["COMMAND"]

_DESCRIPTION = """\
Makes other forms of an ONNX model, serves each by an engine, and compares answers, time and size
with the original's. With --write, one of them becomes a version of a model.

  simplified    the same numbers: constants folded, nodes without effect removed
  fp16          weights and arithmetic in half precision, inputs and outputs as they were
  int8-dynamic  weights in 8 bits, the rest quantised as it comes
  int8-static   weights and activations in 8 bits, by ranges that the samples show
  openvino      OpenVINO's own format, for the backend 'openvino'
"""
_EPILOG = """\
examples:
  kushi optimize model.onnx --samples rows.npz
  kushi optimize model.onnx --samples rows.npz --form int8-static \\
      --write int8-static --output model_repository/resnet

The samples are an .npz file (numpy.savez) with an array for each input: its rows along the first
dimension, or for a model without batches one array as it takes it. Without samples the inputs are
random numbers, which tell little of the accuracy.
"""


def _add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("source", metavar="MODEL", help="an ONNX file")
    parser.add_argument(
        "--form", action="append", default=[], metavar="FORM", help="a form to try. Repeated; default: all of them"
    )
    parser.add_argument("--samples", metavar="FILE", help="an .npz file with rows for all inputs")
    parser.add_argument("--write", metavar="FORM", help="the form to be written into a repository")
    parser.add_argument(
        "--output", metavar="DIR", help="with --write: directory of the model; its name is the name of the model"
    )
    parser.add_argument("--version", default="next", metavar="N|next", help="version to write. Default: %(default)s")
    parser.add_argument("--force", action="store_true", help="replace the version if it exists")


def _run(arguments: dict[str, Any], parser: ArgumentParser) -> int:
    try:
        sys.stdout.write(_optimize(arguments))
    except (KushiError, OSError) as error:
        sys.stderr.write(f"{parser.prog}: error: {error}\n")
        return 1
    return 0


def _optimize(flags: dict[str, Any]) -> str:
    from ..optimize import FORMS, optimize  # noqa: PLC0415 - native code and protobuf, which help does without

    show_progress(optimize.__module__)
    number = integer(flags["version"])
    if flags["version"] != "next" and number is None:
        raise InvalidInput(f"--version: expected a number from 1 or next, got '{flags['version']}'")
    if bool(flags["write"]) != bool(flags["output"]):
        raise InvalidInput("--write says what is written and --output where: expected both or neither")
    forms = flags["form"] or ([flags["write"]] if flags["write"] else list(FORMS))
    optimized = optimize(
        flags["source"],
        forms=forms,
        samples=flags["samples"],
        write=flags["write"],
        directory=flags["output"],
        version="next" if number is None else number,
        force=flags["force"],
    )
    return _table(optimized)


def _table(optimized: "Optimized") -> str:
    original = optimized.results[0]
    head = ("form", "size", "of it", "ms", "of it", "largest difference", "relative", "cosine", "same largest")
    rows = [head, *(_row(result, original) for result in optimized.results)]
    full = [row for row in rows if len(row) == len(head)]
    widths = [max(len(row[column]) for row in full) for column in range(len(head))]
    lines = [_line(row, widths) if row in full else f"{row[0]:<{widths[0]}}  failed: {row[1]}" for row in rows]
    what = "random numbers: give --samples to know the accuracy" if optimized.drawn else "the samples"
    lines.append(f"compared on {optimized.rows} rows of {what}")
    lines += [f"{result.form}: {result.note}" for result in optimized.results if result.note]
    if optimized.path:
        lines.append(f"wrote {optimized.path}")
        lines.append(f"serve it with: kushi serve --model-repository {optimized.path.parent.parent.parent}")
    return "\n".join([*lines, ""])


def _line(row: tuple[str, ...], widths: list[int]) -> str:
    name, *numbers = row
    return "  ".join(
        [f"{name:<{widths[0]}}", *(f"{text:>{width}}" for text, width in zip(numbers, widths[1:], strict=True))]
    )


def _row(result: "Result", original: "Result") -> tuple[str, ...]:
    if result.failure:
        return result.form, result.failure
    return (
        result.form,
        f"{result.size / 1e6:.2f} MB",
        f"{result.size / original.size:.2f}",
        f"{result.milliseconds:.3f}",
        f"{result.milliseconds / original.milliseconds:.2f}",
        f"{result.largest_difference:.1e}",
        f"{result.relative_difference:.1e}",
        _shown(result.cosine, ".4f"),
        _shown(result.agreement, ".1%"),
    )


def _shown(number: float | None, form: str) -> str:
    return "–" if number is None else format(number, form)


COMMAND = Command(
    name="optimize",
    summary="make other forms of an ONNX model and compare them",
    description=_DESCRIPTION,
    epilog=_EPILOG,
    add_arguments=_add_arguments,
    run=_run,
    formatter=RawDescriptionHelpFormatter,
)
