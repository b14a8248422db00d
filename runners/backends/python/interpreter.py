"""
The interpreter of a Python model: our own, or that of an environment which the configuration names.

An environment is a directory, as conda-pack unpacks it or `python -m venv` makes it, an archive of one, or what a
requirements file describes.
"""

import shutil
import sys
from dataclasses import dataclass, field
from pathlib import Path

from ...errors import ConfigInvalid
from ...repository.files import check_file
from .. import Placed
from .activation import program_of, variables_of
from .archive import unpacked
from .requirements import environment_of

__all__ = ["Interpreter", "find_interpreter"]

_ENVIRONMENT = "EXECUTION_ENV_PATH"
_PYTHON = "kushi.python"
_REQUIREMENTS = "kushi.requirements"
_PARAMETERS = (_ENVIRONMENT, _PYTHON, _REQUIREMENTS)
_DIRECTORY = "$$TRITON_MODEL_DIRECTORY"


@dataclass(frozen=True)
class Interpreter:
    """A program, and the variables that its environment needs"""

    program: Path
    environment: list[tuple[str, str]] = field(default_factory=list)


def find_interpreter(model: Placed, default: str | None) -> Interpreter:
    """What the model's configuration asks for, then what the server is told, then our own"""
    stated = _stated(model)
    if _REQUIREMENTS in stated:
        if _ENVIRONMENT in stated:
            raise ConfigInvalid(
                f"model '{model.config.name}' has the parameters '{_REQUIREMENTS}' and '{_ENVIRONMENT}', expected one "
                "of them"
            )
        return _of_requirements(model, stated, default)
    if _PYTHON in stated:
        return Interpreter(_program(model, stated[_PYTHON]))
    if _ENVIRONMENT in stated:
        return _of_environment(model, Path(stated[_ENVIRONMENT]).absolute())
    return Interpreter(Path(default or sys.executable))


def _stated(model: Placed) -> dict[str, str]:
    """The parameters that say something of it"""
    parameters = model.config.parameters
    texts = {
        name: parameters[name].string_value for name in (_ENVIRONMENT, _PYTHON, _REQUIREMENTS) if name in parameters
    }
    return {name: text.replace(_DIRECTORY, str(_directory(model))) for name, text in texts.items()}


def _directory(model: Placed) -> Path:
    return model.source.path.absolute()


def _program(model: Placed, stated: str) -> Path:
    """A path, seen from the model's directory, or the name of a program"""
    if "/" not in stated:
        found = shutil.which(stated)
        program = Path(found) if found else None
    else:
        program = _directory(model) / stated
    if not program or not program.is_file():
        raise ConfigInvalid(f"{_about(model, _PYTHON)}: there is no program '{program or stated}'")
    return program


def _of_requirements(model: Placed, stated: dict[str, str], default: str | None) -> Interpreter:
    file = _directory(model) / stated[_REQUIREMENTS]
    if not file.is_file():
        raise ConfigInvalid(f"{_about(model, _REQUIREMENTS)}: there is no file '{file}'")
    program = _program(model, stated[_PYTHON]) if _PYTHON in stated else Path(default or sys.executable)
    directory = environment_of(file, program)
    return Interpreter(directory / "bin" / "python", variables_of(directory))


def _of_environment(model: Placed, path: Path) -> Interpreter:
    if not path.exists():
        raise ConfigInvalid(
            f"parameter '{_ENVIRONMENT}' of model '{model.config.name}': '{path}' does not exist; it is to be the "
            "directory of a Python environment, or an archive of one made by conda-pack"
        )
    if not path.is_dir():
        # who opens a pipe waits for whoever fills it
        check_file(path)
    directory = path if path.is_dir() else unpacked(path)
    program = program_of(directory)
    if program is None:
        raise ConfigInvalid(f"{_about(model, _ENVIRONMENT)}: '{path}' has no bin/python and is no environment")
    return Interpreter(program, variables_of(directory))


def _about(model: Placed, parameter: str) -> str:
    return f"parameter '{parameter}' of model '{model.config.name}'"
