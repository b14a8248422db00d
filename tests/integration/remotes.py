"""The urls by which a client reaches a server from another process or host."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tests.integration.grpc_doors import port_of

if TYPE_CHECKING:
    from tests.serving import Server

__all__ = ["WAYS", "url_of"]

WAYS: Final = ("http", "grpc")


def url_of(server: Server, way: str) -> str:
    return server.url if way == "http" else f"grpc://127.0.0.1:{port_of(server)}"
