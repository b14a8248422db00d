"""Certificates for tests, made by openssl: an authority, and what it signs"""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["Authority", "Identity"]

LOCAL: Final = "subjectAltName=DNS:localhost,IP:127.0.0.1"


@dataclass(frozen=True)
class Identity:
    """A certificate and its key, both files"""

    certificate: Path
    key: Path

    def copy_to(self, other: Identity) -> None:
        """In place, as many tools write: first the one, then the other"""
        other.certificate.write_bytes(self.certificate.read_bytes())
        other.key.write_bytes(self.key.read_bytes())


class Authority:
    """Signs certificates in a folder of its own"""

    def __init__(self, folder: Path, name: str = "authority") -> None:
        self._folder = folder
        self.certificate = folder / f"{name}.pem"
        self._key = folder / f"{name}.key"
        _openssl(
            *("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"),
            *("-subj", f"/CN={name}", "-keyout", self._key, "-out", self.certificate),
        )

    def sign(self, name: str, extension: str = LOCAL, kind: str = "ec") -> Identity:
        """A certificate of `kind`, ec or rsa"""
        made = Identity(self._folder / f"{name}.pem", self._folder / f"{name}.key")
        chosen = ("-pkeyopt", "ec_paramgen_curve:P-256") if kind == "ec" else ("-pkeyopt", "rsa_keygen_bits:2048")
        request = self._folder / f"{name}.csr"
        extensions = self._folder / f"{name}.ext"
        extensions.write_text(extension)
        _openssl(
            "req", "-newkey", kind, *chosen, "-nodes", "-subj", f"/CN={name}", "-keyout", made.key, "-out", request
        )
        _openssl(
            *("x509", "-req", "-in", request, "-CA", self.certificate, "-CAkey", self._key, "-CAcreateserial"),
            *("-days", "2", "-extfile", extensions, "-out", made.certificate),
        )
        return made


def _openssl(*arguments: str | Path) -> None:
    subprocess.run(["openssl", *arguments], check=True, capture_output=True, timeout=60)
