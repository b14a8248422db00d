"""The kinds of values of providers' options: each checks a text and answers it as the provider reads it"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import PurePosixPath

from ...errors import ConfigInvalid
from ...repository.backend_config import boolean
from .files import ModelFiles

__all__ = ["Option", "Provider", "libraries", "name", "number", "one_of", "output", "switch", "text"]

_Kind = Callable[[str, str, ModelFiles], str]
"""The text, what it is, for errors, and where files of the model may be"""


@dataclass(frozen=True)
class Provider:
    """An execution provider as the native core takes it"""

    accelerator: str
    options: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Option:
    """One option under the name that the provider has for it"""

    name: str
    read: _Kind


def switch(value: str, what: str, _: ModelFiles) -> str:
    """A truth value"""
    read = boolean(value)
    if read is None:
        raise ConfigInvalid(f"{what}: expected 0, 1, true or false, got '{value}'")
    return "1" if read else "0"


def number(value: str, what: str, _: ModelFiles) -> str:
    """An integer"""
    try:
        return str(int(value))
    except ValueError:
        raise ConfigInvalid(f"{what}: expected an integer, got '{value}'") from None


def text(value: str, _what: str, _files: ModelFiles) -> str:
    """Anything: the provider checks it"""
    return value


def name(value: str, what: str, _: ModelFiles) -> str:
    """The name of a file, without a directory"""
    if PurePosixPath(value).name != value:
        raise ConfigInvalid(f"{what}: expected the name of a file without a directory, got '{value}'")
    return value


def output(value: str, what: str, files: ModelFiles) -> str:
    """A path that the provider may write to"""
    return files.output(value, f"{what}:")


def libraries(value: str, what: str, files: ModelFiles) -> str:
    """Libraries of the model's, with semicolons between them"""
    return ";".join(files.library(library, f"{what}:") for library in value.split(";"))


def one_of(*words: str) -> _Kind:
    """One of these words"""

    def read(value: str, what: str, _: ModelFiles) -> str:
        if value not in words:
            raise ConfigInvalid(f"{what}: expected one of {', '.join(words)}, got '{value}'")
        return value

    return read
