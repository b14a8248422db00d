"""The threads of a controller that carry out what the doors ask, from their begin to their end"""

from __future__ import annotations

import os
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

from ..errors import InternalError, ShuttingDown

if TYPE_CHECKING:
    import weakref
    from collections.abc import Mapping, Sequence

    from kushi_native import Order, Orders

    from .load import Load

__all__ = ["CLOSED", "attend", "attend_urgent", "end", "give_up"]

_PATIENCE_SECONDS = 10.0
CLOSED = "the load is given up: the engine is closed"


class _Control(Protocol):
    def carry_out(self, order: Order) -> None: ...


def attend(orders: Orders, control: weakref.ref[_Control]) -> None:
    """Until there are no orders any more, or nobody refers to the controller"""
    while (order := orders.next()) is not None:
        if (alive := control()) is not None:
            _carry_out(alive, order)
        del alive, order


def attend_urgent(orders: Orders, control: weakref.ref[_Control]) -> None:
    """
    The same for what loads may wait for. An unload gives up a load that keeps one of the other threads. A load that a
    model asks for, perhaps while it is loaded itself, has a thread of its own, since it may ask for further ones.
    """
    while (order := orders.next(only_urgent=True)) is not None:
        if (alive := control()) is not None:
            if order.loads:
                asked = threading.Thread(
                    target=_carry_out, args=(alive, order), name="kushi-control-asked", daemon=True
                )
                asked.start()
            else:
                _carry_out(alive, order)
        del alive, order


def _carry_out(control: _Control, order: Order) -> None:
    """What goes wrong beside the order itself, as an end that cannot be told, costs this order and no thread"""
    try:
        control.carry_out(order)
    except BaseException as error:  # noqa: BLE001 - there are other orders
        with suppress(BaseException):
            order.fail(InternalError.kind, 500, f"{type(error).__name__}: {error}")


def end(process: int, orders: Orders, threads: Sequence[threading.Thread], changing: Mapping[str, Load | None]) -> None:
    """Ends the threads; `changing` are the loads that go on"""
    if os.getpid() != process:
        return
    orders.close()
    give_up(changing, CLOSED)
    _join(threads, _PATIENCE_SECONDS)


def _join(threads: Sequence[threading.Thread], seconds: float) -> None:
    until = time.monotonic() + seconds
    for thread in threads:
        # the last reference to a controller may go on one of its own threads
        if thread is not threading.current_thread() and thread.ident is not None:
            thread.join(max(0, until - time.monotonic()))


def give_up(changing: Mapping[str, Load | None], why: str) -> None:
    """Ends the wait for all loads that go on"""
    for load in [*changing.values()]:
        if load:
            load.give_up(ShuttingDown(why))
