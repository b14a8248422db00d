"""
How an exception of a model is told: a line for the client, all of it for the log. Its text is the model's own: making
it may raise, and it may have characters that no text may have.
"""

from __future__ import annotations

import traceback
from pathlib import Path

__all__ = ["LONGEST", "described", "logged", "type_of"]

LONGEST = 32 << 10
"""Characters of a text that the server may show: of a longer one it would keep no more"""

_HERE = str(Path(__file__).parent)
_NO_TEXT = "<EMPTY MESSAGE>"


def described(error: BaseException) -> str:
    """What was raised, and where: the innermost place first, as Triton writes it"""
    text = f"{_name(error)}: {_text(error) or _NO_TEXT}"
    places = [f"  {frame.filename}({frame.lineno}): {frame.name}\n" for frame in _places(error)]
    return _sendable(f"{text}\n\nAt:\n{''.join(reversed(places))}" if places else text)


def logged(error: BaseException) -> str:
    """The whole traceback, without what of it is this package's own"""
    try:
        whole = traceback.TracebackException.from_exception(error)
        whole.stack = traceback.StackSummary.from_list(_places(error))
        return _sendable("".join(whole.format()).rstrip("\n"))
    except BaseException:  # noqa: BLE001 - the texts of causes are the model's, too
        return described(error)


def type_of(value: object) -> str:
    """As Python writes the type of a value, even where a metaclass of the model's raises"""
    try:
        return _sendable(str(type(value)))
    except BaseException:  # noqa: BLE001 - as it is the model's
        return f"<class '{_name(value)}'>"


def _text(error: BaseException) -> str:
    try:
        # the places follow it
        return str(error)[: LONGEST // 2]
    except BaseException as other:  # noqa: BLE001 - as it is the model's
        return f"<its text raises {_name(other)}>"


def _name(value: object) -> str:
    """That of its class, even where a metaclass of the model's says something else or raises"""
    name: str = type.__dict__["__name__"].__get__(type(value))
    return name


def _sendable(text: str) -> str:
    return text[:LONGEST].encode("utf-8", "replace").decode()


def _places(error: BaseException) -> list[traceback.FrameSummary]:
    """The places from the file of a model on, or the call of its method, down to a call of the API"""
    # as Python has it, whatever the class of the model says
    frames = list(traceback.extract_tb(BaseException.__dict__["__traceback__"].__get__(error)))
    while frames and (_is_ours(frames[0]) or _is_of_import(frames[0])):
        del frames[0]
    while frames and _is_ours(frames[-1]):
        del frames[-1]
    return frames


def _is_ours(frame: traceback.FrameSummary) -> bool:
    return str(Path(frame.filename).parent) == _HERE


def _is_of_import(frame: traceback.FrameSummary) -> bool:
    return frame.filename.startswith("<frozen importlib.")
