"""Where the protocol's routes of a Bento lead to: the HTTP of its own engine, or of one on another host"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Self
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from ..place import Place

__all__ = ["Origin"]


@dataclass(frozen=True)
class Origin:
    """An engine that speaks HTTP"""

    url: str
    """For a Client of it"""
    address: Path | tuple[str, int]
    host: bytes | None = None
    """In the place of the Host that a client sent, which names the Bento and not this one"""
    prefix: bytes = b""
    secure: bool = False
    """Speaks TLS"""
    handover: Path | None = None
    """Where it takes connections that speak gRPC; None: nowhere"""

    @classmethod
    def at(cls, place: Place, *, speaks_grpc: bool) -> Self:
        return cls(f"unix://{place.local}", place.http, handover=place.grpc if speaks_grpc else None)

    @classmethod
    def of(cls, url: str) -> Self | None:
        """None where another protocol is spoken"""
        parts = urlsplit(url.strip())
        secure = parts.scheme == "https"
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            return None
        address = parts.hostname, parts.port or (443 if secure else 80)
        return cls(url, address, parts.netloc.encode(), parts.path.rstrip("/").encode(), secure)
