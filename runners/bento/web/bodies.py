"""
The bodies of the requests to a worker's endpoints: how much of the memory they may have together.

A body takes place as it comes, so that one that is announced and does not come keeps nobody out. Where no place is left
for it, the request is refused, at its head if that says how long the body is; and bodies that take long to come give
their places up for whoever asks next.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Self

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["GIVE_UP_BODY", "SPARE_BYTES", "Bodies", "Body"]

GIVE_UP_BODY: Final = "kushi.give_up_body"
"""The extension of ASGI's scope that ends the wait for the rest of a body, with a status and a text"""
SPARE_BYTES: Final = 16 * 1024 * 1024
"""That there is usually beside the largest body, for others"""


class Bodies:
    """Those of one worker; used on its event loop alone"""

    def __init__(self, most_bytes: int, patience_seconds: float, now: Callable[[], float]) -> None:
        """patience_seconds: how long a body may take to come while others are refused"""
        self.refusal = f"other requests have the {most_bytes} bytes that a worker keeps of bodies: try again later"
        self._most_bytes = most_bytes
        self._patience_seconds = patience_seconds
        self._now = now
        self._taken_bytes = 0
        # the oldest first
        self._coming: dict[Body, None] = {}

    def enter(self, give_up: Callable[[int, str], None] | None) -> Body:
        """That of one more request, which nobody can end where there is no `give_up`"""
        body = Body(self, self._now(), give_up)
        self._coming[body] = None
        return body

    def have_place(self, more_bytes: int) -> bool:
        missing_bytes = self._taken_bytes + more_bytes - self._most_bytes
        if missing_bytes > 0:
            self._end_slow_ones(missing_bytes)
        return missing_bytes <= 0

    def take(self, more_bytes: int) -> bool:
        if not self.have_place(more_bytes):
            return False
        self._taken_bytes += more_bytes
        return True

    def has_come(self, body: Body) -> None:
        self._coming.pop(body, None)

    def leave(self, body: Body) -> None:
        self.has_come(body)
        self._taken_bytes -= body.taken_bytes

    def _end_slow_ones(self, missing_bytes: int) -> None:
        """As many as it takes: their places are free once their requests have ended"""
        for body in self._coming:
            if missing_bytes <= 0 or self._now() - body.since < self._patience_seconds:
                return
            if body.taken_bytes and body.give_up is not None:
                body.give_up(408, "the request body takes long to arrive, and others wait for its place")
                missing_bytes -= body.taken_bytes


class Body:
    """Has its place until it is left"""

    def __init__(self, bodies: Bodies, since: float, give_up: Callable[[int, str], None] | None) -> None:
        self.since = since
        self.give_up = give_up
        self.taken_bytes = 0
        self._bodies = bodies

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._bodies.leave(self)

    def take(self, more_bytes: int) -> bool:
        """For what has come of it; false where there is no place"""
        if not self._bodies.take(more_bytes):
            return False
        self.taken_bytes += more_bytes
        return True

    def has_come(self) -> None:
        """As a whole: nobody waits for more of it"""
        self._bodies.has_come(self)
