"""What tests of TLS share: a server's flags, a client's trust, and an engine that speaks it"""

from __future__ import annotations

import socket
import ssl
from contextlib import contextmanager
from typing import TYPE_CHECKING

from runners import Engine, EngineOptions, HttpOptions, LogOptions, ServerTls

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.certificates import Authority, Identity

__all__ = ["context", "flags", "serving", "shaken", "tls"]


def tls(identity: Identity, authorities: Authority | None = None) -> ServerTls:
    return ServerTls(
        str(identity.certificate), str(identity.key), str(authorities.certificate) if authorities else None
    )


def context(authority: Authority, identity: Identity | None = None) -> ssl.SSLContext:
    made = ssl.create_default_context(cafile=str(authority.certificate))
    if identity is not None:
        made.load_cert_chain(identity.certificate, identity.key)
    return made


@contextmanager
def serving(repository: Path, server_tls: ServerTls) -> Iterator[int]:
    """An engine that speaks TLS, and its port"""
    given = EngineOptions(http=HttpOptions(tls=server_tls), log=LogOptions(info=False))
    with Engine(repository, options=given) as engine:
        yield engine.serve_http(port=0)


def flags(identity: Identity) -> tuple[str, ...]:
    return (
        "--http-use-ssl",
        f"--http-server-cert={identity.certificate}",
        f"--http-server-key={identity.key}",
    )


def shaken(port: int, chosen: ssl.SSLContext) -> ssl.SSLSocket:
    plain = socket.create_connection(("127.0.0.1", port), timeout=30)
    return chosen.wrap_socket(plain, server_hostname="localhost", suppress_ragged_eofs=False)
