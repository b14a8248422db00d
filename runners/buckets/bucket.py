"""
A repository in a bucket: what is listed there, and copies here of the models that are to be loaded.

Each model that is listed has a folder here, which is empty until the model is fetched. A model is fetched as one
listing has it, or not at all: each part of an object is read only while it is the one that was listed, and the listing
is the same behind it. Of its versions those are fetched that its configuration lets serve. What lies in the folder is
changed when all of it is here; what serves has been read by then, and files that it has open stay as they were.
"""

from __future__ import annotations

import hashlib
import logging
import shutil
import threading
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ..errors import ConfigInvalid, KushiError, ModelNotFound, ModelUnavailable
from ..repository.config import read
from ..repository.contents import Contents
from ..repository.messages import ModelConfig
from ..repository.versions import served
from .copies import Fetched, Listed
from .download import download
from .listing import ListedModel, Object, models_of, read_listing, written_listing
from .store import Changed, Store, StoreUnreachable

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from .cache import Cache, Served
    from .url import BucketUrl

__all__ = ["Bucket"]

_LOG = logging.getLogger(__name__)
_TRIES: Final = 4
_LOOKS_UNTIL_GONE: Final = 2
_CONFIG: Final = "config.pbtxt"
_READ_TO_CHECK: Final = 1024 * 1024


class Bucket:
    """One of them, for one engine"""

    def __init__(self, url: BucketUrl, served: Served) -> None:
        self.url = url
        self._cache: Cache = served.cache
        self._store = Store(url)
        self.path = served.path / url.kind / url.bucket / url.prefix
        """Where its models have their folders here"""
        self.path.mkdir(parents=True, exist_ok=True)
        self._models: dict[str, ListedModel] = {}
        self._missing: dict[str, int] = {}
        """Models that were not listed any more, and for how many listings"""
        self._here: dict[str, dict[str, str]] = {}
        """The files of the models that were fetched, with their keys"""
        self._kept = ""
        """The listing that a start without the store would find"""
        self._fetching: dict[str, threading.Lock] = {}
        self._lock = threading.Lock()

    def begin(self) -> None:
        """Lists it; where it cannot be reached, what was listed before counts"""
        try:
            self.refresh()
        except StoreUnreachable as error:
            text = self._cache.listing(self.url.text)
            if not text:
                raise
            with self._lock:
                self._take(read_listing(text))
            _LOG.warning("%s; what was listed there before counts, as far as its files are here", error)

    def refresh(self) -> None:
        """Lists all of it; raises where that cannot be done, and nothing changes"""
        objects = self._store.objects()
        if not objects and self.url.prefix:
            raise ConfigInvalid(f"model repository '{self.url.text}' not found: there is no object in it")
        models = models_of(objects)
        self._check_level(models, {one.path for one in objects})
        with self._lock:
            self._take(models)
            self._keep()

    def look_for(self, name: str) -> None:
        """Lists one model"""
        models = models_of(self._store.objects(name))
        with self._lock:
            if name in models:
                self._models[name] = self._same(models[name])
                self._make_folder(name)
            elif name in self._models:
                self._drop(name)
            self._keep()

    def is_here(self, name: str) -> bool:
        """Whether the model was fetched"""
        return name in self._here

    def contents(self, name: str) -> Contents:
        """The files of a model as it was listed last; none where it was not"""
        with self._lock:
            return Listed(self, name, self._models.get(name))

    def model(self, name: str) -> ListedModel | None:
        with self._lock:
            return self._models.get(name)

    def fetch(self, name: str, config_name: str | None = None, config: ModelConfig | None = None) -> Contents:
        """The files of a model as it was listed last are here from now on; `config`: in place of its own"""
        with self._fetching_of(name):
            for _ in range(_TRIES):
                listed = self.model(name)
                if listed is None:
                    raise ModelNotFound(f"'{self.url.text}' has no model '{name}' any more", model=name)
                if listed.fault:
                    raise ConfigInvalid(f"'{self.url.text}/{name}': {listed.fault}", model=name)
                with suppress(Changed):
                    if self._fetch(listed, config_name, config):
                        return Fetched(self, listed)
                self.look_for(name)
        raise ModelUnavailable(f"'{self.url.text}/{name}' changes again and again while it is read", model=name)

    def sketch(self, name: str) -> None:
        """The folder of a model with all that is read to check it; its large files are there by name and size alone"""
        listed = self.model(name)
        if listed is None or listed.fault:
            return
        small = {path: one for path, one in listed.files.items() if one.size <= _READ_TO_CHECK}
        self._have(name, small)
        self._place(name, small, listed.folders)
        for path in listed.files.keys() - small.keys():
            with (self.path / name / path).open("wb") as file:
                file.truncate(listed.files[path].size)

    def put(self, path: str, content: bytes | None) -> None:
        """A small object is that from now on, or goes"""
        if content is None:
            self._store.delete(path)
        else:
            self._store.write(path, content)

    def names(self) -> list[str]:
        """Of all models"""
        with self._lock:
            return [*self._models]

    def shown(self, text: str) -> str:
        """With the URL in place of the folder here"""
        return text.replace(str(self.path), self.url.text)

    # --- one listing ---

    def _keep(self) -> None:
        if (text := written_listing(self._models)) != self._kept:
            self._kept = text
            self._cache.keep_listing(self.url.text, text)

    def _check_level(self, models: Mapping[str, ListedModel], paths: Collection[str]) -> None:
        versions = [name for name in models if name.isdecimal()]
        is_model = _CONFIG in paths or any(
            path.startswith("model.") for name in versions for path in models[name].files
        )
        if versions and is_model:
            parent = self.url.text.rpartition("/")[0]
            raise ConfigInvalid(f"'{self.url.text}' looks like a model, expected its model repository: '{parent}'")

    def _take(self, models: Mapping[str, ListedModel]) -> None:
        for name, model in models.items():
            self._models[name] = self._same(model)
            self._make_folder(name)
        self._missing = {name: self._missing.get(name, 0) + 1 for name in self._models.keys() - models.keys()}
        for name, looks in self._missing.items():
            # one listing may have missed it
            if looks >= _LOOKS_UNTIL_GONE or name not in self._here:
                self._drop(name)

    def _same(self, model: ListedModel) -> ListedModel:
        before = self._models.get(model.name)
        return before if before == model else model

    def _make_folder(self, name: str) -> None:
        # a name that cannot be one is told of when the model is read
        with suppress(OSError, ValueError):
            (self.path / name).mkdir(exist_ok=True)

    def _drop(self, name: str) -> None:
        del self._models[name]
        self._here.pop(name, None)
        shutil.rmtree(self.path / name, ignore_errors=True)

    # --- one model ---

    def _fetching_of(self, name: str) -> threading.Lock:
        with self._lock:
            return self._fetching.setdefault(name, threading.Lock())

    def _fetch(self, listed: ListedModel, config_name: str | None, config: ModelConfig | None) -> bool:
        """Whether all of it is here, as it was listed"""
        versions = {str(version) for version in listed.versions}
        frame = {path: one for path, one in listed.files.items() if path.partition("/")[0] not in versions}
        has_fetched = self._have(listed.name, frame)
        wanted = self._wanted_versions(listed, config or self._config(frame, config_name))
        folders = {folder for folder in listed.folders if folder.partition("/")[0] not in versions - wanted}
        files = {path: one for path, one in listed.files.items() if path.partition("/")[0] not in versions - wanted}
        has_fetched |= self._have(listed.name, files)
        if has_fetched and len(files) > 1:
            # each of them is what was listed, but perhaps not at the same time
            self.look_for(listed.name)
            if self.model(listed.name) is not listed:
                return False
        return self._place(listed.name, files, folders)

    def _config(self, frame: Mapping[str, Object], config_name: str | None) -> ModelConfig | None:
        named = f"configs/{config_name}.pbtxt"
        one = (frame.get(named) if config_name else None) or frame.get(_CONFIG)
        if one is None:
            return None
        try:
            return read(self._cache.file(self._key(one)))
        except KushiError:
            # what is wrong with it is told when it is read in its place
            return None

    def _wanted_versions(self, listed: ListedModel, config: ModelConfig | None) -> set[str]:
        return {str(version) for version in served(config or ModelConfig(), listed.versions)}

    def _have(self, name: str, files: Mapping[str, Object]) -> bool:
        """These files are in the cache from now on; whether one of them had to be fetched"""
        if not self._left(files):
            return False
        what = f"{self.url.text}/{name}"
        with self._cache.fetching(what):
            # another server may have fetched some
            if left := self._left(files):
                self._cache.make_room(sum(one.size for one in left.values()))
                self._download(what, left)
        return True

    def _left(self, files: Mapping[str, Object]) -> dict[str, Object]:
        keys = {self._key(one): one for one in files.values()}
        return {key: one for key, one in keys.items() if not self._cache.has(key, one.size)}

    def _download(self, what: str, left: Mapping[str, Object]) -> None:
        with self._cache.beside() as folder:
            download(self._store, what, [(one, folder / key) for key, one in left.items()])
            self._cache.put({key: folder / key for key in left})

    def _place(self, name: str, files: Mapping[str, Object], folders: Collection[str]) -> bool:
        """The folder of the model has these files and folders from now on; False where a file is not in the cache"""
        folder = self.path / name
        wanted = {path: self._key(one) for path, one in files.items()}
        here = self._here.setdefault(name, {})
        for path in sorted(here.keys() - wanted.keys()):
            (folder / path).unlink(missing_ok=True)
            del here[path]
            _remove_empty(folder, Path(path).parent, folders)
        for path in sorted(folders):
            (folder / path).mkdir(parents=True, exist_ok=True)
        for path, key in wanted.items():
            if here.get(path) == key and (folder / path).exists():
                continue
            here.pop(path, None)
            if not self._cache.place(key, files[path].size, folder / path):
                return False
            here[path] = key
        return True

    def _key(self, one: Object) -> str:
        """Another one stands for another content"""
        stated = (
            self.url.kind,
            self.url.endpoint,
            self.url.account,
            self.url.bucket,
            self.url.prefix,
            one.path,
            one.tag,
        )
        return hashlib.blake2b("\0".join(stated).encode(errors="surrogateescape"), digest_size=20).hexdigest()


def _remove_empty(folder: Path, inside: Path, kept: Collection[str]) -> None:
    """The folders of a file that is gone, unless they are wanted or something else lies in them"""
    for path in (inside, *inside.parents):
        if str(path) == "." or str(path) in kept:
            return
        try:
            (folder / path).rmdir()
        except OSError:
            return
