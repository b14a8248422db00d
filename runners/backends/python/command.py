"""Programs that make environments: what they print is their progress, and its end the reason where they fail"""

import subprocess
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path

from ...environment import environment_with
from ...errors import ConfigInvalid
from .progress import reported

__all__ = ["run"]

_LAST_LINES = 20


def run(command: Sequence[str], directory: Path, what: str, *, variables: Mapping[str, str] | None = None) -> str:
    """
    Runs a program in a directory, with these variables beside our own, and answers its last lines. `what` is made by
    it; where it fails, ConfigInvalid says so
    """
    lines: deque[str] = deque(maxlen=_LAST_LINES)
    name = Path(command[0]).name
    try:
        process = subprocess.Popen(  # noqa: S603 - the user's interpreter, or uv
            command,
            cwd=directory,
            env=environment_with(**(variables or {})),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )
    except OSError as error:
        raise ConfigInvalid(f"{what} cannot be made: cannot start '{command[0]}': {error.strerror}") from error
    with process, reported(lambda: f"{what}: {lines[-1] if lines else f'{name} runs'}"):
        for line in process.stdout or ():
            if text := line.strip():
                lines.append(text)
    end = "\n".join(lines)
    if process.returncode:
        raise ConfigInvalid(f"{what} cannot be made: {name} ended with exit code {process.returncode}:\n{end}")
    return end
