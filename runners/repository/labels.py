"""The names of the classes of an output, one a line of the file that `label_filename` in config.pbtxt names"""

import os
from pathlib import Path

from ..errors import ConfigInvalid, Unsupported
from .messages import ModelConfig

__all__ = ["read_labels"]

_MAX_BYTES = 16 * 1024 * 1024


def read_labels(directory: Path, config: ModelConfig) -> dict[str, tuple[str, ...]]:
    """The labels of each output that has some, by the name of the output; an empty line is a class without a name"""
    return {
        output.name: _read(directory, output.label_filename, output.name, config.name)
        for output in config.output
        if output.label_filename
    }


def _read(directory: Path, filename: str, output: str, model: str) -> tuple[str, ...]:
    # a leading slash does not make it another root
    path = f"{directory}/{filename.removeprefix('/')}"
    if "\0" in path or not Path(path).resolve().is_relative_to(directory.resolve()):
        raise Unsupported(
            f"label file path '{path}' for output '{output}' in model '{model}' is outside model directory"
        )
    try:
        with Path(path).open("rb") as file:
            content = file.read(_MAX_BYTES + 1)
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)
        raise ConfigInvalid(f"failed to open text file for read {path}: {reason}") from None
    if len(content) > _MAX_BYTES:
        raise ConfigInvalid(f"label file '{path}' of output '{output}' has more than {_MAX_BYTES} bytes")
    try:
        lines = content.decode().split("\n")
    except UnicodeDecodeError as error:
        raise ConfigInvalid(f"label file '{path}' of output '{output}' is no UTF-8 text: {error.reason}") from None
    return tuple(lines if lines[-1] else lines[:-1])
