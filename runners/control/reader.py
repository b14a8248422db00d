"""
Reading: what lies in the repositories, as wishes that a plan can be made of. Nothing of a model is opened but its
configuration.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Final

from ..errors import ConfigInvalid, KushiError, ModelNotFound, ModelUnavailable, ShuttingDown
from ..repository.kept_routes import KEPT
from ..repository.layout import ModelSource, read_source
from ..repository.overrides import Folder, Leave, Overrides, check_leave, parse_config
from ..repository.resolve import resolve, resolve_written
from .plan import Wish

if TYPE_CHECKING:
    from collections.abc import Container

    from ..buckets.repositories import Repositories
    from ..repository.messages import ModelConfig
    from .load import Load

__all__ = ["Reader", "not_in_repository", "refused"]

_READ: Final = count()


class Reader:
    """The models of some repositories, as they lie there now"""

    def __init__(
        self,
        repositories: Repositories,
        *,
        auto_complete: bool,
        config_name: str | None = None,
        leave: Leave = "data",
    ) -> None:
        """config_name: as for `scan`. leave: which files a load may bring"""
        self.repositories = repositories
        self.config_name = config_name
        self._auto_complete = auto_complete
        self.leave = leave

    def wish(self, load: Load, source: ModelSource) -> Wish:
        """A model that was found; each time that it is read it is to be loaded"""
        try:
            return load.run(source.path, partial(self._read, source))
        except ShuttingDown:
            raise
        except KushiError as error:
            return refused(source.name, error)

    def find(self, load: Load, name: str, *, lists: bool = True) -> Wish:
        """The model of that name; raises why there is none. With `lists` buckets are asked anew whether they have it"""
        return load.run(f"model '{name}'", partial(self._find, name, lists=lists))

    def find_again(
        self, load: Load, name: str, overrides: Overrides, served: Wish | None, *, keeps_files: bool = False
    ) -> Wish:
        """
        The same with what a load brings. Without, what an earlier load brought for the configuration of what is
        `served` stays, until the files change; and the files that it brought, where somebody `keeps_files`
        """
        find = partial(self._find_again, name, overrides, served, keeps_files=keeps_files)
        return load.run(f"model '{name}'", find)

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

    def _find(self, name: str, *, lists: bool) -> Wish:
        return self._read(self._source(name, lists=lists))

    def _find_again(self, name: str, overrides: Overrides, served: Wish | None, *, keeps_files: bool) -> Wish:
        if keeps_files and served and isinstance(served.folder, Folder) and served.override is not None:
            wish = replace(self._read_with(read_source(served.folder.path), served.override), folder=served.folder)
        else:
            wish = self._brought(name, overrides, served)
        return replace(wish, is_asked_for=True, is_whole=keeps_files)

    def _brought(self, name: str, overrides: Overrides, served: Wish | None) -> Wish:
        overrides.check(self.leave)
        config = parse_config(overrides.config) if overrides.config is not None else None
        if overrides.files and config is not None:
            folder = Folder(name, overrides.files)
            wish = replace(self._read_with(read_source(folder.path), config), folder=folder)
            self._check_leave(wish, None)
            return wish
        source = self._source(name)
        if config is None and served and served.override is not None and not served.folder:
            before, now = served.contents, self.repositories.contents(source.path)
            if before and before.place == now.place and not {*now.differences(before)} - {KEPT}:
                config = served.override
        if config is None:
            return self._read(source)
        wish = self._read_with(source, config)
        self._check_leave(wish, source)
        return wish

    def _check_leave(self, wish: Wish, source: ModelSource | None) -> None:
        own = None
        if source:
            # one that is wrong may be why the load brings another
            with suppress(KushiError):
                own = resolve(source, auto_complete=True).config
        if wish.resolved:
            check_leave(wish.resolved.config, own, self.leave)

    def _source(self, name: str, *, lists: bool = True) -> ModelSource:
        source = self.repositories.find(name, self.config_name, lists=lists)
        if source is None:
            raise not_in_repository(name)
        return source

    def _read(self, source: ModelSource) -> Wish:
        source, contents = self.repositories.here(source, self.config_name)
        resolved = resolve(source, auto_complete=self._auto_complete)
        return Wish(source.name, next(_READ), resolved, contents=contents)

    def _read_with(self, source: ModelSource, config: ModelConfig) -> Wish:
        source, contents = self.repositories.here(source, self.config_name, config)
        resolved = resolve_written(replace(source, config_file=None, config=config), config)
        return Wish(source.name, next(_READ), resolved, contents=contents, override=config)


def refused(name: str, reason: KushiError | str) -> Wish:
    """A model that cannot be loaded"""
    if isinstance(reason, str):
        reason = ConfigInvalid(reason, model=name)
    return Wish(name, next(_READ), reason=reason)


def not_in_repository(name: str) -> ModelNotFound:
    """With Triton's text, which management calls begin with as well"""
    return ModelNotFound(f"failed to load '{name}', failed to poll from model repository", model=name, status=500)
