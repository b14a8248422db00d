"""Where the models of an engine come from: folders of this machine, model files, and buckets"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ..environment import cache_directory, variable
from ..errors import ConfigInvalid, KushiError
from ..repository.contents import look
from ..repository.layout import find, read_source
from .store import StoreUnreachable
from .url import bucket_url

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ..repository.contents import Contents
    from ..repository.layout import ModelSource
    from ..repository.messages import ModelConfig
    from .bucket import Bucket
    from .cache import Served
    from .url import BucketUrl

__all__ = ["Repositories"]

_LOG = logging.getLogger(__name__)
_MOUNTS: Final = {
    "s3": "TRITON_AWS_MOUNT_DIRECTORY",
    "gs": "TRITON_GCS_MOUNT_DIRECTORY",
    "as": "TRITON_AZURE_MOUNT_DIRECTORY",
}
"""Where Triton copies models to"""


class Repositories:
    """All of one engine. Nothing is read before they begin"""

    def __init__(self, stated: Iterable[str | Path], cache: str | None = None, most_bytes: int = 0) -> None:
        """cache: the directory of what is fetched from buckets. most_bytes: of it, as far as it is not in use"""
        self.names: list[str] = []
        """As people call them"""
        self.is_used: Callable[[str], bool] = lambda _: False
        """Whether a model of this name serves"""
        self._buckets: dict[Path, Bucket] = {}
        self._served: dict[Path, Served] = {}
        paths: dict[Path, str] = {}
        places: set[tuple[str, ...]] = set()
        for one in stated:
            if url := bucket_url(one):
                from .credentials import place_of  # noqa: PLC0415 - what folders do without

                if (place := place_of(url)) not in places:
                    places.add(place)
                    bucket = self._opened(url, cache, most_bytes)
                    self._buckets[bucket.path] = bucket
                    paths[bucket.path] = url.text
            else:
                paths.setdefault(Path(one), str(one))
        self.paths, self.names = tuple(paths), [*paths.values()]

    def begin(self) -> None:
        """Lists the buckets; raises where one of them cannot be, and was not before"""
        for bucket in self._buckets.values():
            bucket.begin()

    def sketch(self) -> dict[str, KushiError]:
        """All models of buckets, as far as they are read to be checked; answers which cannot be, and why"""
        failures: dict[str, KushiError] = {}
        for bucket in self._buckets.values():
            for name in bucket.names():
                try:
                    bucket.sketch(name)
                except KushiError as error:
                    failures[name] = error
                except OSError as error:
                    failures[name] = ConfigInvalid(f"'{bucket.url.text}/{name}' cannot be a folder: {error.strerror}")
        return failures

    def bucket_at(self, path: Path) -> Bucket | None:
        """The one whose models have their folders there"""
        return self._buckets.get(path)

    def find(self, name: str, config_name: str | None, *, lists: bool) -> ModelSource | None:
        """
        The model of this name; with `lists` buckets say anew whether they have it. One that cannot say so fails the
        models alone that nobody else has
        """
        paths: list[Path] = []
        failures: list[KushiError] = []
        for path in self.paths:
            bucket = self._buckets.get(path)
            try:
                if bucket is None or _has(bucket, name, lists=lists):
                    paths.append(path.absolute())
            except KushiError as error:
                failures.append(error)
        source = find(paths, name, config_name)
        for failure in failures:
            if source is None:
                raise failure
            _LOG.warning("model '%s' is taken from '%s', though: %s", name, self.shown(str(source.path)), failure)
        return source

    def here(
        self, source: ModelSource, config_name: str | None, config: ModelConfig | None = None
    ) -> tuple[ModelSource, Contents]:
        """
        A model whose files are on this machine, and what they were before anything was read; `config`: what takes the
        place of its own
        """
        bucket = self._buckets.get(source.path.parent)
        if bucket is None:
            # first, so that what is written later is seen as a change
            return source, look(source.path.absolute())
        contents = bucket.fetch(source.name, config_name, config)
        return read_source(source.path, config_name), contents

    def contents(self, place: Path) -> Contents:
        """What lies there now, or did when its bucket was listed last"""
        bucket = self._buckets.get(place.parent)
        return bucket.contents(place.name) if bucket else look(place)

    def put(self, model: Path, name: str, content: bytes | None) -> None:
        """A small file of a model that came from a bucket is that there from now on, or goes"""
        if bucket := self._buckets.get(model.parent):
            bucket.put(f"{model.name}/{name}", content)

    def unloaded(self, name: str) -> None:
        """A model serves no more"""
        for bucket in self._buckets.values():
            bucket.unloaded(name)

    def shown(self, text: str) -> str:
        """With the URLs of buckets in place of folders here"""
        for bucket in self._buckets.values():
            text = bucket.shown(text)
        return text

    def close(self) -> None:
        """What was fetched for this engine goes; the files stay for the next one"""
        for served in self._served.values():
            served.close()

    def _opened(self, url: BucketUrl, cache: str | None, most_bytes: int) -> Bucket:
        from .bucket import Bucket  # noqa: PLC0415 - what folders do without
        from .cache import Cache  # noqa: PLC0415 - as above

        directory = Path(cache or variable(_MOUNTS[url.kind]) or cache_directory() / "buckets").absolute()
        if directory not in self._served:
            self._served[directory] = Cache(directory, most_bytes).served()
        return Bucket(url, self._served[directory], lambda name: self.is_used(name))  # noqa: PLW0108 - which is set later


def _has(bucket: Bucket, name: str, *, lists: bool) -> bool:
    """Where it cannot say so now, what was listed before counts for a model that does not serve"""
    if lists:
        try:
            bucket.look_for(name)
        except StoreUnreachable as error:
            if bucket.is_used(name) or bucket.model(name) is None:
                raise
            _LOG.warning("%s; model '%s' is loaded as it was listed before", error, name)
    return bucket.model(name) is not None
