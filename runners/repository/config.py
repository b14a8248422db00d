"""config.pbtxt: the text as the user wrote it → one ModelConfig message, or an error that names file, line and field"""

import re
from collections.abc import Iterable, Iterator, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from google.protobuf import text_format

from ..errors import ConfigInvalid
from .files import is_within, read_file
from .messages import ModelConfig

__all__ = ["parse", "read"]

_BYTE_ORDER_MARK = "\N{ZERO WIDTH NO-BREAK SPACE}"
_NO_NUMBER = re.compile(r"[+-]?[0-9.][^_\s]*_")
_OTHER_NAMES = {
    "TYPE_BYTES": "TYPE_STRING",
    "BYTES": "TYPE_STRING",
    "TYPE_FLOAT": "TYPE_FP32",
    "TYPE_DOUBLE": "TYPE_FP64",
}
"""What the protocol and other formats call a value, and what config.pbtxt does"""
# the reader of the format takes time with the square of their number, and lets nothing else run meanwhile
_MOST_BACKSLASHES = 64
_BACKSLASHES = re.compile(rf"\\{{{_MOST_BACKSLASHES + 1}}}")
_MOST_SHOWN = 80
"""Characters of a line before and behind a fault"""


def read(path: Path) -> ModelConfig:
    """The configuration in the file at `path`"""
    try:
        text = read_file(path, "configuration").decode()
    except UnicodeDecodeError as error:
        raise ConfigInvalid(f"{path}: expected UTF-8 text, got byte {error.object[error.start]:#04x}") from None
    except OSError as error:
        raise ConfigInvalid(f"{path}: cannot be read: {error.strerror}") from None
    return parse(text, str(path), shows=is_within(path, path.parent))


def parse(text: str, source: str, *, shows: bool = True) -> ModelConfig:
    """
    The configuration that `text` states; `source` is how errors call it

    shows: whether errors may have words of the text. Whoever may place a link need not be allowed to read what it leads
        to, and clients see errors.
    """
    text = text.removeprefix(_BYTE_ORDER_MARK)
    if _BACKSLASHES.search(text):
        raise ConfigInvalid(f"{source}: more than {_MOST_BACKSLASHES} backslashes in a row")
    try:
        read = text_format.Parse(text, ModelConfig())
        _check_numbers(text)
    except text_format.ParseError as error:
        line, column = error.GetLine() or 1, error.GetColumn() or 1
        if not shows:
            raise ConfigInvalid(
                f"{source}:{line}:{column}: no configuration; none of its words are shown, for it is a link that leads "
                "out of its directory"
            ) from None
        if empty := _field_without_value(text.split("\n"), line, column):
            raise ConfigInvalid(f"{source}:{empty[0]}:{empty[1]}: field '{empty[2]}' has no value") from None
        raise ConfigInvalid(f"{source}:{line}:{column}: {_explain(str(error), text, line, column)}") from None
    return read


def _check_numbers(text: str) -> None:
    """Python's reader of the format takes underscores for a part of a number, as in 1_0, where Triton's takes none"""
    tokens = text_format.Tokenizer(text.split("\n"))
    while not tokens.AtEnd():
        if _NO_NUMBER.match(tokens.token):
            raise tokens.ParseError(f"expected a number, got {tokens.token}")  # type: ignore[arg-type] # it takes a text
        tokens.NextToken()


def _explain(message: str, text: str, line: int, column: int) -> str:
    lines = text.split("\n")
    whole = lines[line - 1] if line <= len(lines) else ""
    message = message.removeprefix(f"{line}:{column} : ").removeprefix(f"'{whole}': ").rstrip(".")
    before, shown = (
        whole[max(0, column - 1 - _MOST_SHOWN) : column - 1],
        whole[: column - 1 + _MOST_SHOWN][-2 * _MOST_SHOWN :],
    )
    if unknown := re.search(r'Message type "inference\.([\w.]+)" has no field named "(\w+)"', message):
        fields = next(m for m in _messages() if m.full_name == f"inference.{unknown[1]}").fields_by_name
        return f"{unknown[1]} has no field '{unknown[2]}'{_nearest(unknown[2], fields)}"
    if unknown := re.search(r'Enum type "inference\.([\w.]+)" has no value named (\w+)', message):
        values = next(e for e in _enums() if e.full_name == f"inference.{unknown[1]}").values_by_name
        return f"{unknown[1]} has no value '{unknown[2]}'{_nearest(unknown[2], values)}"
    if both := re.search(r'ield "(\w+)" is specified along with field "(\w+)", another member of oneof', message):
        return f"'{both[2]}' and '{both[1]}' exclude each other, expected only one of them"
    field = re.search(r"(\w+)\s*:?\s*\[?\s*$", before)
    named = f"field '{field[1]}': " if field else ""
    return f"{named}{message[:1].lower()}{message[1:]}, in: {shown.strip()}"


def _field_without_value(lines: Sequence[str], line: int, column: int) -> tuple[int, int, str] | None:
    """Line, column and name of the field whose colon is the last thing before what could not be read"""
    rest = lines[line - 1][column - 1 :] if line <= len(lines) else ""
    # a value that is wrong in itself stands in the line of its field
    if rest.strip() and not re.match(r"[A-Za-z_]\w*\s*[:{\[<]|[}\]>]", rest):
        return None
    for number in range(min(line, len(lines)), 0, -1):
        text = lines[number - 1]
        before = _without_comment(text[: column - 1] if number == line else text).rstrip()
        if before:
            name = before[:-1].rstrip()
            # the rest of a longer line is no name
            begin = max(0, len(name) - _MOST_SHOWN)
            field = re.search(r"\w+$", name[begin:]) if before.endswith(":") else None
            return (number, begin + field.start() + 1, field[0]) if field else None
    return None


def _without_comment(text: str) -> str:
    """A comment that has quotes may be a part of a string"""
    begin = text.find("#", max(text.rfind('"'), text.rfind("'")) + 1)
    return text if begin < 0 else text[:begin]


def _nearest(name: str, known: Iterable[str]) -> str:
    names = sorted(known)
    if name in _OTHER_NAMES:
        return f", did you mean '{_OTHER_NAMES[name]}'?"
    near = [k for k in names if k.removeprefix("TYPE_") == name] or get_close_matches(name, names, n=1)
    return f", did you mean '{near[0]}'?" if near else f", expected one of {', '.join(names)}"


def _messages() -> Iterator[Any]:
    waiting: list[Any] = [*ModelConfig.DESCRIPTOR.file.message_types_by_name.values()]
    while waiting:
        message = waiting.pop()
        waiting += message.nested_types
        yield message


def _enums() -> Iterator[Any]:
    yield from ModelConfig.DESCRIPTOR.file.enum_types_by_name.values()
    for message in _messages():
        yield from message.enum_types
