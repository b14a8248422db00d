"""gRPC: what clients may ask of its doors, and where a server opens them"""

from dataclasses import dataclass, field

from ..integers import INT32_MAX
from ..restrictions import Restriction
from .definition import Group, inner, setting
from .kinds import Choice, Integer, Port, Restrictions, Switch, Text
from .tls import ServerTls

__all__ = ["GrpcDoors", "GrpcOptions"]

_NO_END = 0


@dataclass(frozen=True, kw_only=True)
class GrpcOptions(Group):
    """What clients may ask over gRPC."""

    title = "gRPC"

    restrictions: tuple[Restriction, ...] = setting(
        "grpc-restricted-protocol",
        Restrictions(),
        "Ask for a token: calls of these APIs must have the metadata triton-grpc-protocol-HEADER with this value. APIs "
        "are those of --http-restricted-api.",
        default=(),
    )
    header_forward_pattern: str | None = setting(
        "grpc-header-forward-pattern",
        Text("REGEX"),
        "Metadata with names like this becomes parameters of its requests (default: none).",
        default=None,
    )
    compression: str = setting(
        "grpc-infer-response-compression-level",
        Choice("none", "low", "medium", "high"),
        "How hard responses are compressed, for clients that take gzip or deflate.",
        default="none",
    )
    keepalive_time_ms: int = setting(
        "grpc-keepalive-time",
        Integer(1, INT32_MAX),
        "Milliseconds without a word from a client until it is asked by a ping whether it is there.",
        default=7_200_000,
    )
    keepalive_timeout_ms: int = setting(
        "grpc-keepalive-timeout",
        Integer(1, INT32_MAX),
        "Milliseconds that its answer may take; then the connection is closed.",
        default=20_000,
    )
    keepalive_permit_without_calls: bool = setting(
        "grpc-keepalive-permit-without-calls",
        Switch(),
        "Let clients and the server send pings on connections without calls.",
        default=False,
    )
    max_pings_without_data: int = setting(
        "grpc-http2-max-pings-without-data",
        Integer(0, INT32_MAX),
        "Most pings to a client between two answers to its calls; 0: any number.",
        default=2,
    )
    min_ping_interval_ms: int = setting(
        "grpc-http2-min-recv-ping-interval-without-data",
        Integer(0, INT32_MAX),
        "Milliseconds between two pings of a client that gets no answer in between; an earlier one is a strike.",
        default=300_000,
    )
    max_ping_strikes: int = setting(
        "grpc-http2-max-ping-strikes",
        Integer(0, INT32_MAX),
        "Strikes after which the connection is closed; 0: any number.",
        default=2,
    )
    max_connection_age_ms: int = setting(
        "grpc-max-connection-age",
        Integer(0, INT32_MAX),
        "Milliseconds after which a connection is told to leave, a tenth more or less; 0: never.",
        default=_NO_END,
    )
    max_connection_age_grace_ms: int = setting(
        "grpc-max-connection-age-grace",
        Integer(0, INT32_MAX),
        "Milliseconds that its calls have to end then; 0: any time.",
        default=_NO_END,
    )
    tls: ServerTls | None = field(default=None, metadata=inner(ServerTls, protocol="grpc", ports="the gRPC port"))


@dataclass(frozen=True, kw_only=True)
class GrpcDoors(Group):
    """Where a server speaks gRPC."""

    title = "gRPC"

    enabled: bool | None = setting(
        "allow-grpc",
        Switch(),
        "Listen for gRPC on a TCP port (default: true, unless HTTP alone asks for tokens or TLS).",
        default=None,
    )
    address: str | None = setting(
        "grpc-address", Text("ADDRESS"), "Address of the gRPC port (default: that of --address).", default=None
    )
    port: int = setting("grpc-port", Port(), "Port for gRPC; 0 takes a free one.", default=8001)
    reuse_port: bool = setting(
        "reuse-grpc-port", Switch(), "Let several servers share the gRPC port (SO_REUSEPORT).", default=False
    )
    socket: str | None = setting(
        "grpc-socket", Text("PATH"), "Path of a Unix socket that speaks gRPC (default: none).", default=None
    )
    handover: str | None = setting(
        "grpc-handover-socket",
        Text("PATH"),
        "Path of a Unix socket on which processes of this user hand over connections that they have accepted and that "
        "speak gRPC (default: none). For supervisors.",
        default=None,
    )
