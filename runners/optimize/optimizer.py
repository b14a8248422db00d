"""Makes forms, serves each by an engine, compares it, and writes one"""

import logging
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

from ..differences import are_numbers, cosine, difference, largest
from ..engine import Engine
from ..errors import ConfigInvalid, EngineFailed, InvalidInput, KushiError, Unsupported
from ..export.configuration import configuration
from ..export.onnx_weights import save
from ..export.place import Place, stage
from ..repository.config import read as read_config
from ..repository.supported_fields import ALTERNATIVES
from ..repository.tensors import TensorInfo, shape_text
from ..repository.versions import served
from ..samples import VARYING, Samples, draw, read
from ..settings import EngineOptions, LogOptions
from ..timing import median_milliseconds
from . import FORMS, ORIGINAL, Optimized, Result
from .forms import MODEL_FILES, make
from .ranges import note_on_halves

__all__ = ["optimize"]

_LOG = logging.getLogger(__name__)
_QUIET = EngineOptions(exit_on_error=False, log=LogOptions(info=False, warning=False))
_MODEL = "model"
_TIMED_SECONDS = 1.0
_BATCHED_ROWS = 8
_ONNX = "model.onnx"
_BACKENDS = {"onnxruntime_onnx": "onnxruntime"}
"""By the names of platforms"""
_FILES = {"onnxruntime": _ONNX, "openvino": MODEL_FILES["openvino"]}
"""That a backend looks for where the configuration names none"""
_EXACT = "biuO"
"""Kinds of arrays in NumPy: all others are numbers with a fraction, BF16 among them"""

_Answer = Mapping[str, NDArray[Any]]


def optimize(
    source: Path, forms: Sequence[str], *, samples: Path | None, write: str | None, place: Place | None
) -> Optimized:
    """The forms of `source`, compared; `write` goes to `place`"""
    if write and place and place.config.exists():
        _check_place(write, place)
    with tempfile.TemporaryDirectory(prefix="kushi-optimize-") as scratch:
        repository = Path(scratch)
        original = _directory(repository, ORIGINAL)
        try:
            save(onnx.load(source), original / _ONNX)
        except Exception as error:
            # whatever protocol buffers find in a file that is none
            raise InvalidInput(f"'{source}' is not an ONNX model: {error}") from error
        _LOG.info("%s: served and timed", ORIGINAL)
        with _engine(repository / ORIGINAL) as engine:
            metadata = engine.get_model_metadata(_MODEL)
            batching = int(engine.get_model_config(_MODEL)["max_batch_size"]) > 0
            asked, expected = _asked(engine, source, samples, metadata, batching=batching)
            results = [Result(ORIGINAL, size=_size(original), milliseconds=_time(engine, asked))]
        for form in forms:
            _LOG.info("%s: %s", form, FORMS[form])
            results.append(_tried(form, original / _ONNX, repository, asked, expected, batching=batching))
        path = None
        if write and place:
            chosen = next(result for result in results if result.form == write)
            if chosen.failure:
                raise Unsupported(f"'{write}' cannot be written: {chosen.failure}")
            path = _write(write, repository / write / _MODEL / "1", place, metadata, batching=batching)
    return Optimized(results, len(asked.rows), asked.drawn, path)


def _asked(
    engine: Engine, source: Path, samples: Path | None, metadata: Mapping[str, Any], *, batching: bool
) -> tuple[Samples, list[_Answer]]:
    """What the forms are asked, and what the original answers"""
    if samples:
        asked = read(samples, metadata, batching=batching)
        return asked, _answers(engine, asked)
    refusals: list[KushiError] = []
    for varying in VARYING:
        asked = draw(metadata, batching=batching, varying=varying)
        try:
            return asked, _answers(engine, asked)
        except (EngineFailed, InvalidInput) as error:
            refusals.append(error)
    raise InvalidInput(
        f"'{source}' does not answer random numbers, so give rows that it takes: --samples FILE, an .npz file with an "
        f"array for each input. It says: {refusals[-1]}"
    )


def _tried(
    form: str, source: Path, repository: Path, asked: Samples, expected: Sequence[_Answer], *, batching: bool
) -> Result:
    directory = _directory(repository, form)
    try:
        make(form, source, directory, asked.rows)
        with _engine(repository / form) as engine:
            compared = _compared(_answers(engine, asked), expected, batching=batching)
            milliseconds = _time(engine, asked)
    except KushiError as error:
        _LOG.info("%s: failed: %s", form, error)
        return Result(form, failure=str(error))
    note = note_on_halves(source, repository, asked.rows) if form == "fp16" else ""
    return Result(form, "", _size(directory), milliseconds, *compared, note)


def _directory(repository: Path, name: str) -> Path:
    """That of the version, in a repository of its own"""
    directory = repository / name / _MODEL / "1"
    directory.mkdir(parents=True)
    return directory


def _engine(repository: Path) -> Engine:
    engine = Engine(repository, options=_QUIET)
    for error in engine.failures.values():
        engine.close()
        raise error
    return engine


def _answers(engine: Engine, asked: Samples) -> list[_Answer]:
    names = [tensor["name"] for tensor in engine.get_model_metadata(_MODEL)["outputs"]]
    results = (engine.infer(_MODEL, dict(row)) for row in asked.rows)
    return [{name: np.asarray(result[name]) for name in names} for result in results]


def _time(engine: Engine, asked: Samples) -> float:
    """Milliseconds of one request"""
    row = dict(asked.rows[0])
    return median_milliseconds(lambda: engine.infer(_MODEL, row), _TIMED_SECONDS)


def _compared(
    answered: Sequence[_Answer], expected: Sequence[_Answer], *, batching: bool
) -> tuple[float, float, float | None, float | None]:
    """The largest difference, it as a part of the largest number, the least cosine, the part of rows that agree"""
    absolute = relative = 0.0
    cosines: list[float] = []
    agreements: list[bool] = []
    whole = {name: max(_largest(answer[name]) for answer in expected) for name in expected[0]}
    for answer, wanted in zip(answered, expected, strict=True):
        agreeing: list[bool] = []
        for name, original in wanted.items():
            got = answer[name]
            if got.shape != original.shape:
                shape, wanted_shape = shape_text(got.shape), shape_text(original.shape)
                raise ConfigInvalid(f"output '{name}' has the shape {shape}, the original's {wanted_shape}")
            found = difference(got, original).absolute if are_numbers(original) else 0.0
            absolute = max(absolute, found)
            relative = max(relative, found / whole[name] if whole[name] and found else found)
            if original.dtype.kind in _EXACT:
                agreeing.append(bool(np.array_equal(got, original)))
                continue
            cosines.append(cosine(got, original))
            if original.ndim == 1 + batching and original.shape[-1] > 1:
                agreeing.append(bool(np.array_equal(got.argmax(axis=-1), original.argmax(axis=-1))))
        agreements += [all(agreeing)] if agreeing else []
    agreement = sum(agreements) / len(agreements) if agreements else None
    return absolute, relative, min(cosines, default=None), agreement


def _largest(array: NDArray[Any]) -> float:
    return largest(array) if are_numbers(array) else 0.0


def _size(directory: Path) -> int:
    return sum(path.stat().st_size for path in directory.iterdir())


def _backend(form: str) -> str:
    return "openvino" if form == "openvino" else "onnxruntime"


def _check_place(form: str, place: Place) -> None:
    """What its configuration says of the form, before any is made"""
    stated = read_config(place.config)
    backend = stated.backend or _BACKENDS.get(stated.platform, stated.platform)
    file, asked = MODEL_FILES.get(form, _ONNX), stated.default_model_filename or _FILES.get(backend, "")
    # its other forms may take it
    if asked and asked != file and ALTERNATIVES not in stated.parameters:
        raise ConfigInvalid(
            f"'{place.config}' is of a model whose file is '{asked}', and the form '{form}' is '{file}': write it as "
            "another model"
        )
    if stated.HasField("version_policy") and not served(stated, (place.version,)):
        raise ConfigInvalid(f"the 'version_policy' of '{place.config}' has no version {place.version}: add it there")


def _write(form: str, made: Path, place: Place, metadata: Mapping[str, Any], *, batching: bool) -> Path:
    """The form as a version of a model, which an engine has loaded by the configuration that it has there"""
    with stage(place) as staged:
        for path in made.iterdir():
            # a repository may be on another file system than temporary files
            shutil.move(path, staged.files / path.name)
        if not staged.config.exists():
            tensors = ([_info(tensor) for tensor in metadata[role]] for role in ("inputs", "outputs"))
            most = _BATCHED_ROWS if batching else 0
            staged.config.write_text(
                configuration(place.directory.name, most, *tensors, backend=_backend(form)), "utf-8"
            )
        try:
            _engine(staged.directory.parent).close()
        except KushiError as error:
            said = str(error).replace(str(staged.directory), str(place.directory))
            raise ConfigInvalid(
                f"the form '{form}' does not fit '{place.config}', nothing was written: {said}"
            ) from error
    return place.files / MODEL_FILES.get(form, _ONNX)


def _info(tensor: Mapping[str, Any]) -> TensorInfo:
    return TensorInfo(tensor["name"], tensor["datatype"], tuple(int(dim) for dim in tensor["shape"]))
