"""Where models lie: <repository>/<model>/[config.pbtxt]/<version>/<model file>, or one bare model file"""

import logging
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from ..errors import ConfigInvalid
from .messages import ModelConfig

__all__ = ["BARE_SUFFIXES", "ModelSource", "Scan", "check_model_name", "find", "model_file", "scan"]

_LOG = logging.getLogger(__name__)
_VERSION = re.compile(r"[1-9][0-9]{0,18}", re.ASCII)
_LARGEST_VERSION = 2**63 - 1
_MODEL_SUFFIXES = frozenset({".onnx", ".ort", ".pt", ".pt2"})
BARE_SUFFIXES = (".onnx", ".ort")
"""Of the files that say all of a model that a configuration would"""
_NOT_VERSIONS = frozenset({"configs", "initial_state", "warmup"})


@dataclass(frozen=True)
class ModelSource:
    """One model as it lies on disk; nothing of it has been opened yet"""

    name: str
    path: Path
    versions: Mapping[int, Path]
    config_file: Path | None = None
    config: ModelConfig = field(default_factory=ModelConfig)

    @property
    def stated_in(self) -> Path:
        """The file, or where there is none the directory, that errors about the configuration name"""
        return self.config_file or self.path


@dataclass(frozen=True)
class Scan:
    """What the repositories hold: models, and the names that cannot be served with the reason"""

    models: tuple[ModelSource, ...]
    refused: Mapping[str, str]


def check_model_name(name: str) -> None:
    """Refuses the names that Triton refuses"""
    trimmed = name.strip()
    if not trimmed:
        raise ConfigInvalid("Model name cannot be empty. Please enter a valid name to deploy.")
    if trimmed == ".." or "/" in trimmed:
        raise ConfigInvalid(
            f"invalid model name '{name}', model name must not contain path traversal characters", model=name
        )
    if not name.isprintable():
        raise ConfigInvalid(f"invalid model name {name!a}, expected printable UTF-8 text", model=name)


def scan(paths: Iterable[Path]) -> Scan:
    """All models of all repositories; a path to a model file is a repository of that one model"""
    found: dict[str, list[ModelSource]] = {}
    refused: dict[str, str] = {}
    for path in dict.fromkeys(paths):
        for model in _read(path):
            try:
                check_model_name(model.name)
            except ConfigInvalid as error:
                refused[ascii(model.name)[1:-1]] = str(error)
            else:
                found.setdefault(model.name, []).append(model)
    for name, models in found.items():
        if len(models) > 1:
            refused[name] = _ambiguous(models)
    return Scan(tuple(models[0] for name, models in sorted(found.items()) if name not in refused), refused)


def find(paths: Iterable[Path], name: str) -> ModelSource | None:
    """The model `name` as `scan` would find it, without a look at the others"""
    models = [model for path in dict.fromkeys(paths) for model in _named(path, name)]
    if len(models) > 1:
        raise ConfigInvalid(_ambiguous(models))
    return models[0] if models else None


def model_file(version_directory: Path, name: str) -> Path:
    """The file `name` of a version; a directory of that name holds the model as model.onnx beside its data"""
    parts = PurePosixPath(name).parts
    if not parts or name.startswith("/") or ".." in parts or "\0" in name:
        raise ConfigInvalid(f"default_model_filename '{name}' must be a path inside the version directory")
    path = version_directory / name
    if path.is_dir():
        path /= "model.onnx"
    if not path.is_file():
        raise ConfigInvalid(f"unable to find '{path}'")
    return path


def _read(path: Path) -> list[ModelSource]:
    try:
        if path.is_dir():
            return _models(path)
        if path.exists():
            return [_bare(path)]
    except OSError as error:
        raise ConfigInvalid(f"'{error.filename}' cannot be read: {error.strerror}") from None
    kind = "model file" if path.suffix in BARE_SUFFIXES else "model repository"
    raise ConfigInvalid(f"{kind} '{path}' not found: expected a directory of models, or an *.onnx or *.ort file")


def _bare(path: Path) -> ModelSource:
    if path.suffix not in BARE_SUFFIXES or not path.is_file():
        raise ConfigInvalid(
            f"'{path}' is neither a model repository nor a model file: expected a directory, *.onnx or *.ort"
        )
    path = path.absolute()
    config = ModelConfig(name=path.stem, backend="onnxruntime", default_model_filename=path.name)
    return ModelSource(path.stem, path, {1: path.parent}, config=config)


def _models(repository: Path) -> list[ModelSource]:
    if _is_model(repository):
        parent = repository.resolve().parent if repository.name in {"", ".."} else repository.parent
        raise ConfigInvalid(f"'{repository}' looks like a model, expected its model repository: '{parent}'")
    paths = sorted(repository.iterdir())
    models = [_model(path) for path in paths if path.is_dir() and not path.name.startswith(".")]
    if not models:
        _LOG.warning("no model found in '%s', expected directories as in MODEL/1/model.onnx", repository)
    return models


def _model(path: Path) -> ModelSource:
    config = path / "config.pbtxt"
    return ModelSource(path.name, path, _versions(path), config if config.exists() else None)


def _named(path: Path, name: str) -> list[ModelSource]:
    if path.is_file():
        return [_bare(path)] if path.stem == name else []
    model = path / name
    # os.path answers for a name too long for the file system, where Path raises
    return [_model(model)] if os.path.isdir(model) and not name.startswith(".") else []  # noqa: PTH112 - see above


def _ambiguous(models: Sequence[ModelSource]) -> str:
    name, places = models[0].name, ", ".join(str(model.path) for model in models)
    return f"model '{name}' is in more than one repository: {places}"


def _is_model(directory: Path) -> bool:
    """Whether version directories lie in it, rather than models whose names are numbers"""
    versions = [path for path in directory.iterdir() if path.is_dir() and _VERSION.fullmatch(path.name)]
    if any(_VERSION.fullmatch(path.name) for version in versions for path in version.iterdir()):
        return False
    configured = bool(versions) and (directory / "config.pbtxt").is_file()
    return configured or any(path.suffix in _MODEL_SUFFIXES for version in versions for path in version.iterdir())


def _versions(model: Path) -> dict[int, Path]:
    versions = {}
    for path in model.iterdir():
        if not path.is_dir() or path.name in _NOT_VERSIONS or path.name.startswith("."):
            continue
        if _VERSION.fullmatch(path.name) and int(path.name) <= _LARGEST_VERSION:
            versions[int(path.name)] = path
        elif path.name.startswith("0"):
            _LOG.warning(
                "ignore version directory '%s' of model '%s' which contains leading zeros in its directory name",
                path.name,
                model.name,
            )
        else:
            _LOG.warning(
                "ignore version directory '%s' of model '%s' which fails to convert to integral number",
                path.name,
                model.name,
            )
    return dict(sorted(versions.items()))
