"""
Reading: what lies in the repositories, as wishes that a plan can be made of. Nothing of a model is opened but its
configuration.
"""

from __future__ import annotations

from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Final

from ..errors import ConfigInvalid, KushiError, ModelNotFound, ModelUnavailable, ShuttingDown
from ..repository.contents import look
from ..repository.layout import ModelSource, find
from ..repository.resolve import resolve
from .plan import Wish

if TYPE_CHECKING:
    from collections.abc import Container, Iterable
    from pathlib import Path

    from .load import Load

__all__ = ["Reader", "not_in_repository", "refused"]

_READ: Final = count()


class Reader:
    """The models of some repositories, as they lie there now"""

    def __init__(self, repositories: Iterable[Path], *, auto_complete: bool) -> None:
        self.repositories = tuple(repositories)
        self._auto_complete = auto_complete

    def wish(self, load: Load, source: ModelSource) -> Wish:
        """A model that was found; each time that it is read it is to be loaded"""
        try:
            return load.run(source.path, partial(self._read, source))
        except ShuttingDown:
            raise
        except KushiError as error:
            return refused(source.name, error)

    def find(self, load: Load, name: str) -> Wish:
        """The model of that name; raises why there is none"""
        return load.run(f"model '{name}'", partial(self._find, name))

    def steps_of(self, load: Load, ensemble: Wish, there: Container[str]) -> list[Wish]:
        """The models that it asks, and those that these ask, without those that are `there`; some may be nowhere"""
        found: dict[str, Wish] = {}
        waiting = ensemble.steps
        while waiting and not load.is_given_up:
            name = waiting.pop()
            if name in found or name in there or name == ensemble.name:
                continue
            try:
                found[name] = self.find(load, name)
            except ModelNotFound:
                continue
            except (ModelUnavailable, ShuttingDown):
                raise
            except KushiError as error:
                found[name] = refused(name, error)
            waiting += found[name].steps
        return [*found.values()]

    def _find(self, name: str) -> Wish:
        source = find((path.absolute() for path in self.repositories), name)
        if source is None:
            raise not_in_repository(name)
        return self._read(source)

    def _read(self, source: ModelSource) -> Wish:
        # first, so that what is written later is seen as a change
        contents = look(source.path)
        resolved = resolve(source, auto_complete=self._auto_complete)
        return Wish(source.name, next(_READ), resolved, contents=contents)


def refused(name: str, reason: KushiError | str) -> Wish:
    """A model that cannot be loaded"""
    if isinstance(reason, str):
        reason = ConfigInvalid(reason, model=name)
    return Wish(name, next(_READ), reason=reason)


def not_in_repository(name: str) -> ModelNotFound:
    """With Triton's text, which management calls begin with as well"""
    return ModelNotFound(f"failed to load '{name}', failed to poll from model repository", model=name, status=500)
