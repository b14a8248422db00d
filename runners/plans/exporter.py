"""Builds a plan, serves it and the ONNX file beside one another, and writes it where both answer the same"""

import logging
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..backends.tensorrt.building import build
from ..backends.tensorrt.cuda import gpu
from ..backends.tensorrt.details import details_of
from ..backends.tensorrt.kept import files_of
from ..backends.tensorrt.library import load_plugins
from ..backends.tensorrt.recipe import Recipe
from ..backends.tensorrt.shapes import shapes_text
from ..backends.tensorrt.writing import memory_of, write_file
from ..differences import close, difference
from ..engine import Engine
from ..errors import ConfigInvalid, EngineFailed
from ..export.configuration import configuration
from ..export.place import Place, stage
from ..repository.tensors import TensorInfo
from ..samples import Samples, read
from ..settings import EngineOptions, LogOptions
from ..tolerance import Difference, Tolerance
from . import Written
from .drawn import check_rows, drawn_for, least_rows
from .halves import halved
from .inspection import layer_names

__all__ = ["export_plan"]

_LOG = logging.getLogger(__name__)
_QUIET = EngineOptions(exit_on_error=False, log=LogOptions(info=False, warning=False))
_ORIGINAL = "model"
_TIMED_SECONDS = 2.0
_LEAST_RUNS, _MOST_RUNS = 20, 1000

_Answer = Mapping[str, NDArray[Any]]


@dataclass(frozen=True)
class _Served:
    """What a form of the model answers, and how long that takes"""

    answers: Sequence[_Answer]
    seconds: Sequence[float]


def export_plan(
    source: Path,
    place: Place,
    recipe: Recipe,
    *,
    halves: bool,
    samples: Path | None,
    tolerance: Tolerance,
    timing_cache: Path | None,
    with_onnx: bool,
    gpu_number: int,
) -> Written:
    """What is written, and what was found out about it"""
    if samples:
        check_rows(samples, recipe)
    owner = gpu(gpu_number)
    owner.enter()
    load_plugins("")
    with tempfile.TemporaryDirectory(prefix="kushi-plan-") as scratch, stage(place) as staged:
        built_of = halved(source, Path(scratch)) if halves else source
        _LOG.info("building a plan for %s, compute capability %s", owner.name, owner.compute_capability)
        built = build(built_of, recipe, timing_cache=timing_cache, progress=_LOG.info)
        path = staged.files / "model.plan"
        write_file(path, memory_of(built.plan))
        _LOG.info("built in %.0f s; it is served and compared with ONNX Runtime", built.seconds)
        details = details_of(path, gpu_number, runs_code_of_plans=recipe.version_compatible)
        name = staged.directory.name
        stated = staged.config.exists()
        if not stated:
            # on this GPU alone; what is written leaves that open
            staged.config.write_text(f'backend: "tensorrt" instance_group {{ kind: KIND_GPU gpus: {gpu_number} }}')
        with _engine(staged.directory.parent, runs_code_of_plans=recipe.version_compatible) as engine:
            config = engine.get_model_config(name)
            metadata = engine.get_model_metadata(name)
            rows = least_rows(details.plan) if int(config["max_batch_size"]) > 0 else 0
            batching, together = rows > 0, max(rows, 1)
            asked = (
                read(samples, metadata, batching=batching, rows=together)
                if samples
                else drawn_for(recipe, config, metadata, batching=batching, rows=together)
            )
            answered = _serve(engine, name, asked)
        original = _original(source, Path(scratch), asked, rows)
        differences = _compare(answered.answers, original.answers, tolerance)
        if not stated:
            parameters = _shape_parameters(recipe) if with_onnx else {}
            staged.config.write_text(_text(place.directory.name, config, metadata, parameters), "utf-8")
        if with_onnx:
            _put_beside(built_of, staged.files)
        return Written(
            path=place.files / path.name,
            size_bytes=path.stat().st_size,
            build_seconds=built.seconds,
            p50_milliseconds=_percentile(answered, 50),
            p99_milliseconds=_percentile(answered, 99),
            original_p50_milliseconds=_percentile(original, 50),
            rows=rows,
            layers=len(layer_names(details.layers)),
            differences=differences,
            drawn=asked.drawn,
        )


def _original(source: Path, scratch: Path, asked: Samples, rows: int) -> _Served:
    """What ONNX Runtime answers to the same"""
    directory = scratch / "original" / _ORIGINAL
    for target, path in _files(source, directory / "1"):
        target.symlink_to(path.absolute())
    if rows:
        # one that is completed takes no more than a few
        (directory / "config.pbtxt").write_text(f'backend: "onnxruntime" max_batch_size: {rows}')
    with _engine(scratch / "original") as engine:
        return _serve(engine, _ORIGINAL, asked)


def _put_beside(source: Path, directory: Path) -> None:
    """The ONNX file, under the name that it is found by, and its weights under theirs"""
    for target, path in _files(source, directory):
        shutil.copyfile(path, target)


def _files(source: Path, directory: Path) -> Iterator[tuple[Path, Path]]:
    """Each that does not exist yet below `directory`, and what it is made of"""
    for name, path in files_of(source).items():
        target = directory / ("model.onnx" if path == source else name)
        target.parent.mkdir(parents=True, exist_ok=True)
        if not target.exists():
            yield target, path


def _engine(repository: Path, *, runs_code_of_plans: bool = False) -> Engine:
    # a plan for later versions carries code, which this version runs, too
    settings = {"tensorrt": {"version-compatible": "true"}} if runs_code_of_plans else {}
    engine = Engine(repository, options=replace(_QUIET, backend_config=settings))
    for error in engine.failures.values():
        engine.close()
        raise error
    return engine


def _serve(engine: Engine, model: str, asked: Samples) -> _Served:
    names = [tensor["name"] for tensor in engine.get_model_metadata(model)["outputs"]]
    answers = [
        {name: np.asarray(result[name]) for name in names}
        for result in (engine.infer(model, dict(row)) for row in asked.rows)
    ]
    seconds: list[float] = []
    row, begun = dict(asked.rows[0]), time.perf_counter()
    while len(seconds) < _LEAST_RUNS or (time.perf_counter() - begun < _TIMED_SECONDS and len(seconds) < _MOST_RUNS):
        started = time.perf_counter()
        engine.infer(model, row)
        seconds.append(time.perf_counter() - started)
    return _Served(answers, seconds)


def _percentile(served: _Served, percent: int) -> float:
    return float(np.percentile(served.seconds, percent)) * 1e3


def _compare(answered: Sequence[_Answer], expected: Sequence[_Answer], tolerance: Tolerance) -> dict[str, Difference]:
    """Each number within absolute + relative × the original's, as polygraphy compares; raises where one is not"""
    differences = {}
    for name in expected[0]:
        if name not in answered[0]:
            raise ConfigInvalid(f"the plan has no output '{name}': nothing was written")
        differences[name] = Difference(0.0, 0.0)
        for got, wanted in ((one[name], two[name]) for one, two in zip(answered, expected, strict=True)):
            differences[name] |= _difference(name, got, wanted, tolerance)
    return differences


def _difference(name: str, got: NDArray[Any], wanted: NDArray[Any], tolerance: Tolerance) -> Difference:
    if got.shape != wanted.shape:
        raise EngineFailed(
            f"output '{name}' of the plan has the shape {got.shape}, ONNX Runtime's {wanted.shape}: nothing was written"
        )
    found = difference(got, wanted)
    if not close(got, wanted, tolerance):
        raise EngineFailed(
            f"output '{name}' of the plan differs from ONNX Runtime's by up to {found.absolute:.1e} "
            f"({found.relative:.1e} of its largest number), expected at most {tolerance.absolute:g} + "
            f"{tolerance.relative:g} × the original: nothing was written. Where such a difference is no harm, --atol "
            "and --rtol allow it"
        )
    return found


def _shape_parameters(recipe: Recipe) -> dict[str, str]:
    """Where the recipe states shapes: what a plan is built with that is built where the model is served"""
    stated = (("min", recipe.least), ("opt", recipe.best), ("max", recipe.most))
    return {f"kushi.{what}_shapes": shapes_text(shapes) for what, shapes in stated if shapes}


def _text(name: str, config: Mapping[str, Any], metadata: Mapping[str, Any], parameters: Mapping[str, str]) -> str:
    inputs, outputs = (
        [TensorInfo(tensor["name"], tensor["datatype"], tuple(map(int, tensor["shape"]))) for tensor in metadata[role]]
        for role in ("inputs", "outputs")
    )
    return configuration(
        name, int(config["max_batch_size"]), inputs, outputs, backend="tensorrt", parameters=parameters
    )
