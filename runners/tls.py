"""The files that TLS needs on a server"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from .errors import ConfigInvalid

if TYPE_CHECKING:
    from .settings import ServerSettings

__all__ = ["ServerTls", "server_tls"]


@dataclass(frozen=True)
class ServerTls:
    """
    Files in PEM form, which are read again when they change.

    certificate: of the server, followed by those between it and its authority.
    key: of the certificate, without a passphrase.
    client_authorities: clients must show a certificate of one of these; without it, they need none.
    """

    certificate: str
    key: str
    client_authorities: str | None = None


def server_tls(settings: ServerSettings) -> ServerTls | None:
    """What the flags say, as long as they say it without doubt: a door that somebody wants locked is not left open"""
    certificate, key, authorities = settings.http_server_cert, settings.http_server_key, settings.http_root_cert
    if not (settings.http_use_ssl or settings.http_use_ssl_mutual):
        for flag, value in (
            ("--http-server-cert", certificate),
            ("--http-server-key", key),
            ("--http-root-cert", authorities),
        ):
            if value is not None:
                raise ConfigInvalid(f"{flag} is given without --http-use-ssl: connections would be plain")
        return None
    if certificate is None or key is None:
        missing = "--http-server-cert" if certificate is None else "--http-server-key"
        asked = "--http-use-ssl-mutual" if settings.http_use_ssl_mutual else "--http-use-ssl"
        raise ConfigInvalid(f"{asked} needs {missing}, expected a file in PEM form")
    if settings.http_use_ssl_mutual and authorities is None:
        raise ConfigInvalid(
            "--http-use-ssl-mutual needs --http-root-cert, expected the authorities of client certificates in PEM form"
        )
    if authorities is not None and not settings.http_use_ssl_mutual:
        raise ConfigInvalid(
            "--http-root-cert is given without --http-use-ssl-mutual: clients would not be asked for a certificate"
        )
    return ServerTls(certificate, key, authorities)
