"""
A repository in a bucket: what is listed there, and copies here of the models that are to be loaded.

Each model that is listed has a folder here, which is empty until the model is fetched. A model is fetched as one
listing has it, or not at all: each part of an object is read only while it is the one that was listed, and the listing
is the same behind it. Of its versions those are fetched that its configuration lets serve. What lies in the folder is
changed when all of it is here; what serves has been read by then, and files that it has open stay as they were.
"""

from __future__ import annotations

import logging
import shutil
import threading
from contextlib import suppress
from itertools import count
from typing import TYPE_CHECKING, Final

from ..errors import ConfigInvalid, KushiError, ModelNotFound, ModelUnavailable
from ..repository.config import read
from ..repository.contents import Contents
from ..repository.messages import ModelConfig
from ..repository.versions import served
from .copies import Fetched, Listed
from .credentials import place_of
from .files import Files, hashed
from .listing import ListedModel, Object, models_of, read_listing, written_listing
from .store import Changed, OddName, Store, StoreUnreachable

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from .cache import Cache, Served
    from .url import BucketUrl

__all__ = ["Bucket"]

_LOG = logging.getLogger(__name__)
_TRIES: Final = 4
_CONFIG: Final = "config.pbtxt"
_READ_TO_CHECK: Final = 1024 * 1024
_OF_A_PAGE: Final = 1000
"""Objects that a store lists at one moment"""


class Bucket:
    """One of them, for one engine"""

    def __init__(self, url: BucketUrl, served: Served, is_used: Callable[[str], bool]) -> None:
        """is_used: whether a model of this name serves, so that its folder stays though it is listed no more"""
        self.url = url
        self._is_used = is_used
        self._served = served
        self._cache: Cache = served.cache
        self._place = place_of(url)
        self._store = Store(url)
        self._files = Files(self._store, self._place, served)
        around = f"{url.kind}-{hashed(self._place)[:8]}"
        self.path = served.path / around / url.bucket / url.prefix
        """Where its models have their folders here"""
        self.path.mkdir(parents=True, exist_ok=True)
        self._models: dict[str, ListedModel] = {}
        self._listed: dict[str, int] = {}
        """In which listing each model was seen last"""
        self._listings = count(1)
        self._is_long = self._has_config = self._is_kept = False
        self._left: set[str] = set()
        """Models that are listed no more, and serve"""
        self._here: dict[str, dict[str, str]] = {}
        """The files of the models that were fetched, with their keys"""
        self._fetching: dict[str, threading.Lock] = {}
        self._lock = threading.Lock()

    def begin(self) -> None:
        """Lists it; where it cannot be reached, what was listed before counts"""
        try:
            models = self._list()
            self._check_level(models)
        except StoreUnreachable as error:
            try:
                models = read_listing(self._cache.listing(self._key_of_listing))
            except ConfigInvalid:
                raise error from None
            _LOG.warning("%s; what was listed there before counts, as far as its files are here", error)
        with self._lock:
            self._take(models, next(self._listings))

    def refresh(self) -> None:
        """Lists all of it; raises where that cannot be done, and nothing changes"""
        begun = next(self._listings)
        models = self._list()
        with self._lock:
            self._take(models, begun)

    def look_for(self, name: str) -> None:
        """Lists one model"""
        begun = next(self._listings)
        found = self._list_one(name)
        with self._lock:
            if self._listed.get(name, 0) < begun:
                if found is None:
                    self._drop(name, begun)
                else:
                    self._see(found, begun)
                self._keep()

    def is_used(self, name: str) -> bool:
        """Whether a model of this name serves"""
        return self._is_used(name)

    def contents(self, name: str) -> Contents:
        """The files of a model as it was listed last; none where it was not"""
        return Listed(self, name, self.model(name))

    def model(self, name: str) -> ListedModel | None:
        """As it was listed last"""
        with self._lock:
            return self._models.get(name)

    def names(self) -> list[str]:
        """Of all models"""
        with self._lock:
            return [*self._models]

    def fetch(self, name: str, config_name: str | None = None, config: ModelConfig | None = None) -> Contents:
        """The files of a model as it was listed last are here from now on; `config`: in place of its own"""
        with self._fetching_of(name):
            for _ in range(_TRIES):
                listed = self._expected(name)
                try:
                    if self._fetch(listed, config_name, config):
                        self._expected(name)
                        return Fetched(self, listed)
                except Changed:
                    pass
                finally:
                    self._files.clear(listed.files.values())
                self.look_for(name)
        raise ModelUnavailable(f"'{self.url.text}/{name}' changes again and again while it is read", model=name)

    def sketch(self, name: str) -> None:
        """The folder of a model with all that is read to check it; its large files are there by name and size alone"""
        with self._fetching_of(name):
            listed = self._expected(name)
            small = {path: one for path, one in listed.files.items() if one.size <= _READ_TO_CHECK}
            try:
                self._files.gather(name, small.values())
                self._put_in_place(name, small, listed.folders)
            finally:
                self._files.clear(listed.files.values())
            for path in listed.files.keys() - small.keys():
                with (self.path / name / path).open("wb") as file:
                    file.truncate(listed.files[path].size)

    def put(self, path: str, content: bytes | None) -> None:
        """A small object is that from now on, or goes"""
        if content is None:
            self._store.delete(path)
        else:
            self._store.write(path, content)

    def unloaded(self, name: str) -> None:
        """It serves no more, and nobody needs its files"""
        with self._lock:
            is_listed = name in self._models
            if name in self._here or name in self._left:
                self._remove(name)
            if is_listed:
                self._make_folder(name)

    def shown(self, text: str) -> str:
        """With the URL in place of the folder here"""
        return text.replace(str(self.path), self.url.text)

    # --- one listing ---

    def _list(self) -> dict[str, ListedModel]:
        try:
            objects = self._store.objects()
        except OddName:
            # of one model, perhaps
            return {name: found for name in self._folders() if (found := self._list_one(name))}
        self._is_long = len(objects) >= _OF_A_PAGE
        self._has_config = any(one.path == _CONFIG for one in objects)
        return models_of(objects)

    def _folders(self) -> list[str]:
        """The names at its top; where one of them is odd, those that are known"""
        try:
            return self._store.folders()
        except OddName as error:
            known = self.names()
            if not known:
                raise
            _LOG.warning("%s; models that have come since are not seen", error)
            return known

    def _list_one(self, name: str) -> ListedModel | None:
        try:
            return models_of(self._store.objects(name)).get(name)
        except OddName as error:
            return ListedModel(name, fault=str(error))

    def _check_level(self, models: Mapping[str, ListedModel]) -> None:
        if not models and self.url.prefix:
            raise ConfigInvalid(f"model repository '{self.url.text}' not found: there is no model in it")
        versions = [name for name in models if name.isdecimal()]
        files = (path for name in versions for path in models[name].files)
        is_model = self._has_config or any(path.startswith("model.") for path in files)
        if versions and is_model:
            parent = self.url.text.rpartition("/")[0]
            raise ConfigInvalid(f"'{self.url.text}' looks like a model, expected its model repository: '{parent}'")

    def _take(self, models: Mapping[str, ListedModel], begun: int) -> None:
        """What a listing has that was begun then; what was listed since stays"""
        for name in self._models.keys() | models.keys():
            if self._listed.get(name, 0) < begun:
                if name in models:
                    self._see(models[name], begun)
                else:
                    self._drop(name, begun)
        self._keep()

    def _see(self, model: ListedModel, begun: int) -> None:
        self._listed[model.name] = begun
        if self._models.get(model.name) != model:
            self._models[model.name] = model
            self._is_kept = False
        self._left.discard(model.name)
        self._make_folder(model.name)

    def _make_folder(self, name: str) -> None:
        # a name that cannot be one is told of when the model is read
        with suppress(OSError, ValueError):
            if self._served.is_open:
                (self.path / name).mkdir(parents=True, exist_ok=True)

    def _drop(self, name: str, begun: int) -> None:
        self._listed[name] = begun
        if self._models.pop(name, None):
            self._is_kept = False
        if self._is_used(name) or self._fetching.setdefault(name, threading.Lock()).locked():
            self._left.add(name)
        else:
            self._remove(name)

    def _remove(self, name: str) -> None:
        self._left.discard(name)
        self._here.pop(name, None)
        shutil.rmtree(self.path / name, ignore_errors=True)

    def _keep(self) -> None:
        """For a start without the store"""
        if not self._is_kept:
            self._cache.keep_listing(self._key_of_listing, written_listing(self._models))
            self._is_kept = True

    @property
    def _key_of_listing(self) -> str:
        return "\0".join(self._place)

    # --- one model ---

    def _fetching_of(self, name: str) -> threading.Lock:
        with self._lock:
            return self._fetching.setdefault(name, threading.Lock())

    def _expected(self, name: str) -> ListedModel:
        """The model as it is listed now, if it is one that can be fetched"""
        listed = self.model(name)
        if listed is None:
            with self._lock:
                if name in self._left and not self._is_used(name):
                    self._remove(name)
            raise ModelNotFound(f"'{self.url.text}' has no model '{name}' any more", model=name)
        if listed.fault:
            raise ConfigInvalid(f"'{self.url.text}/{name}': {listed.fault}", model=name)
        return listed

    def _fetch(self, listed: ListedModel, config_name: str | None, config: ModelConfig | None) -> bool:
        """Whether all of it is here, as it was listed"""
        versions = {str(version) for version in listed.versions}
        frame = {path: one for path, one in listed.files.items() if path.partition("/")[0] not in versions}
        has_fetched = self._files.gather(listed.name, frame.values())
        others = versions - self._wanted_versions(listed, config or self._config(frame, config_name))
        folders = {folder for folder in listed.folders if folder.partition("/")[0] not in others}
        files = {path: one for path, one in listed.files.items() if path.partition("/")[0] not in others}
        has_fetched |= self._files.gather(listed.name, files.values())
        is_of_pages = self._is_long or len(listed.files) >= _OF_A_PAGE
        if (has_fetched or is_of_pages) and len(files) > 1:
            # each of them is what was listed, but perhaps not at the same time
            self.look_for(listed.name)
            if self.model(listed.name) is not listed:
                return False
        self._put_in_place(listed.name, files, folders)
        return True

    def _config(self, frame: Mapping[str, Object], config_name: str | None) -> ModelConfig | None:
        one = (frame.get(f"configs/{config_name}.pbtxt") if config_name else None) or frame.get(_CONFIG)
        if one is None:
            return None
        try:
            return read(self._files.ready(one))
        except KushiError:
            # what is wrong with it is told when it is read in its place
            return None

    def _wanted_versions(self, listed: ListedModel, config: ModelConfig | None) -> set[str]:
        return {str(version) for version in served(config or ModelConfig(), listed.versions)}

    def _put_in_place(self, name: str, files: Mapping[str, Object], folders: Collection[str]) -> None:
        self._files.put_in_place(self.path / name, self._here.setdefault(name, {}), files, folders)
