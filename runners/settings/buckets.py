"""Buckets: where what is fetched from them lies on this machine"""

from dataclasses import dataclass

from .definition import Group, setting
from .kinds import Integer, Text

__all__ = ["BucketOptions"]

_MOST_BYTES = 10**18


@dataclass(frozen=True, kw_only=True)
class BucketOptions(Group):
    """Where models of buckets (s3://, gs://, as://) are kept on this machine."""

    title = "models"

    directory: str | None = setting(
        "bucket-cache-directory",
        Text("DIR"),
        "Directory for the files of models in buckets, for all servers of this user; it stays, so that a start fetches "
        "what has changed alone (default: ~/.cache/kushi/buckets).",
        default=None,
    )
    most_bytes: int = setting(
        "bucket-cache-bytes",
        Integer(0, _MOST_BYTES),
        "Bytes that this directory may have; files that no server uses go before it has more.",
        default=100_000_000_000,
    )
