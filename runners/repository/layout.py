"""Where models lie: <repository>/<model>/[config.pbtxt]/<version>/<model file>, or one bare model file"""

import logging
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from ..errors import ConfigInvalid
from .advice import is_model_file, lies_beside
from .descriptor import Descriptor
from .discovery import bare_backend, bare_files, default_file
from .files import check_file, check_link
from .messages import ModelConfig
from .versions import version_number

__all__ = ["ModelSource", "Scan", "check_model_name", "find", "model_file", "places", "read_source", "scan"]

_LOG = logging.getLogger(__name__)
_SAVED_MODEL = "saved_model.pb"
_OTHER_CONFIGS = ("config.pbtext", "config.pb.txt", "config.json", "config.yaml", "config.yml")
"""Names under which people look for the configuration in vain"""
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


def scan(paths: Iterable[Path], config_name: str | None = None) -> Scan:
    """
    All models of all repositories; a path to a model file is a repository of that one model

    config_name: of the file in the folder `configs` of a model that takes the place of its config.pbtxt
    """
    found: dict[str, list[ModelSource]] = {}
    refused: dict[str, str] = {}
    for path in dict.fromkeys(paths):
        for place in _places(path):
            name = _name_of(place)
            try:
                check_model_name(name)
                found.setdefault(name, []).append(_model(place, config_name))
            except ConfigInvalid as error:
                refused[_shown(name)] = str(error)
            except OSError as error:
                refused[name] = f"{error.filename or place}: {error.strerror}"
    for name, models in found.items():
        if len(models) > 1:
            refused[name] = _ambiguous(models)
    return Scan(tuple(models[0] for name, models in sorted(found.items()) if name not in refused), refused)


def places(path: Path) -> dict[str, Path]:
    """The models of one repository and where they lie, without a look at them"""
    return {_shown(_name_of(place)): place for place in _places(path)}


def read_source(place: Path, config_name: str | None = None) -> ModelSource:
    """The model that lies there"""
    return _model(place, config_name)


def find(paths: Iterable[Path], name: str, config_name: str | None = None) -> ModelSource | None:
    """The model `name` as `scan` would find it, without a look at the others"""
    models = [model for path in dict.fromkeys(paths) for model in _named(path, name, config_name)]
    if len(models) > 1:
        raise ConfigInvalid(_ambiguous(models))
    return models[0] if models else None


def model_file(version_directory: Path, name: str, inside: str | None = None) -> Path:
    """The file `name` of a version, or where that is a directory, the file `inside` it"""
    parts = PurePosixPath(name).parts
    if not parts or name.startswith("/") or ".." in parts or "\0" in name:
        raise ConfigInvalid(f"default_model_filename '{name}' must be a path inside the version directory")
    path = version_directory / name
    if inside and path.is_dir():
        path /= inside
    try:
        check_file(path)
    except (FileNotFoundError, NotADirectoryError):
        raise ConfigInvalid(f"unable to find '{path}'{lies_beside(path)}") from None
    return path


def _places(path: Path) -> list[Path]:
    """Where models lie: the directories of a repository, or the one model file that `path` itself is"""
    try:
        if path.is_dir():
            return _model_directories(path)
        if path.exists():
            _check_bare(path)
            return [path]
    except OSError as error:
        raise ConfigInvalid(f"'{error.filename}' cannot be read: {error.strerror}") from None
    kind = "model file" if bare_backend(path) else "model repository"
    raise ConfigInvalid(f"{kind} '{path}' not found: expected a directory of models, or an {bare_files()} file")


def _name_of(place: Path) -> str:
    return place.stem if place.is_file() else place.name


def _shown(name: str) -> str:
    return name if name.isprintable() else ascii(name)[1:-1]


def _check_bare(path: Path) -> Descriptor:
    backend = bare_backend(path)
    if not backend or not path.is_file():
        raise ConfigInvalid(
            f"'{path}' is neither a model repository nor a model file: expected a directory, {bare_files()}"
        )
    return backend


def _bare(path: Path) -> ModelSource:
    path = path.absolute()
    config = ModelConfig(name=path.stem, backend=_check_bare(path).name, default_model_filename=path.name)
    return ModelSource(path.stem, path, {1: path.parent}, config=config)


def _model_directories(repository: Path) -> list[Path]:
    if (repository / _SAVED_MODEL).is_file():
        raise ConfigInvalid(
            f"'{repository}' is a SavedModel, expected the model repository that has it in the directory of a version"
        )
    if _is_model(repository):
        parent = repository.resolve().parent if repository.name in {"", ".."} else repository.parent
        raise ConfigInvalid(f"'{repository}' looks like a model, expected its model repository: '{parent}'")
    paths = sorted(repository.iterdir())
    # a link to nowhere is a model that is missing, not one that never was
    models = [path for path in paths if not path.name.startswith(".") and (path.is_dir() or _leads_nowhere(path))]
    if not models and version_number(repository.name) and any(is_model_file(path) for path in paths):
        raise ConfigInvalid(
            f"'{repository}' looks like a version of a model, expected its model repository: "
            f"'{repository.resolve().parent.parent}'"
        )
    if not models:
        _LOG.warning("no model found in '%s', expected directories as in MODEL/1/%s", repository, default_file())
    return models


def _model(path: Path, config_name: str | None) -> ModelSource:
    check_link(path)
    if path.is_file():
        return _bare(path)
    config = path / "configs" / f"{config_name}.pbtxt"
    if not config_name or not os.path.lexists(config):
        config = path / "config.pbtxt"
    if not os.path.lexists(config):
        for name in _OTHER_CONFIGS:
            if os.path.lexists(path / name):
                _LOG.warning("'%s' is not read: the configuration of a model is 'config.pbtxt' there", path / name)
    return ModelSource(path.name, path, _versions(path), config if os.path.lexists(config) else None)


def _named(path: Path, name: str, config_name: str | None) -> list[ModelSource]:
    if path.is_file():
        return [_model(path, config_name)] if path.stem == name else []
    model = path / name
    # os.path answers for a name too long for the file system, where Path raises
    is_there = os.path.isdir(model) or _leads_nowhere(model)  # noqa: PTH112 - see above
    return [_model(model, config_name)] if is_there and not name.startswith(".") else []


def _leads_nowhere(path: Path) -> bool:
    return os.path.islink(path) and not os.path.exists(path)  # noqa: PTH110, PTH114 - as above


def _ambiguous(models: Sequence[ModelSource]) -> str:
    name, places = models[0].name, ", ".join(str(model.path) for model in models)
    return f"model '{name}' is in more than one repository: {places}"


def _is_model(directory: Path) -> bool:
    """Whether version directories lie in it, rather than models whose names are numbers"""
    versions = [path for path in directory.iterdir() if path.is_dir() and version_number(path.name)]
    if any(version_number(path.name) for version in versions for path in version.iterdir()):
        return False
    configured = bool(versions) and (directory / "config.pbtxt").is_file()
    return configured or any(is_model_file(path) for version in versions for path in version.iterdir())


def _versions(model: Path) -> dict[int, Path]:
    versions = {}
    for path in model.iterdir():
        if version_number(path.name):
            check_link(path)
        if not path.is_dir() or path.name in _NOT_VERSIONS or path.name.startswith("."):
            continue
        if (number := version_number(path.name)) is not None:
            versions[number] = path
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
