"""kushi export: its flags, the source that they name, and what is printed"""

import logging
import sys
from argparse import ArgumentParser, ArgumentTypeError, RawDescriptionHelpFormatter
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import InvalidInput, KushiError
from ..integers import integer
from ..tolerance import Tolerance
from .command import Command

if TYPE_CHECKING:
    from ..export import Exported

__all__ = ["COMMAND"]

_DESCRIPTION = """\
Exports a PyTorch model to ONNX, compares what an engine answers with what PyTorch answers, and
writes DIR/VERSION/model.onnx and DIR/config.pbtxt. The first dimension of every input and output
is the batch, of any size. Where something fails, nothing is written.
"""
_EXAMPLES = """\
examples:
  kushi export model.pt --output model_repository/resnet --input image:FP32:3,224,224
  kushi export model.pt2 --output model_repository/resnet --version next
  kushi export my_package.models:resnet --output model_repository/resnet \\
      --input image:FP32:3,224,224 --output-name logits --max-batch-size 64

A program calls kushi.export.export, which takes examples as inputs instead of random numbers.
SOURCE in the form MODULE:CALLABLE runs that code; the files do not run any.
"""


def _add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "source",
        metavar="SOURCE",
        help="a TorchScript file, an exported program (torch.export.save), or MODULE:CALLABLE that makes a module",
    )
    parser.add_argument(
        "--output", required=True, metavar="DIR", help="directory of the model; its name is the name of the model"
    )
    parser.add_argument(
        "--input",
        action="append",
        default=[],
        metavar="NAME:DATATYPE:DIMS",
        help="an input, its dimensions without the batch and -1 for one that varies. Repeated, one for each argument "
        "of the model; an exported program needs none",
    )
    parser.add_argument(
        "--output-name",
        action="append",
        default=[],
        metavar="NAME",
        help="name of an output, in their order. Default: the keys of a dictionary, or OUTPUT__0, OUTPUT__1, ...",
    )
    parser.add_argument(
        "--max-batch-size",
        type=_integer,
        default=8,
        metavar="N",
        help="most rows of a batch; 0: tensors have no batch dimension. Default: %(default)s",
    )
    parser.add_argument("--version", default="1", metavar="N|next", help="version to write. Default: %(default)s")
    parser.add_argument("--force", action="store_true", help="replace the version if it exists")
    parser.add_argument("--opset", type=_integer, default=18, metavar="N", help="opset of ONNX. Default: %(default)s")
    default = Tolerance()
    parser.add_argument(
        "--atol",
        type=float,
        default=default.absolute,
        metavar="X",
        help="how far a number may be from the original's. Default: %(default)s",
    )
    parser.add_argument(
        "--rtol",
        type=float,
        default=default.relative,
        metavar="X",
        help="the same as a part of the original's number; both are added. Default: %(default)s",
    )


def _run(arguments: dict[str, Any], parser: ArgumentParser) -> int:
    try:
        _export(arguments)
    except (KushiError, OSError) as error:
        sys.stderr.write(f"{parser.prog}: error: {error}\n")
        return 1
    return 0


def _export(flags: dict[str, Any]) -> None:
    from ..export import Input, export  # noqa: PLC0415 - native code and protobuf, which help does without

    _show_progress(export.__module__)
    directory, version = Path(flags["output"]), flags["version"]
    number = integer(version)
    if version != "next" and number is None:
        raise InvalidInput(f"--version: expected a number from 1 or next, got '{version}'")
    inputs = [Input.parse(text) for text in flags["input"]]
    written = export(
        _source(flags["source"]),
        directory,
        inputs=inputs,
        output_names=flags["output_name"],
        max_batch_size=flags["max_batch_size"],
        version="next" if number is None else number,
        force=flags["force"],
        opset=flags["opset"],
        tolerance=Tolerance(flags["atol"], flags["rtol"]),
    )
    sys.stdout.write(_summary(written, directory))


def _integer(text: str) -> int:
    number = integer(text)
    if number is None:
        raise ArgumentTypeError(f"expected an integer, got '{text}'")
    return number


def _source(text: str) -> Any:  # noqa: ANN401 - a path, or a module of a framework that need not be there
    module_name, colon, attribute = text.partition(":")
    if not colon or Path(text).exists():
        return Path(text)
    # a command has the directory of its script there instead
    sys.path.insert(0, str(Path.cwd()))
    try:
        made = import_module(module_name)
    except ModuleNotFoundError as error:
        raise InvalidInput(f"'{text}': {error}") from None
    for name in attribute.split("."):
        if not hasattr(made, name):
            raise InvalidInput(f"'{text}': '{module_name}' has no '{attribute}'")
        made = getattr(made, name)
    # a module can be called too, with its inputs
    if (callable(made) and not hasattr(made, "forward")) or isinstance(made, type):
        made = made()
    if not hasattr(made, "forward"):
        raise InvalidInput(f"'{text}' makes {type(made).__name__}, expected a torch.nn.Module")
    return made


def _show_progress(package: str) -> None:
    logger = logging.getLogger(package)
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(message)s"))
    logger.handlers[:] = [handler]
    logger.setLevel(logging.INFO)
    logger.propagate = False


def _summary(written: "Exported", directory: Path) -> str:
    sizes = ", ".join(map(str, written.batch_sizes))
    compared = f"in batches of {sizes} rows" if sizes else "without batches"
    width = max(len(name) for name in ("output", *written.differences))
    rows = [f"  {'output':<{width}}  largest difference  relative to the largest number"]
    rows += [
        f"  {name:<{width}}  {difference.absolute:<18.1e}  {difference.relative:.1e}"
        for name, difference in written.differences.items()
    ]
    return "\n".join(
        [
            f"wrote {written.path} ({written.path.stat().st_size / 1e6:.2f} MB), compared with PyTorch {compared}:",
            *rows,
            f"serve it with: kushi serve --model-repository {directory.parent}",
            "",
        ]
    )


COMMAND = Command(
    name="export",
    summary="export a PyTorch model to ONNX",
    description=_DESCRIPTION,
    epilog=_EXAMPLES,
    add_arguments=_add_arguments,
    run=_run,
    formatter=RawDescriptionHelpFormatter,
)
