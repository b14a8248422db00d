"""In which lines of a config.pbtxt its fields stand"""

from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from google.protobuf import text_format
from google.protobuf.descriptor import FieldDescriptor

from .messages import ModelConfig

__all__ = ["field_lines"]

_ENDS = {"{": "}", "<": ">"}


def field_lines(text: str) -> Mapping[str, int]:
    """
    The line of each field by its path: `dynamic_batching.priority_levels`, `input[0].dims`, `parameters[key]`. Of a
    text that is no configuration, those up to where it cannot be read
    """
    found: dict[str, int] = {}
    tokens = text_format.Tokenizer(text.split("\n"))
    with suppress(text_format.ParseError):
        _read_message(tokens, ModelConfig.DESCRIPTOR, "", "", found)
    return found


def _read_message(
    tokens: text_format.Tokenizer,
    of: Any,  # noqa: ANN401 - a Descriptor, of which there are two kinds
    end: str,
    prefix: str,
    found: dict[str, int],
) -> str:
    """Answers the key of an entry of a map"""
    counts: Counter[str] = Counter()
    key = ""
    while not (tokens.TryConsume(end) if end else tokens.AtEnd()):
        line = _line(tokens)
        name = tokens.ConsumeIdentifier()
        field = of.fields_by_name.get(name)
        if field is None:
            raise text_format.ParseError(name)
        found.setdefault(f"{prefix}{name}", line)
        tokens.TryConsume(":")
        if name == "key":
            key = tokens.token.strip("'\"")
        if tokens.TryConsume("["):
            while not tokens.TryConsume("]"):
                if tokens.AtEnd():
                    raise text_format.ParseError(name)
                _read_value(tokens, field, f"{prefix}{name}", counts, found)
                tokens.TryConsume(",")
        else:
            _read_value(tokens, field, f"{prefix}{name}", counts, found)
        _ = tokens.TryConsume(",") or tokens.TryConsume(";")
    return key


def _read_value(
    tokens: text_format.Tokenizer, field: FieldDescriptor, path: str, counts: Counter[str], found: dict[str, int]
) -> None:
    line, begin = _line(tokens), tokens.token
    tokens.NextToken()
    if field.message_type is None:
        # a number may have its sign apart, and a text may have several pieces
        while begin == "-" or (_is_text(begin) and _is_text(tokens.token)):
            begin = tokens.token
            tokens.NextToken()
        return
    if begin not in _ENDS:
        raise text_format.ParseError(begin)
    inside: dict[str, int] = {}
    key = _read_message(tokens, field.message_type, _ENDS[begin], "", inside)
    if field.message_type.GetOptions().map_entry:
        found[f"{path}[{key}]"] = line
        return
    at = f"{path}[{counts[path]}]" if field.is_repeated else path
    counts[path] += 1
    found.setdefault(at, line)
    found.update({f"{at}.{name}": number for name, number in inside.items()})


def _is_text(token: str) -> bool:
    return token[:1] in {"'", '"'}


def _line(tokens: text_format.Tokenizer) -> int:
    return tokens.ParseError("").GetLine() or 1  # type: ignore[arg-type] # it takes a text
