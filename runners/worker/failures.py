"""How an exception of a model is told: a line for the client, all of it for the log"""

from __future__ import annotations

import traceback
from pathlib import Path

__all__ = ["described", "logged"]

_HERE = str(Path(__file__).parent)
_NO_TEXT = "<EMPTY MESSAGE>"


def described(error: BaseException) -> str:
    """What was raised, and where: the innermost place first, as Triton writes it"""
    text = f"{type(error).__name__}: {str(error) or _NO_TEXT}"
    places = [f"  {frame.filename}({frame.lineno}): {frame.name}\n" for frame in _places(error)]
    return f"{text}\n\nAt:\n{''.join(reversed(places))}" if places else text


def logged(error: BaseException) -> str:
    """The whole traceback, without what of it is this package's own"""
    whole = traceback.TracebackException.from_exception(error)
    whole.stack = traceback.StackSummary.from_list(_places(error))
    return "".join(whole.format()).rstrip("\n")


def _places(error: BaseException) -> list[traceback.FrameSummary]:
    """The places from the file of a model on, or the call of its method, down to a call of the API"""
    frames = list(traceback.extract_tb(error.__traceback__))
    while frames and (_is_ours(frames[0]) or _is_of_import(frames[0])):
        del frames[0]
    while frames and _is_ours(frames[-1]):
        del frames[-1]
    return frames


def _is_ours(frame: traceback.FrameSummary) -> bool:
    return str(Path(frame.filename).parent) == _HERE


def _is_of_import(frame: traceback.FrameSummary) -> bool:
    return frame.filename.startswith("<frozen importlib.")
