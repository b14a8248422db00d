"""kushi export: its flags, and what is printed"""

import sys
from argparse import ArgumentParser, ArgumentTypeError, RawDescriptionHelpFormatter
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from ..errors import InvalidInput, KushiError
from ..integers import integer
from ..tolerance import Tolerance
from .command import Command
from .plan import add_plan_arguments, check_flags, write_plan, write_rtx_plan
from .progress import show_progress
from .source import existing, is_code, source_of

if TYPE_CHECKING:
    from ..export import Exported

__all__ = ["COMMAND"]

_DESCRIPTION = """\
Exports a PyTorch model to ONNX, compares what an engine answers with what PyTorch answers, and
writes DIR/VERSION/model.onnx and DIR/config.pbtxt. The first dimension of every input and output
is the batch, of any size. Where something fails, nothing is written.

With --to tensorrt it builds a plan of TensorRT of an ONNX file, or of a PyTorch model through ONNX,
on the GPU that is here and for it, and compares that with ONNX Runtime. With --to tensorrt-rtx it
builds one of TensorRT for RTX, which is written to a file and not served here.
"""
_EXAMPLES = """\
examples:
  kushi export model.pt --output model_repository/resnet --input image:FP32:3,224,224
  kushi export model.pt2 --output model_repository/resnet --version next
  kushi export my_package.models:resnet --output model_repository/resnet \\
      --input image:FP32:3,224,224 --output-name logits --max-batch-size 64
  kushi export model.onnx --to tensorrt --output model_repository/resnet --precision fp16 \\
      --min image:1x3x224x224 --opt image:8x3x224x224 --max image:32x3x224x224
  kushi export model.onnx --to tensorrt-rtx --output resnet.plan --compute-capabilities 8.6,8.9

A program calls kushi.export.export, which takes examples as inputs instead of random numbers.
SOURCE in the form MODULE:CALLABLE runs that code; the files do not run any.
"""


def _add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "source",
        metavar="SOURCE",
        help="a TorchScript file, an exported program (torch.export.save), or MODULE:CALLABLE that makes a module; "
        "for a plan an ONNX file, too",
    )
    parser.add_argument(
        "--to",
        default="onnx",
        choices=("onnx", "tensorrt", "tensorrt-rtx"),
        help="what is written. Default: %(default)s",
    )
    parser.add_argument(
        "--output",
        required=True,
        metavar="DIR",
        help="directory of the model; its name is the name of the model. With tensorrt-rtx the file of the plan",
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
        metavar="X",
        help=f"how far a number may be from the original's. Default: {default.absolute}, with fp16 0.01",
    )
    parser.add_argument(
        "--rtol",
        type=float,
        metavar="X",
        help=f"the same as a part of the original's number, both are added. Default: {default.relative}, fp16 0.01",
    )
    add_plan_arguments(parser)


def _run(arguments: dict[str, Any], parser: ArgumentParser) -> int:
    try:
        stated = {name for name, value in arguments.items() if value != parser.get_default(name)}
        check_flags(stated, arguments["to"], of_onnx=_is_onnx(arguments))
        if arguments["to"] == "tensorrt":
            sys.stdout.write(_export_plan(arguments))
        elif arguments["to"] == "tensorrt-rtx":
            sys.stdout.write(_of_onnx(arguments, lambda source: write_rtx_plan(source, arguments)))
        else:
            if _is_onnx(arguments):
                raise InvalidInput(
                    f"'{arguments['source']}' is an ONNX file: --to tensorrt makes a plan of it, and 'kushi optimize' "
                    "its other forms"
                )
            sys.stdout.write(_export(arguments, Path(arguments["output"])))
    except (KushiError, OSError) as error:
        sys.stderr.write(f"{parser.prog}: error: {error}\n")
        return 1
    return 0


def _export_plan(flags: dict[str, Any]) -> str:
    stated = flags["atol"] is not None or flags["rtol"] is not None
    tolerance = _tolerance(flags) if stated else None
    return _of_onnx(flags, lambda source: write_plan(source, flags, tolerance))


def _is_onnx(flags: dict[str, Any]) -> bool:
    return str(flags["source"]).endswith(".onnx")


def _of_onnx(flags: dict[str, Any], write: Callable[[Path], str]) -> str:
    """Of an ONNX file, or of what becomes one first"""
    if _is_onnx(flags):
        return write(existing(flags["source"]))
    with TemporaryDirectory(prefix="kushi-export-") as scratch:
        directory = Path(scratch) / "model"
        _export({**flags, "version": "1"}, directory)
        return write(directory / "1" / "model.onnx")


def _tolerance(flags: dict[str, Any]) -> Tolerance:
    default = Tolerance()
    absolute, relative = flags["atol"], flags["rtol"]
    return Tolerance(
        default.absolute if absolute is None else absolute, default.relative if relative is None else relative
    )


def _export(flags: dict[str, Any], directory: Path) -> str:
    if not is_code(flags["source"]):
        # before what is missing here; code is run when all else is known to be right
        existing(flags["source"])
    from ..export import Input, export  # noqa: PLC0415 - native code and protobuf, which help does without

    show_progress(export.__module__)
    version = flags["version"]
    number = integer(version)
    if version != "next" and number is None:
        raise InvalidInput(f"--version: expected a number from 1 or next, got '{version}'")
    inputs = [Input.parse(text) for text in flags["input"]]
    written = export(
        source_of(flags["source"]),
        directory,
        inputs=inputs,
        output_names=flags["output_name"],
        max_batch_size=flags["max_batch_size"],
        version="next" if number is None else number,
        force=flags["force"],
        opset=flags["opset"],
        tolerance=_tolerance(flags),
    )
    return _summary(written, directory)


def _integer(text: str) -> int:
    number = integer(text)
    if number is None:
        raise ArgumentTypeError(f"expected an integer, got '{text}'")
    return number


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
    summary="export a PyTorch model to ONNX, or a model to a plan of TensorRT",
    description=_DESCRIPTION,
    epilog=_EXAMPLES,
    add_arguments=_add_arguments,
    run=_run,
    formatter=RawDescriptionHelpFormatter,
)
