"""What a server needs for TLS"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, ClassVar, Self

from ..errors import ConfigInvalid
from .definition import Group, Naming, Setting, setting, stated
from .kinds import Switch, Text

__all__ = ["ServerTls"]


@dataclass(frozen=True)
class ServerTls(Group):
    """Files in PEM form, which are read again when they change."""

    title = "TLS"
    switches: ClassVar[Mapping[str, Setting]] = MappingProxyType(
        {
            "use": Setting(
                "{protocol}-use-ssl",
                Switch(),
                "Speak TLS on {ports}; needs {certificate} and {key}. Unix sockets stay plain.",
                default=False,
            ),
            "use_mutual": Setting(
                "{protocol}-use-ssl-mutual",
                Switch(),
                "Speak TLS, and let nobody in without a client certificate of {client_authorities}.",
                default=False,
            ),
        }
    )

    certificate: str = field(
        metadata=stated(
            "{protocol}-server-cert",
            Text("PATH"),
            "File of the server's certificate chain, PEM; read again when it changes.",
        )
    )
    key: str = field(
        metadata=stated("{protocol}-server-key", Text("PATH"), "File of the key of that certificate, PEM.")
    )
    client_authorities: str | None = setting(
        "{protocol}-root-cert", Text("PATH"), "File of the authorities of client certificates, PEM.", default=None
    )

    @classmethod
    def of(cls, values: Mapping[str, Any], name: Naming) -> Self | None:
        """What is stated, as long as it is without doubt: a door that somebody wants locked is not left open"""
        files = {key: value for key, value in values.items() if key not in cls.switches}
        mutual = values.get("use_mutual", False)
        if not (mutual or values.get("use", False)):
            for stray in files:
                raise ConfigInvalid(f"{name(stray)} is given without {name('use')}: connections would be plain")
            return None
        for needed in ("certificate", "key"):
            if needed not in files:
                asked = name("use_mutual" if mutual else "use")
                raise ConfigInvalid(f"{asked} needs {name(needed)}, expected a file in PEM form")
        if mutual and "client_authorities" not in files:
            raise ConfigInvalid(
                f"{name('use_mutual')} needs {name('client_authorities')}, expected the authorities of client "
                "certificates in PEM form"
            )
        if "client_authorities" in files and not mutual:
            raise ConfigInvalid(
                f"{name('client_authorities')} is given without {name('use_mutual')}: clients would not be asked for a "
                "certificate"
            )
        return cls(**files)
