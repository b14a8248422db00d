"""Where the models of an engine come from: folders of this machine, model files, and buckets"""

from __future__ import annotations

import logging
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ..environment import cache_directory, variable
from ..repository.contents import look
from ..repository.layout import read_source
from .store import Changed, StoreUnreachable
from .url import bucket_url

if TYPE_CHECKING:
    from collections.abc import Iterable

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
        self._buckets: dict[Path, Bucket] = {}
        self._served: Served | None = None
        paths: dict[Path, None] = {}
        for one in stated:
            if url := bucket_url(one):
                if url.text not in self.names:
                    bucket = self._opened(url, cache, most_bytes)
                    self._buckets[bucket.path] = bucket
                    paths[bucket.path] = None
                    self.names.append(url.text)
            elif Path(one) not in paths:
                paths[Path(one)] = None
                self.names.append(str(one))
        self.paths = tuple(paths)

    def begin(self) -> None:
        """Lists the buckets; raises where one of them cannot be, and was not before"""
        for bucket in self._buckets.values():
            bucket.begin()

    def sketch(self) -> None:
        """All models, as far as they are read to be checked; a model that cannot be is told of when it is"""
        for bucket in self._buckets.values():
            for name in bucket.names():
                with suppress(Changed):
                    bucket.sketch(name)

    def bucket_at(self, path: Path) -> Bucket | None:
        """The one whose models have their folders there"""
        return self._buckets.get(path)

    def look_for(self, name: str) -> None:
        """Lists one model again; where that cannot be done now, what was listed before counts until it was fetched"""
        for bucket in self._buckets.values():
            try:
                bucket.look_for(name)
            except StoreUnreachable as error:
                if bucket.is_here(name) or bucket.model(name) is None:
                    raise
                _LOG.warning("%s; model '%s' is loaded as it was listed before", error, name)

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

    def shown(self, text: str) -> str:
        """With the URLs of buckets in place of folders here"""
        for bucket in self._buckets.values():
            text = bucket.shown(text)
        return text

    def close(self) -> None:
        """What was fetched for this engine goes; the files stay for the next one"""
        if self._served:
            self._served.close()

    def _opened(self, url: BucketUrl, cache: str | None, most_bytes: int) -> Bucket:
        from .bucket import Bucket  # noqa: PLC0415 - what folders do without
        from .cache import Cache  # noqa: PLC0415 - as above

        if self._served is None:
            directory = Path(cache or variable(_MOUNTS[url.kind]) or cache_directory() / "buckets")
            self._served = Cache(directory.absolute(), most_bytes).served()
        return Bucket(url, self._served)
