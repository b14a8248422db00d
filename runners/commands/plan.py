"""kushi export --to tensorrt, and tensorrt-rtx: flags, which exports have them, and what is printed"""

from argparse import ArgumentParser, BooleanOptionalAction
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import InvalidInput
from ..integers import integer
from ..tolerance import Tolerance
from .progress import show_progress

if TYPE_CHECKING:
    from ..plans import Recipe, Written, WrittenForRtx

__all__ = ["add_plan_arguments", "check_flags", "write_plan", "write_rtx_plan"]

_MEBIBYTE = 1 << 20
_NOT_RTX = "is not for --to tensorrt-rtx:"
_NOT_COMPARED = f"{_NOT_RTX} nothing here executes such a plan, so it is not compared"
_IS_FILE = f"{_NOT_RTX} --output is the file of the plan"
_OF_PLANS, _OF_TENSORRT = "is for --to tensorrt and tensorrt-rtx", "is for --to tensorrt"
_OF_PYTORCH = "is for a PyTorch model: SOURCE is an ONNX file already"
_REFUSED = {
    "onnx": {
        "compute_capabilities": "is for --to tensorrt-rtx",
        "gpu": _OF_TENSORRT,
        "hardware_compatible": _OF_TENSORRT,
        "max": _OF_PLANS,
        "min": _OF_PLANS,
        "opt": _OF_PLANS,
        "optimization_level": _OF_PLANS,
        "precision": _OF_PLANS,
        "samples": _OF_TENSORRT,
        "tf32": _OF_PLANS,
        "timing_cache": _OF_TENSORRT,
        "version_compatible": _OF_TENSORRT,
        "with_onnx": _OF_TENSORRT,
        "workspace": _OF_PLANS,
    },
    "tensorrt": {"compute_capabilities": "is for --to tensorrt-rtx: other plans are for the GPU that is here"},
    "tensorrt-rtx": {
        "gpu": f"{_NOT_RTX} no GPU is needed",
        "hardware_compatible": f"{_NOT_RTX} it is for all GPUs from Ampere on, or those of --compute-capabilities",
        "samples": _NOT_COMPARED,
        "timing_cache": f"{_NOT_RTX} nothing is measured",
        "version": _IS_FILE,
        "version_compatible": f"{_NOT_RTX} a plan is for one version",
        "with_onnx": _IS_FILE,
    },
    # beside those above, of a plan that is built of an ONNX file
    "tensorrt of ONNX": {"input": _OF_PYTORCH, "opset": _OF_PYTORCH, "output_name": _OF_PYTORCH},
    "tensorrt-rtx of ONNX": {
        # a PyTorch model is compared with its ONNX one
        "atol": _NOT_COMPARED,
        "input": _OF_PYTORCH,
        "opset": _OF_PYTORCH,
        "output_name": _OF_PYTORCH,
        "rtol": _NOT_COMPARED,
    },
}
"""By what is written, the flags that would do nothing, and why"""
_SPELLED = {"tf32": "no-tf32"}


def add_plan_arguments(parser: ArgumentParser) -> None:
    """In a group of their own"""
    group = parser.add_argument_group("with --to tensorrt, and tensorrt-rtx where it has them")
    for what, meaning in (("min", "smallest"), ("opt", "most frequent"), ("max", "largest")):
        group.add_argument(
            f"--{what}",
            default="",
            metavar="SHAPES",
            help=f"the {meaning} shapes of inputs with dimensions of any size, the batch among them, as "
            "image:1x3x224x224,mask:1x8; of a shape tensor its values. Default: 1 and --max-batch-size rows",
        )
    group.add_argument(
        "--precision", default="fp32", metavar="P", help="fp32 (the numbers of the file) or fp16. Default: %(default)s"
    )
    group.add_argument("--samples", metavar="FILE", help="an .npz file with rows for all inputs, to compare with")
    group.add_argument(
        "--timing-cache", metavar="FILE", help="what builds have measured, read and written. Default: it is not kept"
    )
    group.add_argument("--gpu", type=int, default=0, metavar="N", help="the GPU to build on. Default: %(default)s")
    group.add_argument("--workspace", type=int, metavar="MIB", help="most memory for one layer. Default: all there is")
    group.add_argument("--optimization-level", type=int, metavar="0-5", help="how long to look for fast kernels")
    group.add_argument(
        "--version-compatible", action="store_true", help="for later versions of TensorRT 10, with its runtime inside"
    )
    group.add_argument(
        "--hardware-compatible", action="store_true", help="for any GPU from Ampere on, and somewhat slower"
    )
    group.add_argument(
        "--tf32", action=BooleanOptionalAction, default=True, help="products of fp32 with ten bits. Default: yes"
    )
    group.add_argument("--with-onnx", action="store_true", help="put the ONNX file that it is built of beside the plan")
    group.add_argument(
        "--compute-capabilities",
        default="",
        metavar="CC,...",
        help="with tensorrt-rtx: the GPUs that it is for, as 8.6,8.9. Default: all from Ampere on",
    )


def write_plan(source: Path, flags: dict[str, Any], tolerance: Tolerance | None) -> str:
    """What is printed about it"""
    from ..plans import export_plan  # noqa: PLC0415 - protobuf, which help does without

    show_progress(export_plan.__module__)
    recipe = _recipe(flags)
    directory = Path(flags["output"])
    number = integer(flags["version"])
    if flags["version"] != "next" and number is None:
        raise InvalidInput(f"--version: expected a number from 1 or next, got '{flags['version']}'")
    written = export_plan(
        source,
        directory,
        recipe,
        precision=flags["precision"],
        samples=flags["samples"],
        tolerance=tolerance,
        timing_cache=flags["timing_cache"],
        with_onnx=flags["with_onnx"],
        gpu=flags["gpu"],
        version="next" if number is None else number,
        force=flags["force"],
    )
    return _summary(written, directory, version_compatible=recipe.version_compatible)


def check_flags(stated: AbstractSet[str], to: str, *, of_onnx: bool) -> None:
    """Refuses those without effect"""
    refused = {**_REFUSED[to], **(_REFUSED.get(f"{to} of ONNX", {}) if of_onnx else {})}
    for name in sorted(stated & set(refused)):
        raise InvalidInput(f"--{_SPELLED.get(name, name.replace('_', '-'))} {refused[name]}")


def write_rtx_plan(source: Path, flags: dict[str, Any]) -> str:
    """What is printed about it"""
    from ..plans import export_rtx_plan  # noqa: PLC0415 - protobuf, which help does without

    show_progress(export_rtx_plan.__module__)
    written = export_rtx_plan(
        source,
        flags["output"],
        _recipe(flags),
        precision=flags["precision"],
        compute_capabilities=[part.strip() for part in flags["compute_capabilities"].split(",") if part.strip()],
        force=flags["force"],
    )
    return _rtx_summary(written)


def _recipe(flags: dict[str, Any]) -> "Recipe":
    from ..backends.tensorrt.shapes import read_shapes  # noqa: PLC0415 - protobuf, which help does without
    from ..plans import Recipe  # noqa: PLC0415 - as above

    most = flags["max_batch_size"]
    if flags["optimization_level"] not in {None, *range(6)}:
        raise InvalidInput(f"--optimization-level: expected a number from 0 to 5, got {flags['optimization_level']}")
    return Recipe(
        least=read_shapes(flags["min"], "--min"),
        best=read_shapes(flags["opt"], "--opt"),
        most=read_shapes(flags["max"], "--max"),
        batch=(1, most, most) if most > 0 else None,
        version_compatible=flags["version_compatible"],
        hardware_compatible=flags["hardware_compatible"],
        optimization_level=flags["optimization_level"],
        workspace_bytes=flags["workspace"] and flags["workspace"] * _MEBIBYTE,
        tf32=flags["tf32"],
    )


def _rtx_summary(written: "WrittenForRtx") -> str:
    size = f"{written.size_bytes / 1e6:.2f} MB"
    return "\n".join(
        [
            f"wrote {written.path} ({size}), built in {written.build_seconds:.0f} s",
            f"it is for TensorRT-RTX {written.version} alone, and was not compared: nothing here executes it",
            "kushi serve does not serve it: --to tensorrt builds a plan that it serves",
            "",
        ]
    )


def _summary(written: "Written", directory: Path, *, version_compatible: bool) -> str:
    width = max(len(name) for name in ("output", *written.differences))
    what = "random numbers: give --samples to know the accuracy" if written.drawn else "the samples"
    faster = written.original_p50_milliseconds / written.p50_milliseconds
    rows = [f"  {'output':<{width}}  largest difference  relative to the largest number"]
    rows += [
        f"  {name:<{width}}  {difference.absolute:<18.1e}  {difference.relative:.1e}"
        for name, difference in written.differences.items()
    ]
    size = f"{written.size_bytes / 1e6:.2f} MB, {written.layers} layers"
    request = f"a request with {written.rows} {'row' if written.rows == 1 else 'rows'}" if written.rows else "a request"
    runs_code = " --backend-config=tensorrt,version-compatible=true" if version_compatible else ""
    took = f"{written.p50_milliseconds:.3f} ms (p99 {written.p99_milliseconds:.3f} ms)"
    return "\n".join(
        [
            f"wrote {written.path} ({size}), built in {written.build_seconds:.0f} s",
            f"{request} takes {took}, {faster:.1f} times as fast as ONNX Runtime as it is installed here",
            f"compared with ONNX Runtime on {what}:",
            *rows,
            f"serve it with: kushi serve --model-repository {directory.parent}{runs_code}",
            "",
        ]
    )
