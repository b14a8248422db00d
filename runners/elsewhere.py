"""An engine that services of BentoML find elsewhere: what the variables KUSHI_ENGINE_* say about it."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, overload

from .environment import variables
from .errors import not_shown

__all__ = ["ENGINE_VARIABLES", "Elsewhere", "engine_elsewhere"]

_PREFIX = "KUSHI_ENGINE_"
ENGINE_VARIABLES = tuple(f"{_PREFIX}{name}" for name in ("URL", "HEADERS", "CA_CERT", "CLIENT_CERT", "CLIENT_KEY"))


@dataclass(frozen=True)
class Elsewhere:
    """An engine that is not in a process of the service's own, and what a Client of it needs"""

    url: str
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    ca_cert: str | None = None
    client_cert: str | None = None
    client_key: str | None = None

    @property
    def options(self) -> dict[str, Any]:
        """For a Client of it: those that its scheme has"""
        scheme = self.url.strip().partition(":")[0].lower()
        headers = {"headers": self.headers} if scheme in {"http", "https", "grpc", "grpcs"} else {}
        return {**headers, **self.files} if scheme in {"https", "grpcs"} else headers

    @property
    def files(self) -> dict[str, str | None]:
        """Those of TLS"""
        return {"ca_cert": self.ca_cert, "client_cert": self.client_cert, "client_key": self.client_key}


@overload
def engine_elsewhere(url: str) -> Elsewhere: ...


@overload
def engine_elsewhere(url: str | None = None) -> Elsewhere | None: ...


def engine_elsewhere(url: str | None = None) -> Elsewhere | None:
    """
    Where services of BentoML shall find their engine, if not in a process of their own: at `url`, or KUSHI_ENGINE_URL.

    KUSHI_ENGINE_HEADERS is what their requests carry, `NAME=VALUE` separated by semicolons, and KUSHI_ENGINE_CA_CERT,
    KUSHI_ENGINE_CLIENT_CERT and KUSHI_ENGINE_CLIENT_KEY are the files of TLS.
    """
    given = variables(_PREFIX)
    variable, headers, *files = (given.get(name) or None for name in ENGINE_VARIABLES)
    found = url or variable
    return Elsewhere(found, dict(_headers(headers or "")), *files) if found else None


def _headers(text: str) -> Iterator[tuple[str, str]]:
    for part in filter(None, map(str.strip, text.split(";"))):
        name, equals, value = part.partition("=")
        if not (name and equals and value):
            raise not_shown(f"{_PREFIX}HEADERS", "NAME=VALUE, several of them separated by semicolons")
        yield name.strip(), value.strip()
