"""
Programs that make environments: what they print is their progress, and its end the reason where they fail. They end
with the server, however it ends.
"""

import os
import selectors
import shutil
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, cast

from ...environment import environment_with
from ...errors import ConfigInvalid
from ...leaving import at_any_end
from ...wanted import check_wanted
from .progress import reported

__all__ = ["output_of", "run"]

_LAST_LINES = 20
_LONGEST_LINE = 4096
_LOOK_SECONDS = 0.5
_MOST_OUTPUT = 1024 * 1024
_WITH_THE_SERVER = """
import ctypes, os, signal, sys
PR_SET_PDEATHSIG = 1
ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
server, libraries, *command = sys.argv[1:]
if libraries:
    os.environ["LD_LIBRARY_PATH"] = libraries
if os.getppid() == int(server):
    os.execvp(command[0], command)
"""
"""The program is the same process: the kernel then sends it a signal. Libraries of an environment are for it alone"""


# of what is asked just now, each with all that it has started
_groups: set[int] = set()


@at_any_end
def _end_groups() -> None:
    """All that run just now, with what they have started. The threads that ask for them may have been left alone"""
    for group in tuple(_groups):
        _end(group)


def _end(group: int) -> None:
    # it may have ended
    with suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)


def run(command: Sequence[str], directory: Path, what: str, *, variables: Mapping[str, str] | None = None) -> str:
    """
    Runs a program in a directory, with these variables beside our own, and answers its last lines. `what` is made by
    it; where it fails, ConfigInvalid says so. It ends where the load is given up
    """
    lines: deque[str] = deque(maxlen=_LAST_LINES)
    name = Path(command[0]).name
    given = dict(variables or {})
    libraries = given.pop("LD_LIBRARY_PATH", "")
    if shutil.which(command[0]) is None:
        raise ConfigInvalid(f"{what} cannot be made: there is no program '{command[0]}'")
    try:
        process = subprocess.Popen(  # noqa: S603 - the user's interpreter, or uv
            [sys.executable, "-I", "-S", "-c", _WITH_THE_SERVER, str(os.getpid()), libraries, *command],
            cwd=directory,
            env=environment_with(**given),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            process_group=0,
        )
    except OSError as error:
        raise ConfigInvalid(f"{what} cannot be made: cannot start '{sys.executable}': {error.strerror}") from error
    with process, reported(lambda: f"{what}: {lines[-1] if lines else f'{name} runs'}"):
        _groups.add(process.pid)
        try:
            for line in _lines(process):
                if text := line.decode(errors="replace").strip():
                    lines.append(text)
        finally:
            # with what it has left behind
            _end(process.pid)
            _groups.discard(process.pid)
    end = "\n".join(lines)
    if process.returncode:
        raise ConfigInvalid(f"{what} cannot be made: {name} ended with exit code {process.returncode}:\n{end}")
    return end


def _lines(process: subprocess.Popen[bytes]) -> Iterator[bytes]:
    """
    What a program prints until it ends, line by line, a long one in pieces; raises where the load is given up
    meanwhile. What it has started may print for longer
    """
    output = cast("IO[bytes]", process.stdout).fileno()
    begun = b""
    room = _MOST_OUTPUT
    with selectors.DefaultSelector() as selector:
        selector.register(output, selectors.EVENT_READ)
        while room > 0:
            check_wanted()
            # what it has printed before its end is there by then
            ended = process.poll() is not None
            if not selector.select(0 if ended else _LOOK_SECONDS):
                if ended:
                    break
                continue
            piece = os.read(output, _LONGEST_LINE)
            room -= len(piece) if ended else 0
            if not piece:
                break
            *whole, begun = (begun + piece).split(b"\n")
            yield from whole
            if len(begun) > _LONGEST_LINE:
                yield begun
                begun = b""
    yield begun
    while process.poll() is None:
        check_wanted()
        time.sleep(_LOOK_SECONDS / 10)


def output_of(command: Sequence[str], seconds: float, variables: Mapping[str, str] | None = None) -> bytes:
    """What a program says, if it has said it within so many seconds and it is not too much"""
    until = time.monotonic() + seconds
    with subprocess.Popen(  # noqa: S603 - the user's interpreter, or scripts of the user's environment
        command,
        env=variables,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        process_group=0,
    ) as process:
        _groups.add(process.pid)
        try:
            said = _read(cast("IO[bytes]", process.stdout).fileno(), until)
            code = process.wait(max(0.0, until - time.monotonic()))
        except TimeoutError:
            raise subprocess.TimeoutExpired(command, seconds) from None
        finally:
            _end(process.pid)
            _groups.discard(process.pid)
    if code:
        raise subprocess.CalledProcessError(code, command)
    return said


def _read(output: int, until: float) -> bytes:
    """To its end, which whoever holds it as well may keep from coming"""
    said = bytearray()
    with selectors.DefaultSelector() as selector:
        selector.register(output, selectors.EVENT_READ)
        while selector.select(max(0.0, until - time.monotonic())):
            piece = os.read(output, _MOST_OUTPUT)
            said += piece
            if not piece:
                return bytes(said)
            if len(said) > _MOST_OUTPUT:
                raise OSError(f"it says more than {_MOST_OUTPUT} bytes")
    raise TimeoutError
