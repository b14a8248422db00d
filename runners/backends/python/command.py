"""
Programs that make environments: what they print is their progress, and its end the reason where they fail. They end
with the server, however it ends.
"""

import os
import shutil
import subprocess
import sys
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path

from ...environment import environment_with
from ...errors import ConfigInvalid
from .progress import reported

__all__ = ["run"]

_LAST_LINES = 20
_WITH_THE_SERVER = """
import ctypes, os, signal, sys
PR_SET_PDEATHSIG = 1
ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
server, *command = sys.argv[1:]
if os.getppid() == int(server):
    os.execvp(command[0], command)
"""
"""The program is the same process: the kernel then sends it a signal"""


def run(command: Sequence[str], directory: Path, what: str, *, variables: Mapping[str, str] | None = None) -> str:
    """
    Runs a program in a directory, with these variables beside our own, and answers its last lines. `what` is made by
    it; where it fails, ConfigInvalid says so
    """
    lines: deque[str] = deque(maxlen=_LAST_LINES)
    name = Path(command[0]).name
    if shutil.which(command[0]) is None:
        raise ConfigInvalid(f"{what} cannot be made: there is no program '{command[0]}'")
    try:
        process = subprocess.Popen(  # noqa: S603 - the user's interpreter, or uv
            [sys.executable, "-I", "-S", "-c", _WITH_THE_SERVER, str(os.getpid()), *command],
            cwd=directory,
            env=environment_with(**(variables or {})),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )
    except OSError as error:
        raise ConfigInvalid(f"{what} cannot be made: cannot start '{sys.executable}': {error.strerror}") from error
    with process, reported(lambda: f"{what}: {lines[-1] if lines else f'{name} runs'}"):
        for line in process.stdout or ():
            if text := line.strip():
                lines.append(text)
    end = "\n".join(lines)
    if process.returncode:
        raise ConfigInvalid(f"{what} cannot be made: {name} ended with exit code {process.returncode}:\n{end}")
    return end
