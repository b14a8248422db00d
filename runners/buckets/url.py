"""The URL of a repository in a bucket, in the forms that Triton takes and in those of each store's own tools"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from ..errors import ConfigInvalid

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["BucketUrl", "Kind", "bucket_url"]

Kind = Literal["s3", "gs", "as"]
_SCHEMES: Final[dict[str, Kind]] = {"s3": "s3", "gs": "gs", "gcs": "gs", "as": "as", "az": "as"}
_FORMS: Final[dict[str, str]] = {
    "s3": "s3://BUCKET/PATH or s3://https://HOST:PORT/BUCKET/PATH",
    "gs": "gs://BUCKET/PATH",
    "as": "as://ACCOUNT/CONTAINER/PATH or az://CONTAINER/PATH",
}
# a Path has made one slash of two
_URL: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):/{1,2}(?:(https?):/{1,2})?(.*)", re.DOTALL)
_HOST_WITH_PORT: Final = re.compile(r"([A-Za-z0-9.-]+|\[[0-9A-Fa-f:.]+\]):[0-9]{1,5}")
_BUCKET: Final = re.compile(r"[A-Za-z0-9$][A-Za-z0-9._$-]*")


@dataclass(frozen=True)
class BucketUrl:
    """Where a repository lies"""

    text: str
    """As it was stated, which errors name"""
    kind: Kind
    bucket: str
    prefix: str = ""
    """The folder of the repository in it; "" for all of it"""
    endpoint: str = ""
    """Of a store that is not the usual one of its kind"""
    account: str = ""
    """Of Azure, where the URL states it"""


def bucket_url(repository: str | Path) -> BucketUrl | None:
    """Where a repository lies in a bucket; None where it is a folder, or a file"""
    match = _URL.fullmatch(str(repository))
    if match is None:
        return None
    scheme, protocol, rest = match[1].lower(), match[2] or "", match[3]
    kind = _SCHEMES.get(scheme)
    if kind is None:
        known = ", ".join(f"{one}://" for one in _SCHEMES)
        raise ConfigInvalid(f"model repository '{repository}': expected a directory, or a URL that begins with {known}")
    text = f"{scheme}://{f'{protocol}://' if protocol else ''}{rest}"
    parts = rest.rstrip("/").split("/")
    endpoint = account = ""
    if kind == "s3" and (protocol or _HOST_WITH_PORT.fullmatch(parts[0])):
        # without a protocol it is HTTP, as Triton has it
        endpoint = f"{protocol or 'http'}://{parts.pop(0)}"
    elif scheme == "as":
        account = parts.pop(0).partition(".")[0]
    if "@" in endpoint:
        raise ConfigInvalid(f"model repository '{scheme}://…': a URL has no place for a user or a password")
    bucket, *folders = parts or [""]
    if not _BUCKET.fullmatch(bucket) or (scheme == "as" and not account) or (protocol and not endpoint):
        raise ConfigInvalid(f"model repository '{text}': expected {_FORMS[kind]}")
    if {"", ".", ".."} & {*folders}:
        raise ConfigInvalid(f"model repository '{text}': expected no empty parts, '.' or '..' in it")
    return BucketUrl(text.rstrip("/"), kind, bucket, "/".join(folders), endpoint, account)
