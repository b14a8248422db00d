"""The names of the classes of an output, one a line of the file that `label_filename` in config.pbtxt names"""

import os
from pathlib import Path

from ..errors import ConfigInvalid, Unsupported
from .files import is_within, read_file
from .messages import ModelConfig

__all__ = ["read_labels"]

_MOST_OF_A_MODEL = 32 * 1024 * 1024
"""Each output has labels of its own in the core, also where outputs name the same file"""
_MOST_LINES_OF_A_MODEL = 2_000_000
"""Twice the classes that an answer has at most. Each label is an object, which costs more than its characters"""


def read_labels(directory: Path, config: ModelConfig) -> dict[str, tuple[str, ...]]:
    """The labels of each output that has some, by the name of the output; an empty line is a class without a name"""
    texts: dict[str, str] = {}
    labels: dict[str, tuple[str, ...]] = {}
    found = {}
    characters = lines = 0
    for output in config.output:
        name = output.label_filename
        if not name:
            continue
        if name not in texts:
            texts[name] = _read(directory, name, output.name, config.name)
        characters += len(texts[name])
        lines += texts[name].count("\n") + (not texts[name].endswith("\n"))
        _check_whole(config.name, characters, lines)
        if name not in labels:
            labels[name] = _labels(texts[name])
        found[output.name] = labels[name]
    return found


def _check_whole(model: str, characters: int, lines: int) -> None:
    """Before there is an object of each label"""
    for most, number, what in (
        (_MOST_OF_A_MODEL, characters, "characters"),
        (_MOST_LINES_OF_A_MODEL, lines, "lines"),
    ):
        if number > most:
            raise ConfigInvalid(
                f"the labels of model '{model}' have more than {most} {what}, each output counted that names them"
            )


def _labels(text: str) -> tuple[str, ...]:
    lines = text.split("\n")
    return tuple(lines if lines[-1] else lines[:-1])


def _read(directory: Path, filename: str, output: str, model: str) -> str:
    # a leading slash does not make it another root
    path = Path(f"{directory}/{filename.removeprefix('/')}")
    if not is_within(path, directory):
        raise Unsupported(
            f"label file path '{path}' for output '{output}' in model '{model}' is outside model directory"
        )
    try:
        content = read_file(path, "label file", within=directory)
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)
        raise ConfigInvalid(f"failed to open text file for read {path}: {reason}") from None
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise ConfigInvalid(f"label file '{path}' of output '{output}' is no UTF-8 text: {error.reason}") from None
