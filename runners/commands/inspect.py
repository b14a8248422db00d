"""kushi inspect: what is inside of a plan of TensorRT, or of TensorRT for RTX"""

import json
import sys
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from ..errors import KushiError
from .command import Command

if TYPE_CHECKING:
    from ..plans import Inspected

__all__ = ["COMMAND"]

_DESCRIPTION = """\
Shows which TensorRT wrote a plan, and where TensorRT and a GPU like the one that it was built for
are here, its inputs and outputs, the shapes of its profiles, its layers and the memory they take.
"""


def _add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("plan", metavar="PLAN", help="a file as trtexec or 'kushi export --to tensorrt' writes it")
    parser.add_argument("--gpu", type=int, default=0, metavar="N", help="the GPU to open it on. Default: %(default)s")
    parser.add_argument("--layers", action="store_true", help="list the layers")
    parser.add_argument("--json", action="store_true", help="all of it, for a program")


def _run(arguments: dict[str, Any], parser: ArgumentParser) -> int:
    from ..plans import inspect_plan  # noqa: PLC0415 - protobuf, which help does without

    try:
        found = inspect_plan(arguments["plan"], gpu=arguments["gpu"])
    except KushiError as error:
        sys.stderr.write(f"{parser.prog}: error: {error}\n")
        return 1
    except OSError as error:
        sys.stderr.write(f"{parser.prog}: error: '{arguments['plan']}': {error.strerror or error}, expected a plan\n")
        return 1
    if arguments["json"]:
        sys.stdout.write(f"{json.dumps(asdict(found), indent=2)}\n")
    else:
        sys.stdout.write("\n".join([*_lines(found, layers=arguments["layers"]), ""]))
    return 0


def _lines(found: "Inspected", *, layers: bool) -> Iterator[str]:
    yield f"written by {found.written_by}"
    if found.is_rtx:
        yield "not served here: plans of TensorRT for RTX are built and looked into alone"
    if found.why_closed:
        yield f"cannot be opened here: {found.why_closed}"
        return
    memory = f"{found.memory_bytes / 1e6:.1f} MB for what it computes"
    yield f"{len(found.layers)} layers, {found.profiles} profile(s), {memory}"
    for tensor in found.tensors:
        yield f"  {tensor['role']:<6}  {tensor['name']}  {tensor['datatype']}  {_shape(tensor['shape'])}"
        for key in ("profiles", "values"):
            for number, one in enumerate(tensor.get(key, ())):
                yield f"          {_range(key, number, one)}"
    if layers:
        yield from (f"  layer   {name}" for name in found.layers)


def _range(key: str, number: int, one: Mapping[str, Any]) -> str:
    what = "profile" if key == "profiles" else "values in profile"
    return f"{what} {number}: from {_shape(one['min'])} to {_shape(one['max'])}, best {_shape(one['opt'])}"


def _shape(dims: list[int]) -> str:
    return f"[{','.join(map(str, dims))}]"


COMMAND = Command(
    name="inspect",
    summary="show what is inside of a TensorRT plan",
    description=_DESCRIPTION,
    epilog="",
    add_arguments=_add_arguments,
    run=_run,
    formatter=RawDescriptionHelpFormatter,
)
