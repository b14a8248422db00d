"""
The files of a bucket on this machine: taken from the cache, or fetched, and put into the folders of models.

Files that are wanted are gathered first, under their keys, and put in place when all are there. What was gathered does
not go from the cache.
"""

from __future__ import annotations

import hashlib
import shutil
from contextlib import suppress
from typing import TYPE_CHECKING

from ..repository.versions import version_number
from .cache import is_same
from .download import download

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping
    from pathlib import Path

    from .cache import Served
    from .listing import Object
    from .store import Store

__all__ = ["Files", "hashed"]


class Files:
    """Those of one bucket, for one engine"""

    def __init__(self, store: Store, place: tuple[str, ...], served: Served) -> None:
        """place: of the bucket, by which its objects are told from those of others"""
        self._store, self._place = store, place
        self._served, self._cache = served, served.cache

    def ready(self, one: Object) -> Path:
        """Where an object lies that was gathered"""
        return self._served.new / self._key(one)

    def gather(self, model: str, objects: Collection[Object]) -> bool:
        """They lie ready to be put in place from now on; whether one of them had to be fetched"""
        if not self._lacking(objects):
            return False
        self._served.check_open()
        what = f"{self._store.url.text}/{model}"
        with self._cache.fetching(hashed((*self._place, model)), what):
            # another server may have fetched some
            if lacking := self._lacking(objects):
                self._cache.make_room(sum(one.size for one in lacking))
                download(self._store, what, [(one, self._part(one)) for one in lacking])
                for one in lacking:
                    self._part(one).replace(self.ready(one))
                    self._cache.put(self._key(one), one.size, self.ready(one))
                self._cache.settle([self._key(one) for one in lacking])
        return True

    def put_in_place(
        self, folder: Path, here: dict[str, str], files: Mapping[str, Object], folders: Collection[str]
    ) -> None:
        """
        The folder of a model has these files and folders from now on; `here`: the files that it had before, with their
        keys, which becomes those that it has
        """
        self._served.check_open()
        for path in sorted(here.keys() - files.keys()):
            (folder / path).unlink(missing_ok=True)
            del here[path]
        _remove_others(folder, folders)
        # what the model has written in their places goes
        for path in sorted({"", *folders}):
            if (folder / path).is_file():
                (folder / path).unlink()
            (folder / path).mkdir(parents=True, exist_ok=True)
        for path, one in files.items():
            key, ready = self._key(one), self.ready(one)
            if here.get(path) == key and is_same(folder / path, ready):
                ready.unlink()
            else:
                if (folder / path).is_dir():
                    shutil.rmtree(folder / path)
                ready.replace(folder / path)
                here[path] = key

    def clear(self, objects: Iterable[Object]) -> None:
        """What was gathered and not put in place is of no use"""
        for one in objects:
            self.ready(one).unlink(missing_ok=True)
            self._part(one).unlink(missing_ok=True)

    def _lacking(self, objects: Iterable[Object]) -> list[Object]:
        """Those that do not lie ready, and cannot be taken from the cache"""
        return [
            one
            for one in objects
            if not self.ready(one).exists() and not self._cache.take(self._key(one), one.size, self.ready(one))
        ]

    def _part(self, one: Object) -> Path:
        """Of a file that is not whole yet"""
        return self._served.new / f"{self._key(one)}.part"

    def _key(self, one: Object) -> str:
        """Another one stands for another content"""
        return hashed((*self._place, one.path, one.tag, str(one.size)))


def hashed(words: tuple[str, ...]) -> str:
    """A name that no other words have"""
    return hashlib.blake2b("\0".join(words).encode(errors="surrogateescape"), digest_size=20).hexdigest()


def _remove_others(folder: Path, kept: Collection[str]) -> None:
    """Versions that are not among the folders go with all that lies in them, and other folders that are empty by now"""
    if not folder.exists():
        return
    for inside in sorted((path for path in folder.rglob("*") if path.is_dir()), reverse=True):
        path = inside.relative_to(folder).as_posix()
        if path in kept or not inside.exists():
            continue
        if "/" not in path and version_number(path) is not None:
            shutil.rmtree(inside, ignore_errors=True)
        else:
            with suppress(OSError):
                inside.rmdir()
