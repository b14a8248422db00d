"""Calls that wait for a store, on a thread of their own: neither a signal nor the end of a load waits with them"""

from __future__ import annotations

import threading
from concurrent.futures import Future, wait
from typing import TYPE_CHECKING, Final, TypeVar

from ..wanted import check_wanted

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["aside"]

_LOOK_SECONDS: Final = 0.2

_T = TypeVar("_T")


def aside(call: Callable[[], _T]) -> _T:
    """What it answers; a load that was given up leaves it alone"""
    answer: Future[_T] = Future()
    threading.Thread(target=_carry_out, args=(call, answer), name="kushi-bucket", daemon=True).start()
    while not wait([answer], _LOOK_SECONDS).done:
        check_wanted()
    return answer.result()


def _carry_out(call: Callable[[], _T], answer: Future[_T]) -> None:
    try:
        answer.set_result(call())
    except BaseException as error:  # noqa: BLE001 - whoever waits for it raises it
        answer.set_exception(error)
