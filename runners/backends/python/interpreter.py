"""
The interpreter of a Python model: our own, or that of an environment which the configuration names.

An environment is a directory, as conda-pack unpacks it or `python -m venv` makes it, or an archive of one, which is
unpacked once.
"""

import hashlib
import shutil
import sys
import tarfile
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from ...environment import cache_directory, path_with
from ...errors import ConfigInvalid
from .. import Placed

__all__ = ["Interpreter", "find_interpreter"]

_ENVIRONMENT = "EXECUTION_ENV_PATH"
_PYTHON = "kushi.python"
_DIRECTORY = "$$TRITON_MODEL_DIRECTORY"


@dataclass(frozen=True)
class Interpreter:
    """A program, and the variables that its environment needs"""

    program: Path
    environment: list[tuple[str, str]] = field(default_factory=list)


def find_interpreter(model: Placed, default: str | None) -> Interpreter:
    """What the model's configuration asks for, then what the server is told, then our own"""
    parameters = model.config.parameters
    directory = str(model.source.path)
    if _PYTHON in parameters:
        program = Path(parameters[_PYTHON].string_value.replace(_DIRECTORY, directory))
        if not program.is_file():
            raise ConfigInvalid(f"parameter '{_PYTHON}' of model '{model.config.name}': there is no file '{program}'")
        return Interpreter(program)
    if _ENVIRONMENT in parameters:
        path = Path(parameters[_ENVIRONMENT].string_value.replace(_DIRECTORY, directory))
        if not path.exists():
            raise ConfigInvalid(
                f"parameter '{_ENVIRONMENT}' of model '{model.config.name}': '{path}' does not exist; it is to be the "
                "directory of a Python environment, or an archive of one made by conda-pack"
            )
        return _of_environment(path if path.is_dir() else _unpacked(path), model.config.name)
    return Interpreter(Path(default or sys.executable))


def _of_environment(directory: Path, model: str) -> Interpreter:
    program = directory / "bin" / "python"
    if not program.exists():
        program = directory / "bin" / "python3"
    if not program.exists():
        raise ConfigInvalid(
            f"parameter '{_ENVIRONMENT}' of model '{model}': '{directory}' has no bin/python and is no environment"
        )
    # what activating it sets
    environment = [("PATH", path_with("PATH", directory / "bin"))]
    if (directory / "conda-meta").is_dir():
        environment.append(("CONDA_PREFIX", str(directory)))
        environment.append(("LD_LIBRARY_PATH", path_with("LD_LIBRARY_PATH", directory / "lib")))
    else:
        environment.append(("VIRTUAL_ENV", str(directory)))
    return Interpreter(program, environment)


def _unpacked(archive: Path) -> Path:
    """The directory of an archive, unpacked if that has not been done yet"""
    stat = archive.stat()
    name = hashlib.sha256(f"{archive.resolve()} {stat.st_size} {stat.st_mtime_ns}".encode()).hexdigest()[:32]
    base = cache_directory() / "environments"
    place = base / name
    if place.is_dir():
        return place
    base.mkdir(parents=True, exist_ok=True)
    unpacking = Path(tempfile.mkdtemp(dir=base, prefix=f".{name}."))
    try:
        with tarfile.open(archive) as file:
            file.extractall(unpacking, filter="tar")
        if not place.exists():
            unpacking.rename(place)
    except (OSError, tarfile.TarError) as error:
        raise ConfigInvalid(f"'{archive}' cannot be unpacked: {error}") from error
    finally:
        shutil.rmtree(unpacking, ignore_errors=True)
    return place
