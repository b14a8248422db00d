"""
The doors of a server, one row for each: what it is called, where it is wanted, how an engine opens it.

Whether a door could be opened is found out before models are loaded. Nothing listens here: opening it is the native
core's, and what it says counts. The texts are those of the core.
"""

from __future__ import annotations

import socket
from dataclasses import dataclass
from errno import EADDRINUSE
from pathlib import Path
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from .errors import ConfigInvalid, about

if TYPE_CHECKING:
    from collections.abc import Callable

    from .engine import Engine
    from .settings import Doors

__all__ = ["DOORS", "Door", "Tcp", "Unix", "exposed", "probe_all"]

_EVERYWHERE = {"0.0.0.0", "::"}  # noqa: S104 - compared alone


@dataclass(frozen=True)
class Tcp:
    """An address and a port"""

    address: str
    port: int
    reuse_port: bool = False
    tls: bool = False

    def __str__(self) -> str:
        return f"{self.address}:{self.port}"

    def probe(self) -> None:
        """Raises when the port cannot be bound; port 0 always can"""
        try:
            family, kind, protocol, _, at = socket.getaddrinfo(self.address, self.port, type=socket.SOCK_STREAM)[0]
            with socket.socket(family, kind, protocol) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                if self.reuse_port:
                    probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
                probe.bind(at)
        except OSError as error:
            if error.errno == EADDRINUSE:
                raise ConfigInvalid(
                    f"Socket '{self}' already in use: choose another port, or stop what listens there"
                ) from None
            raise ConfigInvalid(f"cannot listen on {self}: {error.strerror or error}") from None

    def collides(self, other: Tcp) -> bool:
        """Whether both cannot be open at once; every port 0 is another one"""
        if not self.port == other.port != 0:
            return False
        (family, address), (others, theirs) = self._found(), other._found()
        return family == others and (address == theirs or not {address, theirs}.isdisjoint(_EVERYWHERE))

    def _found(self) -> tuple[int, str]:
        """The family of its address, and the address as numbers"""
        family, *_, at = socket.getaddrinfo(self.address, self.port, type=socket.SOCK_STREAM)[0]
        return family, str(at[0])

    def opened(self, port: int | None) -> str:
        """Where something listens now"""
        return f"{self.address}:{port}"


@dataclass(frozen=True)
class Unix:
    """The path of a Unix socket"""

    path: str

    def __str__(self) -> str:
        return self.path

    def probe(self) -> None:
        """Raises when the socket cannot be made; a socket that nobody listens on any more will be replaced"""
        path, refused = Path(self.path), f"cannot listen on the socket {self}"
        if path.exists() and not path.is_socket():
            raise ConfigInvalid(f"{refused}: it exists and is not a socket")
        if not path.parent.is_dir():
            raise ConfigInvalid(f"{refused}: '{path.parent}' is not a directory")
        with socket.socket(socket.AF_UNIX) as probe:
            probe.settimeout(0)  # a listener too busy to accept is alive all the same
            try:
                probe.connect(self.path)
            except (FileNotFoundError, ConnectionRefusedError):
                return
            except BlockingIOError:
                pass
            except OSError as error:
                raise ConfigInvalid(f"{refused}: {error.strerror or error}") from None
        raise ConfigInvalid(f"Socket '{self}' already in use: choose another path, or stop what listens there")

    def opened(self, port: int | None) -> str:  # noqa: ARG002 - a socket has none
        """Where something listens now"""
        return f"unix://{self.path}"


class _Place(Protocol):
    def probe(self) -> None: ...
    def opened(self, port: int | None) -> str: ...


_P = TypeVar("_P", bound=_Place)


@dataclass(frozen=True)
class Door(Generic[_P]):
    """One row"""

    service: str
    """In the text of a failure"""
    logged: str
    """In the log when it is open"""
    place: Callable[[Doors], _P | None]
    """Where it is wanted, None where it is not"""
    serve: Callable[[Engine, _P], int | None]
    """Opens it, and answers the port if it has one"""

    def probe(self, settings: Doors) -> None:
        """Raises when it is wanted and cannot be opened"""
        if place := self.place(settings):
            with about(self._failure(place)):
                place.probe()

    def open(self, engine: Engine, settings: Doors) -> str | None:
        """Opens it if it is wanted, and answers what the log says then"""
        if not (place := self.place(settings)):
            return None
        with about(self._failure(place)):
            port = self.serve(engine, place)
        return f"Started {self.logged} at {place.opened(port)}"

    def _failure(self, place: _P) -> str:
        return f"failed to start {self.service} at {place}"


def _http(doors: Doors) -> Tcp | None:
    http = doors.http
    return Tcp(http.address or doors.address, http.port, http.reuse_port) if http.enabled else None


def _grpc(doors: Doors) -> Tcp | None:
    grpc = doors.grpc
    return Tcp(grpc.address or doors.address, grpc.port, grpc.reuse_port) if grpc.enabled else None


def _metrics(doors: Doors) -> Tcp | None:
    metrics = doors.metrics
    address = metrics.address or doors.http.address or doors.address
    return Tcp(address, metrics.port, tls=metrics.tls) if metrics.enabled else None


def exposed(doors: Doors) -> str | None:
    """What the log says where one port has an address of its own, and another is open to all that has none"""
    http, grpc = ("HTTP", doors.http, _http(doors)), ("gRPC", doors.grpc, _grpc(doors))
    for (name, stated, own), (other, unstated, wide) in ((http, grpc), (grpc, http)):
        if not (own and wide) or not stated.address or unstated.address:
            continue
        if wide.address in _EVERYWHERE and own.address not in _EVERYWHERE:
            return (
                f"{other} listens on {wide.address}, and {name} on {own.address} alone: --address={own.address} is for "
                "all ports"
            )
    return None


def _socket(path: str | None) -> Unix | None:
    return Unix(path) if path else None


DOORS: tuple[Door[Tcp] | Door[Unix], ...] = (
    Door(
        "gRPC service",
        "GRPCInferenceService",
        _grpc,
        lambda engine, at: engine.serve_grpc(at.address, at.port, reuse_port=at.reuse_port),
    ),
    Door(
        "gRPC service",
        "GRPCInferenceService",
        lambda doors: _socket(doors.grpc.socket),
        lambda engine, at: engine.serve_grpc_unix(at.path),
    ),
    Door(
        "gRPC's handover",
        "GRPCInferenceService for connections of others",
        lambda doors: _socket(doors.grpc.handover),
        lambda engine, at: engine.serve_grpc_handover(at.path),
    ),
    Door(
        "HTTP service",
        "HTTPService",
        _http,
        lambda engine, at: engine.serve_http(at.address, at.port, reuse_port=at.reuse_port),
    ),
    Door(
        "HTTP service",
        "HTTPService",
        lambda doors: _socket(doors.http.socket),
        lambda engine, at: engine.serve_http_unix(at.path),
    ),
    Door(
        "the local service",
        "LocalService",
        lambda doors: _socket(doors.local.socket),
        lambda engine, at: engine.serve_local(at.path),
    ),
    Door(
        "Metrics service",
        "Metrics Service",
        _metrics,
        lambda engine, at: engine.serve_metrics(at.address, at.port, tls=at.tls),
    ),
)
"""In the order in which they are opened: whoever finds HTTP alive may ask over gRPC"""


def probe_all(settings: Doors) -> None:
    """Raises when one of those that are wanted cannot be opened"""
    places: list[Tcp] = []
    for door in DOORS:
        door.probe(settings)
        place = door.place(settings)
        if isinstance(place, Tcp):
            if any(place.collides(other) for other in places):
                raise ConfigInvalid(
                    f"failed to start {door.service} at {place}: another service of this server has the port "
                    f"{place.port}"
                )
            places.append(place)
