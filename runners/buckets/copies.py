"""What lies in a bucket of a model, to be compared with what lay there before as files of a folder are"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Protocol

from ..repository.contents import Contents, File

if TYPE_CHECKING:
    from pathlib import Path

    from .listing import ListedModel, Object
    from .url import BucketUrl

__all__ = ["Fetched", "Listed"]


class _Bucket(Protocol):
    url: BucketUrl
    path: Path

    def model(self, name: str) -> ListedModel | None: ...


class Listed(Contents):
    """The files of a model as they were listed last"""

    def __init__(self, bucket: _Bucket, name: str, model: ListedModel | None) -> None:
        super().__init__(bucket.path / name, "")
        self._bucket, self._name, self._model = bucket, name, model
        if model:
            self.files = {path: File(_state(one), _digest(one)) for path, one in model.files.items()}
            self.directories = dict.fromkeys({"", *model.folders}, (0, 0, 0, 0, 0))

    def path(self, path: str) -> str:
        return f"{self._bucket.url.text}/{self._name}{f'/{path}' if path else ''}"

    def again(self) -> Contents:
        now = self._bucket.model(self._name)
        return self if now is self._model else Listed(self._bucket, self._name, now)


class Fetched(Listed):
    """The same of a model whose files are here: they stay as they are"""

    def __init__(self, bucket: _Bucket, model: ListedModel) -> None:
        super().__init__(bucket, model.name, model)
        self.is_copy = True

    def again(self) -> Contents:
        return self


def _digest(one: Object) -> bytes:
    return hashlib.blake2b(f"{one.tag}\0{one.size}".encode(errors="surrogateescape"), digest_size=16).digest()


def _state(one: Object) -> tuple[int, int, int, int, int]:
    """What changes when the object does"""
    return 0, int.from_bytes(_digest(one)[:7], "big"), one.size, 0, 0
