"""
BentoML's supervisor, which is `bentoml serve` itself: circus, with a watcher for the workers of each service.

What is called here before the supervisor starts counts for the one that this process starts next.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final, Protocol

from bentoml import serving
from bentoml._internal.utils import circus
from circus.arbiter import Arbiter  # type: ignore[import-untyped] # it has no types
from circus.process import DEAD_OR_ZOMBIE, UNEXISTING  # type: ignore[import-untyped] # it has no types
from tornado import gen

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Collection, Generator
    from contextlib import AbstractContextManager

__all__ = ["Later", "StartPolicy", "is_in_container", "look_after_workers", "replace_in_containers", "stop_within"]

_BUSY_SECONDS: Final = 0.05


class StartPolicy(Protocol):
    """Hears of the workers that died, and says when no other ones are started for now"""

    def died(self, lived_seconds: float, now: float) -> None: ...

    def are_too_many(self, now: float) -> bool: ...


class Later(Protocol):
    """Has the supervisor's loop call something after some seconds"""

    def __call__(self, seconds: float, call: Callable[..., object], /, *arguments: object) -> None: ...


def is_in_container() -> bool:
    """Where BentoML replaces no worker that has died"""
    return serving.running_inside_container()


def replace_in_containers() -> None:
    """Counts for those services whose workers BentoML has not prepared yet"""
    serving.running_inside_container = lambda: False  # type: ignore[assignment] # it has a cache, of no use here


def look_after_workers(seconds: float, policy: Callable[[int], StartPolicy]) -> None:
    """
    Dead workers are looked for so often, and replaced as the policy says, which is made for a number of workers.
    SIGTERM ends the supervisor, whatever it does at the moment.
    """
    _LooksOften.seconds = seconds
    _LooksOften.policy = staticmethod(policy)
    # BentoML looks both names up when it makes one.
    circus.Arbiter = _Arbiter  # type: ignore[misc]
    circus.ThreadedArbiter = _ThreadedArbiter  # type: ignore[misc]


def stop_within(ending: Callable[[Collection[socket.socket], Later], AbstractContextManager[None]]) -> None:
    """From now on supervisors of this process tell their workers to end within that; it is given all listeners"""
    given = Arbiter.stop
    if getattr(given, "is_within", False):
        return

    def stop(self: Any) -> Any:  # noqa: ANN401 - as circus has it
        def later(seconds: float, call: Callable[..., object], /, *arguments: object) -> None:
            self.loop.call_later(seconds, call, *arguments)

        with ending(self.sockets.values(), later):
            return given(self)

    stop.is_within = True  # type: ignore[attr-defined]
    Arbiter.stop = stop


class _LooksOften(circus.Arbiter):
    seconds: float
    policy: Callable[[int], StartPolicy]

    def __init__(self, *arguments: Any, **options: Any) -> None:  # noqa: ANN401 - of circus
        super().__init__(*arguments, **{**options, "check_delay": self.seconds})
        self._starts = self.policy(sum(watcher.numprocesses for watcher in self.watchers))
        self._started: dict[int, float] = {}

    @gen.coroutine
    def manage_watchers(self) -> Generator[Any, Any, None]:
        """Looks for dead workers, and starts others"""
        # Otherwise it is restarting or stopping them.
        if self._exclusive_running_command is None:
            self._count_the_dead()
            if not self._starts.are_too_many(time.monotonic()):
                yield super().manage_watchers()
                for process in self._processes():
                    self._started.setdefault(process.pid, time.monotonic())

    def _count_the_dead(self) -> None:
        living = {found.pid for found in self._processes() if found.status not in {DEAD_OR_ZOMBIE, UNEXISTING}}
        now = time.monotonic()
        for pid in self._started.keys() - living:
            self._starts.died(now - self._started.pop(pid), now)

    def _processes(self) -> list[Any]:
        return [process for watcher in self.watchers for process in watcher.processes.values()]


class _Arbiter(_LooksOften):
    @gen.coroutine
    def stop(self) -> Generator[Any, Any, None]:  # type: ignore[override] # circus waits for what comes back
        # circus refuses to stop while it does something else, and SIGTERM comes once.
        while self._exclusive_running_command is not None:
            yield gen.sleep(_BUSY_SECONDS)
        yield super().stop()


class _ThreadedArbiter(_LooksOften, circus.ThreadedArbiter):
    pass
