"""
The connections of a worker, HTTP and WebSocket: how many there may be, and which of them are over.

Requests only set flags. Once in a while all connections are looked over, and those at which too long nothing has
happened are ended: no request costs a timer or a look at the clock, and a timeout comes a little late, never early.
"""

from __future__ import annotations

import logging
import resource
from collections import OrderedDict
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Set as AbstractSet

    from .limits import Limits

__all__ = ["Complaints", "Crowd", "Member", "Patience"]

# Over the limit, to ask for health and to hear that there is no room.
_SURPLUS: Final = 64
# Of the descriptors: for uploads, for the engine's sockets, for what the service opens.
_SPARE: Final = 192
_SPARE_SHARE: Final = 4
_COMPLAINT_SECONDS: Final = 10.0
_LOG = logging.getLogger(__name__)


class Member(Protocol):
    """A connection"""

    transport: asyncio.Transport

    def look(self, now: float) -> None: ...


class Crowd:
    """All connections of one worker"""

    def __init__(self, limits: Limits, members: AbstractSet[Member]) -> None:
        self.limits = limits
        self.websockets = 0
        self.ends_since: float | None = None
        """When the worker was told to end: since then it answers what it has accepted, and goes"""
        self.now = 0.0
        """The time of the last look"""
        self.complaints = Complaints()
        self.broken_answers = Complaints()
        self._members = members
        self.most = limits.max_connections
        self._silent: OrderedDict[Member, float | None] = OrderedDict()

    @property
    def ends(self) -> bool:
        return self.ends_since is not None

    @property
    def unread_seconds(self) -> float:
        """How long a client may leave an answer unread"""
        limits = self.limits
        return min(limits.body_seconds, limits.last_client_seconds) if self.ends else limits.body_seconds

    def has_ended_for(self, seconds: float, now: float) -> bool:
        return self.ends_since is not None and now - self.ends_since >= seconds

    def measure(self) -> None:
        """Finds out how many connections the system allows"""
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        if soft != resource.RLIM_INFINITY:
            spare = min(_SPARE + _SURPLUS, soft // _SPARE_SHARE)
            self.most = max(1, min(self.limits.max_connections, soft - spare))

    def enter(self, member: Member) -> bool:
        """Makes room for one more, which is a member already; false where there is none"""
        if len(self._members) <= self.most:
            return True
        if not self._dismiss_one():
            if len(self._members) > self.most + _SURPLUS:
                member.transport.abort()
            return False
        return True

    def rest(self, member: Member, *, is_fresh: bool) -> None:
        """It waits for a request from now on; a fresh one has had none yet"""
        self._silent[member] = None if is_fresh else self.now

    def wake(self, member: Member) -> None:
        self._silent.pop(member, None)

    def look(self, now: float) -> None:
        self.now = now
        for member in tuple(self._members):
            try:
                member.look(now)
            except Exception:  # noqa: BLE001 - whatever it is, the others go on
                # One that goes wrong would take the time limits of all others with it.
                _LOG.exception("a connection cannot be looked after: it is closed")
                member.transport.abort()

    def _dismiss_one(self) -> bool:
        """Closes the one that has been silent longest. One that has been used since the last look may be used again"""
        while self._silent:
            member, since = next(iter(self._silent.items()))
            if since is not None and since >= self.now:
                return False
            del self._silent[member]
            if not member.transport.is_closing():
                member.transport.close()
                return True
        return False


class Patience:
    """How long nothing has happened at a connection"""

    def __init__(self) -> None:
        self.moved = True
        self._since = 0.0
        self._owed = 0

    def is_over(self, now: float, seconds: float) -> bool:
        """Asked at each look"""
        if self.moved:
            self.moved = False
            self._since = now
        return now - self._since >= seconds

    def has_owed(self, written_bytes: int) -> None:
        """What is left of an answer to a client that does not make room for it: less than before is progress"""
        if written_bytes != self._owed:
            self._owed = written_bytes
            self.moved = True


class Complaints:
    """What others do wrong, as warnings: at most one line in ten seconds, whatever they do"""

    def __init__(self) -> None:
        self._log = logging.getLogger(__name__)
        self._next = 0.0
        self._left_out = 0

    def say(self, text: str, now: float) -> None:
        if now < self._next:
            self._left_out += 1
            return
        more = f" ({self._left_out} more since the last such line)" if self._left_out else ""
        self._log.warning("%s%s", text, more)
        self._next, self._left_out = now + _COMPLAINT_SECONDS, 0
