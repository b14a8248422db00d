"""
Programs that make environments: what they print is their progress, and its end the reason where they fail. They end
with the server, however it ends.
"""

import os
import shutil
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import IO, cast

from ...environment import environment_with
from ...errors import ConfigInvalid
from .progress import reported

__all__ = ["output_of", "run"]

_LAST_LINES = 20
_LONGEST_LINE = 4096
_MOST_OUTPUT = 1024 * 1024
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
        output = cast("IO[str]", process.stdout)
        # a longer one comes in pieces
        for line in iter(partial(output.readline, _LONGEST_LINE), ""):
            if text := line.strip():
                lines.append(text)
    end = "\n".join(lines)
    if process.returncode:
        raise ConfigInvalid(f"{what} cannot be made: {name} ended with exit code {process.returncode}:\n{end}")
    return end


def output_of(command: Sequence[str], seconds: float, variables: Mapping[str, str] | None = None) -> bytes:
    """What a program says, if it has said it within so many seconds and it is not too much"""
    with subprocess.Popen(  # noqa: S603 - the user's interpreter, or scripts of the user's environment
        command,
        env=variables,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        process_group=0,
    ) as process:
        output = cast("IO[bytes]", process.stdout)
        is_late = threading.Event()
        timer = threading.Timer(seconds, _kill, (process, is_late))
        timer.start()
        try:
            said = output.read(_MOST_OUTPUT + 1)
            if len(said) > _MOST_OUTPUT:
                _kill(process)
            code = process.wait()
        finally:
            timer.cancel()
    if is_late.is_set():
        raise subprocess.TimeoutExpired(command, seconds)
    if len(said) > _MOST_OUTPUT:
        raise OSError(f"it says more than {_MOST_OUTPUT} bytes")
    if code:
        raise subprocess.CalledProcessError(code, command)
    return said


def _kill(process: subprocess.Popen[bytes], is_late: threading.Event | None = None) -> None:
    """With what it has started, which may hold its output"""
    if is_late:
        is_late.set()
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
