"""What activating an environment sets, other than the interpreter: as conda and `python -m venv` do it"""

import logging
import shutil
import subprocess
from pathlib import Path

from ...environment import environment_with, path_with
from .command import output_of

__all__ = ["program_of", "variables_of"]

_LOG = logging.getLogger(__name__)
_SCRIPTS = "etc/conda/activate.d"
_SECONDS = 30
_RUN_SCRIPTS = f'for script in "$CONDA_PREFIX"/{_SCRIPTS}/*.sh; do . "$script" >&2; done; exec env -0'
_OF_THE_SHELL = frozenset({"_", "OLDPWD", "PWD", "SHLVL"})

Variables = list[tuple[str, str]]


def program_of(directory: Path) -> Path | None:
    """The interpreter of an environment"""
    programs = (directory / "bin" / name for name in ("python", "python3"))
    return next((program for program in programs if program.exists()), None)


def variables_of(directory: Path) -> Variables:
    """The variables of processes that run in an environment"""
    path = ("PATH", path_with("PATH", directory / "bin"))
    if not (directory / "conda-meta").is_dir():
        return [path, ("VIRTUAL_ENV", str(directory))]
    variables = [
        path,
        ("CONDA_PREFIX", str(directory)),
        ("CONDA_DEFAULT_ENV", str(directory)),
        ("LD_LIBRARY_PATH", path_with("LD_LIBRARY_PATH", directory / "lib")),
    ]
    return [*variables, *_of_scripts(directory, variables)]


def _of_scripts(directory: Path, variables: Variables) -> Variables:
    """What the scripts set that packages have put there"""
    shell = shutil.which("bash") or shutil.which("sh")
    if not shell or not any((directory / _SCRIPTS).glob("*.sh")):
        return []
    before = environment_with(**dict(variables))
    command = [shell, "-c", _RUN_SCRIPTS]
    try:
        said = output_of(command, _SECONDS, before)
    except (OSError, subprocess.SubprocessError) as error:
        _LOG.warning("the scripts in '%s' cannot be run: %s", directory / _SCRIPTS, error)
        return []
    after = (entry.partition("=") for entry in said.decode(errors="replace").split("\0") if entry)
    return [(name, value) for name, _, value in after if name not in _OF_THE_SHELL and before.get(name) != value]
