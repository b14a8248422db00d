"""
Plans of TensorRT: built of an ONNX model, held against it and put into a repository; and what is inside of one. Those
of TensorRT for RTX are built and looked into alone.

    from kushi.plans import export_plan, export_rtx_plan, inspect_plan

    export_plan("model.onnx", "model_repository/resnet", most={"image": (8, 3, 224, 224)}, best=..., least=...)

TensorRT is imported when it is needed. A plan is for the version of TensorRT and the kind of GPU it was built with.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from ..backends.onnxruntime.library import runtime_library
from ..backends.tensorrt.recipe import Recipe
from ..errors import InvalidInput, Unsupported
from ..export.place import choose
from ..tolerance import Difference, Tolerance

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = [
    "PRECISIONS",
    "Difference",
    "Inspected",
    "Recipe",
    "Tolerance",
    "Written",
    "WrittenForRtx",
    "export_plan",
    "export_rtx_plan",
    "inspect_plan",
]

PRECISIONS = ("fp32", "fp16")
"""fp32 leaves the numbers of the file as they are, whatever they are"""


@dataclass(frozen=True)
class Written:
    """A plan in its place"""

    path: Path
    size_bytes: int
    build_seconds: float
    p50_milliseconds: float
    p99_milliseconds: float
    """Of one request with `rows` rows, in the process of the engine"""
    original_p50_milliseconds: float
    """The same with ONNX Runtime, as it is installed"""
    rows: int
    """As few as the plan takes; 0 where there are no batches"""
    layers: int
    differences: Mapping[str, Difference]
    drawn: bool
    """Random numbers were compared"""


@dataclass(frozen=True)
class WrittenForRtx:
    """A plan of TensorRT for RTX, which was not compared with anything: nothing here executes it"""

    path: Path
    size_bytes: int
    build_seconds: float
    version: str
    """Of TensorRT-RTX, and no other one opens the plan"""


@dataclass(frozen=True)
class Inspected:
    """What is inside of a plan"""

    written_by: str
    is_rtx: bool
    """Of TensorRT for RTX: it cannot be served here"""
    tensors: Sequence[Mapping[str, Any]]
    """Each with its name, role, datatype, shape, and for inputs min, opt and max of each profile"""
    profiles: int
    layers: Sequence[str]
    memory_bytes: int
    """Of the GPU, for what one context computes"""
    why_closed: str
    """Why it cannot be opened here; there is no more than `written_by` then"""


def export_plan(
    source: str | Path,
    directory: str | Path,
    recipe: Recipe | None = None,
    *,
    precision: str = "fp32",
    samples: str | Path | None = None,
    tolerance: Tolerance | None = None,
    timing_cache: str | Path | None = None,
    with_onnx: bool = False,
    gpu: int = 0,
    version: int | Literal["next"] = 1,
    force: bool = False,
) -> Written:
    """
    Builds a plan of an ONNX file, on this GPU and for it, and writes `directory`/VERSION/model.plan, and
    `directory`/config.pbtxt where there is none. Where it differs from ONNX Runtime, nothing is written.

    precision: fp16 converts the file first; its inputs and outputs stay as they are.
    samples: an .npz file with an array for each input, its rows along the first dimension; random numbers otherwise.
    Requests have as many rows as the plan takes at least.
    timing_cache: what builds have measured, which is read and written: the next build takes less long.
    with_onnx: puts the ONNX file that the plan was built of beside it, with its weights, so that one for another GPU or
    version can be built where it serves. A configuration that is written says the shapes for that.
    """
    path = _source(source, precision)
    place = choose(Path(directory), version, force=force)
    runtime_library()
    exporter = _needs(".exporter", "TensorRT", "kushi[tensorrt]")
    written: Written = exporter.export_plan(
        path,
        place,
        recipe or Recipe(),
        halves=precision == "fp16",
        samples=Path(samples) if samples else None,
        tolerance=tolerance or (Tolerance(1e-2, 1e-2) if precision == "fp16" else Tolerance()),
        timing_cache=Path(timing_cache) if timing_cache else None,
        with_onnx=with_onnx,
        gpu_number=gpu,
    )
    return written


def export_rtx_plan(
    source: str | Path,
    target: str | Path,
    recipe: Recipe | None = None,
    *,
    precision: str = "fp32",
    compute_capabilities: Sequence[str] = (),
    force: bool = False,
) -> WrittenForRtx:
    """
    Builds a plan of TensorRT for RTX of an ONNX file, and writes it to the file `target`. No GPU is needed. The plan is
    not compared with the model.

    recipe: its compatibility with other versions and GPUs is TensorRT's own, which this one does not have.
    compute_capabilities: of the GPUs that it is for, as ("8.6", "8.9"); all from Ampere on where there are none.
    """
    path, plan = _source(source, precision), Path(target)
    recipe = recipe or Recipe()
    if recipe.version_compatible or recipe.hardware_compatible:
        raise Unsupported(
            "TensorRT for RTX has plans for one version alone, and for all GPUs from Ampere on without being asked"
        )
    if plan.is_dir():
        raise InvalidInput(f"'{plan}' is a directory, expected the file that is written, as '{plan / 'model.plan'}'")
    if plan.exists() and not force:
        raise InvalidInput(f"'{plan}' exists: --force replaces it")
    exporter = _needs(".rtx.exporter", "TensorRT for RTX", "kushi[tensorrt-rtx]")
    written: WrittenForRtx = exporter.export_rtx_plan(
        path, plan, recipe, halves=precision == "fp16", capabilities=compute_capabilities
    )
    return written


def inspect_plan(path: str | Path, *, gpu: int = 0) -> Inspected:
    """What is inside of a plan; without TensorRT, or where it does not open the file, who wrote it"""
    found: Inspected = import_module(".inspection", __package__).inspect_plan(Path(path), gpu)
    return found


def _source(source: str | Path, precision: str) -> Path:
    path = Path(source)
    if not path.is_file():
        raise InvalidInput(f"'{path}' is not a file, expected an ONNX model")
    if precision not in PRECISIONS:
        raise InvalidInput(f"precision '{precision}' is not known, expected {' or '.join(PRECISIONS)}")
    return path


def _needs(module: str, what: str, extra: str) -> Any:  # noqa: ANN401 - a module
    try:
        return import_module(module, __package__)
    except ImportError as error:
        raise Unsupported(f"building a plan needs {what} and its builder: {error}: pip install '{extra}'") from error
