"""
All that is wrong with a configuration, each with its field and line. The checks of a load stop at the first problem:
here the field that it is about is taken away, and they go on.
"""

import logging
import re
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from google.protobuf.message import Message

from ..errors import KushiError
from ..repository.field_lines import field_lines
from ..repository.files import read_file
from ..repository.layout import ModelSource
from ..repository.messages import ModelConfig

__all__ = ["Problem", "placed_notes", "problems_of", "unreadable"]

_MOST = 20
_MOST_SECONDS = 5.0
"""For all problems of a model: a configuration may have thousands of fields"""
_WORD = re.compile(r"\w+")
_INDEX = re.compile(r"\[[0-9]+\]")
_OF_ALL = {"backend", "name", "platform"}
"""Without them nobody knows what the others mean"""


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong, or worth a note"""

    text: str
    field: str = ""
    """Its path, as `input[0].dims`; "" where it is about no field that is there"""
    line: int = 0
    """0 where it has none"""


def problems_of(source: ModelSource, written: ModelConfig, fault: Callable[[ModelConfig], str]) -> list[Problem]:
    """`fault` says what is wrong with a configuration, "" where nothing is"""
    config = ModelConfig()
    config.CopyFrom(written)
    lines = _lines(source)
    found: list[Problem] = []
    end = time.monotonic() + _MOST_SECONDS
    with _silence():
        while (text := fault(config)) and len(found) < _MOST:
            said = text.replace(str(source.path), "")
            field = _blamed(config, text, said, fault, end)
            if _follows(said, field, found):
                break
            line = lines.get(field, 0)
            found.append(Problem(_placed(text, source, line), field, line))
            if not field or field in _OF_ALL or not _clear(config, field):
                break
    return found


def _follows(said: str, field: str, found: Iterable[Problem]) -> bool:
    """Whether it is wrong only since something was taken away"""
    for earlier in found:
        if field and earlier.field.startswith(field):
            return True
        names = set(_WORD.findall(_INDEX.sub("", earlier.field)))
        if not field and names & set(_WORD.findall(said)):
            return True
    return False


def placed_notes(source: ModelSource, notes: Iterable[tuple[str, str]]) -> Iterator[Problem]:
    """Notes by their fields, with the lines of these"""
    lines = _lines(source)
    for field, text in notes:
        line = lines.get(field, 0)
        yield Problem(f"{source.stated_in}:{line}: {text}" if line else f"{source.stated_in}: {text}", field, line)


def unreadable(source: ModelSource, text: str) -> Problem:
    """Of a text that is no configuration, which says itself where"""
    where = re.match(rf"{re.escape(str(source.config_file))}:([0-9]+):", text)
    return Problem(text, line=int(where[1]) if where else 0)


def _blamed(config: ModelConfig, text: str, said: str, fault: Callable[[ModelConfig], str], end: float) -> str:
    """The field without which the text is another one: one that it names, if there is one"""
    paths, words = list(_paths(config)), set(_WORD.findall(said))
    # "max batch size" is a name as well
    named = [path for path in paths if _last(path) in said or words.issuperset(_last(path).split("_"))]
    for path in sorted(named, key=lambda path: _last(path) not in said):
        if time.monotonic() > end:
            return ""
        if _without(config, path, fault) != text:
            return path
    for path in paths:
        if time.monotonic() > end:
            return ""
        # another text may be about what is missing then
        if path not in _OF_ALL and path not in named and not _without(config, path, fault):
            return path
    return ""


def _without(config: ModelConfig, path: str, fault: Callable[[ModelConfig], str]) -> str:
    other = ModelConfig()
    other.CopyFrom(config)
    _clear(other, path)
    return fault(other)


def _last(path: str) -> str:
    return path.rpartition("[")[2].rstrip("]") if path.endswith("]") else path.rpartition(".")[2]


def _paths(message: Message, prefix: str = "") -> Iterator[str]:
    """Of all that can be taken away, what is deeper first. Elements of lists can not: the others had new places"""
    for field, value in message.ListFields():
        path = f"{prefix}{field.name}"
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            # of those that are deeper the whole map
            yield from [path] if prefix else [f"{path}[{key}]" for key in sorted(value, key=str)]
            continue
        if field.message_type is not None and field.is_repeated:
            for index, item in enumerate(value):
                yield from _paths(item, f"{path}[{index}].")
        elif field.message_type is not None:
            yield from _paths(value, f"{path}.")
        yield path


def _clear(config: ModelConfig, path: str) -> bool:
    """Whether there was something to take away"""
    at: Any = config
    *outer, last = path.split(".")
    if path.endswith("]"):
        # a key may have dots
        field, _, key = path.removesuffix("]").partition("[")
        entries = getattr(config, field)
        number = next((one for one in entries if str(one) == key), None)
        if number is None:
            return False
        del entries[number]
        return True
    for part in outer:
        name, _, index = part.partition("[")
        at = getattr(at, name)
        at = at[int(index.rstrip("]"))] if index else at
    at.ClearField(last)
    return True


def _lines(source: ModelSource) -> dict[str, int]:
    if source.config_file is None:
        return {}
    try:
        text = read_file(source.config_file, "configuration").decode()
        return dict(field_lines(text.removeprefix("\N{ZERO WIDTH NO-BREAK SPACE}")))
    except (KushiError, OSError, UnicodeDecodeError):
        return {}


def _placed(text: str, source: ModelSource, line: int) -> str:
    """With the line behind the file that the text begins with"""
    file = f"{source.stated_in}: "
    return f"{source.stated_in}:{line}: {text.removeprefix(file)}" if line and text.startswith(file) else text


@contextmanager
def _silence() -> Iterator[None]:
    """What the checks log was logged by the first one"""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(before)
