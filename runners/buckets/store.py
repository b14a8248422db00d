"""The store of one bucket: what is listed there, and parts of objects, by way of obstore"""

from __future__ import annotations

import re
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from ..errors import ConfigInvalid, KushiError, ModelUnavailable
from .aside import aside
from .credentials import config_of, provider_of
from .listing import Object

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from .url import BucketUrl

__all__ = ["Changed", "OddName", "Store", "StoreUnreachable"]

_CONNECT_SECONDS: Final = 5
_READ_SECONDS: Final = 15
"""Between two pieces of an answer"""
_RETRY_SECONDS: Final = 30
_RETRIES: Final = 6
_TRIES: Final = 2
_MOST_OF_A_REASON: Final = 400
_STATUS: Final = re.compile(r"status code: (\d{3})")
_REFUSED: Final = frozenset({"400", "401", "403", "404"})
_SECRET: Final = re.compile(r"(?i)\b([\w-]*(?:sig|signature|token|credential))=[^&\s]*")
_AROUND: Final = re.compile(r"^(Generic \w+ error: |Error performing list request: |Error performing )+")
_OF_ONE_TRY: Final = re.compile(
    r" in [\d.]+[µnm]?s(, after \d+ retries)?(, max_retries: \d+, retry_timeout: [\w.]+)?( -)?"
)
_OF_ONE_ANSWER: Final = re.compile(r"RequestId:\S+|Time:\S+")
_TIME: Final = "time "
"""How the tag of an object begins whose store has none"""


class StoreUnreachable(ModelUnavailable):
    """Nobody answers for the bucket, or nobody but with faults of its own"""


class Changed(ModelUnavailable):
    """An object is not any more what was listed"""


class OddName(ConfigInvalid):
    """An object whose name has parts that no path has: nothing that is listed with it can be read"""


class Store:
    """The objects of a repository; each call may wait for the network"""

    def __init__(self, url: BucketUrl) -> None:
        self.url = url
        self._store, self._api = _opened(url)

    def objects(self, folder: str = "") -> list[Object]:
        """All of them, or those of one folder, as they are now"""
        for _ in range(_TRIES - 1):
            # where an answer breaks off, nobody else asks again
            with suppress(StoreUnreachable):
                return self._objects(folder)
        return self._objects(folder)

    def _objects(self, folder: str) -> list[Object]:
        try:
            # it begins at whole names
            found = aside(lambda: [*_listed(self._api.list(self._store, folder or None))])
        except KushiError:
            raise
        except Exception as error:
            raise self._failure(error, "cannot be listed") from error
        return [Object(one["path"], one["size"], _tag(one)) for one in found]

    def folders(self) -> list[str]:
        """The names of the folders at its top"""
        try:
            found = aside(lambda: self._api.list_with_delimiter(self._store)["common_prefixes"])
        except KushiError:
            raise
        except Exception as error:
            raise self._failure(error, "cannot be listed") from error
        return [path.rpartition("/")[2] for path in found]

    def read(self, wanted: Object, start: int, end: int) -> memoryview:
        """These bytes of an object, if it is still the one that was listed"""
        options: dict[str, Any] = {"range": (start, end)}
        if not wanted.tag.startswith(_TIME):
            options["if_match"] = f'"{_bare(wanted.tag)}"'
        try:
            answer = self._api.get(self._store, wanted.path, options=options)
            content = memoryview(answer.bytes())
        except Exception as error:
            raise self._failure(error, f"'{wanted.path}' cannot be read") from error
        # not each store heeds the condition
        tag = _time(answer.meta) if wanted.tag.startswith(_TIME) else _tag(answer.meta)
        if _bare(tag) != _bare(wanted.tag) or answer.meta["size"] != wanted.size:
            raise self._changed(wanted.path)
        if len(content) != end - start:
            raise StoreUnreachable(
                f"'{self.url.text}': '{wanted.path}' cannot be read: {len(content)} bytes came of {end - start}"
            )
        return content

    def write(self, path: str, content: bytes) -> None:
        """Puts a small object there"""
        try:
            self._api.put(self._store, path, content)
        except Exception as error:
            raise self._failure(error, f"'{path}' cannot be written") from error

    def delete(self, path: str) -> None:
        """Takes an object away"""
        try:
            self._api.delete(self._store, path)
        except FileNotFoundError:
            pass
        except Exception as error:
            raise self._failure(error, f"'{path}' cannot be deleted") from error

    def _changed(self, path: str) -> Changed:
        return Changed(f"'{self.url.text}': '{path}' has changed since it was listed")

    def _failure(self, error: Exception, what: str) -> KushiError:
        from obstore import exceptions  # noqa: PLC0415 - loaded with the first bucket

        text = _text(error)
        code = found[1] if (found := _STATUS.search(text)) else ""
        failure: KushiError = StoreUnreachable(f"'{self.url.text}' {what}: {text}")
        if isinstance(error, FileNotFoundError | exceptions.PreconditionError) or code in {"412", "416"}:
            failure = Changed(f"'{self.url.text}': {what}: it has changed since it was listed, or is gone")
        elif isinstance(error, exceptions.InvalidPathError) or "InvalidPath" in str(error):
            failure = OddName(f"'{self.url.text}' {what}: there is an object with an odd name: {text}")
        elif code == "301":
            failure = ConfigInvalid(f"'{self.url.text}' {what}: the bucket is in another region: set AWS_REGION")
        elif code == "404" and "NoSuchBucket" in text:
            failure = ConfigInvalid(f"'{self.url.text}': there is no bucket '{self.url.bucket}'")
        elif isinstance(error, _refusals()) or (code in _REFUSED and "RequestTimeout" not in text):
            # whoever mends it may change what it was opened with
            with suppress(KushiError):
                self._store, self._api = _opened(self.url)
            failure = ConfigInvalid(f"'{self.url.text}' {what}: the store refuses: {text}")
        return failure


def _refusals() -> tuple[type[Exception], ...]:
    """Asking again is of no use before somebody has done something"""
    from obstore import exceptions  # noqa: PLC0415 - loaded with the first bucket

    return exceptions.PermissionDeniedError, exceptions.UnauthenticatedError, exceptions.NotSupportedError


def _text(error: Exception) -> str:
    """The same each time, without what a library says to its own developers, and without signatures"""
    text = " ".join(str(error).partition("\n\nDebug source")[0].split())
    head, mark, body = text.partition(": <")
    if mark:
        # of what the store says, the rest may have keys in it
        said = (found[1] for name in ("Code", "Message") if (found := re.search(f"<{name}>([^<]*)</{name}>", body)))
        text = ": ".join([head, *said])
    text = _OF_ONE_ANSWER.sub("", _OF_ONE_TRY.sub(":", _AROUND.sub("", text)))
    return _SECRET.sub(r"\1=…", text)[:_MOST_OF_A_REASON]


def _listed(pages: Any) -> Iterator[Mapping[str, Any]]:  # noqa: ANN401 - of a library without types here
    for page in pages:
        yield from page


def _tag(about: Mapping[str, Any]) -> str:
    return about["e_tag"] or _time(about)


def _time(about: Mapping[str, Any]) -> str:
    return f"{_TIME}{about['last_modified'].isoformat()}"


def _bare(tag: str) -> str:
    """Listings of some stores have it without quotes"""
    return tag.removeprefix("W/").strip('"')


def _opened(url: BucketUrl) -> tuple[Any, Any]:
    try:
        import obstore  # noqa: PLC0415 - of an extra, for repositories in buckets alone
        from obstore import store  # noqa: PLC0415 - as above
    except ImportError:
        raise ConfigInvalid(
            f"model repository '{url.text}': buckets are read by obstore, which is not installed: "
            "pip install 'kushi[buckets]'"
        ) from None
    makes = {"s3": store.S3Store, "gs": store.GCSStore, "as": store.AzureStore}[url.kind]
    options: dict[str, Any] = {
        "client_options": {
            "allow_http": True,
            "connect_timeout": timedelta(seconds=_CONNECT_SECONDS),
            "read_timeout": timedelta(seconds=_READ_SECONDS),
            # no part of an object is so large, and no answer so slow, that it takes longer
            "timeout": timedelta(minutes=10),
        },
        "retry_config": {
            "max_retries": _RETRIES,
            "retry_timeout": timedelta(seconds=_RETRY_SECONDS),
            "backoff": {"max_backoff": timedelta(seconds=5)},
        },
    }
    try:
        if provider := provider_of(url):
            options["credential_provider"] = provider
        return makes(url.bucket, prefix=url.prefix or None, config=config_of(url), **options), obstore
    except KushiError:
        raise
    except Exception as error:
        raise ConfigInvalid(f"model repository '{url.text}' cannot be opened: {_text(error)}") from error
