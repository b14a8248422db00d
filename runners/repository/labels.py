"""The names of the classes of an output, one a line of the file that `label_filename` in config.pbtxt names"""

import os
from pathlib import Path

from ..errors import ConfigInvalid, Unsupported
from .files import is_within, read_file
from .messages import ModelConfig

__all__ = ["read_labels"]

_MOST_OF_A_MODEL = 32 * 1024 * 1024
"""Each output has labels of its own in the core, also where outputs name the same file"""


def read_labels(directory: Path, config: ModelConfig) -> dict[str, tuple[str, ...]]:
    """The labels of each output that has some, by the name of the output; an empty line is a class without a name"""
    found = {}
    left = _MOST_OF_A_MODEL
    for output in config.output:
        if output.label_filename:
            labels = _read(directory, output.label_filename, output.name, config.name)
            left -= sum(map(len, labels)) + len(labels)
            if left < 0:
                raise ConfigInvalid(
                    f"the labels of model '{config.name}' have more than {_MOST_OF_A_MODEL} characters, each output "
                    "counted that names them"
                )
            found[output.name] = labels
    return found


def _read(directory: Path, filename: str, output: str, model: str) -> tuple[str, ...]:
    # a leading slash does not make it another root
    path = Path(f"{directory}/{filename.removeprefix('/')}")
    if not is_within(path, directory):
        raise Unsupported(
            f"label file path '{path}' for output '{output}' in model '{model}' is outside model directory"
        )
    try:
        content = read_file(path, "label file")
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)
        raise ConfigInvalid(f"failed to open text file for read {path}: {reason}") from None
    try:
        lines = content.decode().split("\n")
    except UnicodeDecodeError as error:
        raise ConfigInvalid(f"label file '{path}' of output '{output}' is no UTF-8 text: {error.reason}") from None
    return tuple(lines if lines[-1] else lines[:-1])
