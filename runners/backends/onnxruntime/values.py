"""The kinds of values of providers' options: each checks a text and answers it as the provider reads it"""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath

from ...errors import ConfigInvalid, Unsupported
from ...integers import UINT64_MAX, integer
from ...repository.values import BOOLEANS, boolean
from .files import ModelFiles

__all__ = [
    "Accelerator",
    "Option",
    "Options",
    "Provider",
    "at_least",
    "cache",
    "libraries",
    "name",
    "off",
    "one_of",
    "output",
    "switch",
    "text",
]

_LOG = logging.getLogger(__name__)
Options = tuple[tuple[str, str], ...]
"""Names and values as a provider takes them"""
_Kind = Callable[[str, str, ModelFiles], str]
"""The text, what it is, for errors, and where files of the model may be"""


@dataclass(frozen=True)
class Provider:
    """An execution provider as the native core takes it"""

    accelerator: str
    options: Options


@dataclass(frozen=True)
class Option:
    """A parameter that is one option, under the name that the provider has for it"""

    name: str
    read: _Kind

    def __call__(self, value: str, what: str, files: ModelFiles) -> Options:
        return ((self.name, self.read(value, what, files)),)


@dataclass(frozen=True)
class Accelerator:
    """One that config.pbtxt can name: what brings it, its parameters, and those that it refuses, with the reason"""

    title: str
    provider: str
    install: str
    parameters: Mapping[str, Callable[[str, str, ModelFiles], Options]]
    refused: Mapping[str, str]
    read_by_triton: bool = True
    """Where it reads none of its parameters, those that are not known here have no effect, as there"""


def switch(value: str, what: str, _: ModelFiles) -> str:
    """A truth value"""
    read = boolean(value)
    if read is None:
        raise ConfigInvalid(f"{what}: expected {BOOLEANS}, got '{value}'")
    return "1" if read else "0"


def off(why: str) -> _Kind:
    """A truth value that cannot be true, because it does `why`"""

    def read(value: str, what: str, files: ModelFiles) -> str:
        if switch(value, what, files) == "1":
            raise Unsupported(f"{what} is not supported: it {why}")
        return "0"

    return read


def at_least(least: int, most: int = UINT64_MAX) -> _Kind:
    """An integer"""
    expected = f"an integer of at least {least}" if most == UINT64_MAX else f"an integer from {least} to {most}"

    def read(value: str, what: str, _: ModelFiles) -> str:
        number = integer(value, least, most)
        if number is None:
            raise ConfigInvalid(f"{what}: expected {expected}, got '{value}'")
        return str(number)

    return read


def text(value: str, _what: str, _files: ModelFiles) -> str:
    """Anything: the provider checks it"""
    return value


def name(value: str, what: str, _: ModelFiles) -> str:
    """The name of a file, without a directory"""
    if PurePosixPath(value).name != value or value == "..":
        raise ConfigInvalid(f"{what}: expected the name of a file without a directory, got '{value}'")
    return value


def output(value: str, what: str, files: ModelFiles) -> str:
    """A path that the provider may write to"""
    return files.output(value, f"{what}:")


def cache(value: str, what: str, files: ModelFiles) -> str:
    """A path that the provider may write to, or, where the path is of another host, one in its place"""
    try:
        return files.output(value, f"{what}:")
    except ConfigInvalid:
        path = PurePosixPath(value)
        if not path.is_absolute():
            raise
        instead = files.output(path.name or ".", f"{what}:")
        _LOG.warning("%s: the model may not write to '%s', '%s' is used in its place", what, value, instead)
        return instead


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
