"""Which objects of a test are still in memory."""

from __future__ import annotations

import gc
from typing import Generic, TypeVar

__all__ = ["Made"]

Thing = TypeVar("Thing")


class Made(Generic[Thing]):
    """The objects of a type that are made after this one, as long as somebody refers to them.

    What earlier tests have left (an object in a cycle, or one whose thread has not ended) is not among them.
    """

    def __init__(self, of: type[Thing]) -> None:
        self._of = of
        # the objects themselves: the id of one that has gone may be that of a new one
        self._earlier = self._all()

    def alive(self) -> list[Thing]:
        earlier = {id(thing) for thing in self._earlier}
        return [thing for thing in self._all() if id(thing) not in earlier]

    def _all(self) -> list[Thing]:
        # not isinstance, which asks the object: there are lazy ones that are loaded by a question
        return [thing for thing in gc.get_objects() if issubclass(type(thing), self._of)]
