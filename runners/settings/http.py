"""HTTP: what clients may ask of its doors, and where a server opens them"""

from dataclasses import dataclass, field

from ..integers import INT32_MAX, INT64_MAX
from ..restrictions import Restriction
from .definition import Group, inner, setting
from .kinds import Integer, Port, Restrictions, Switch, Text
from .tls import ServerTls

__all__ = ["HttpDoors", "HttpOptions"]

_MAX_BODY_BYTES = 2**31 - 1  # tritonserver's
_MIB = 1024 * 1024


@dataclass(frozen=True, kw_only=True)
class HttpOptions(Group):
    """What clients may ask of the doors, most of it over HTTP."""

    title = "HTTP"

    max_input_bytes: int = setting(
        "http-max-input-size",
        Integer(1, _MAX_BODY_BYTES),
        "Largest body of a request in bytes, and largest tensor in its JSON.",
        default=64 * _MIB,
    )
    max_chunks: int = setting(
        "http-max-chunks", Integer(1, INT32_MAX), "Most chunks of a body that comes in chunks.", default=65536
    )
    max_head_bytes: int = setting(
        "http-max-head-size", Integer(1024, _MIB), "Largest request line with all headers, in bytes.", default=64 * 1024
    )
    max_headers: int = setting("http-max-headers", Integer(8, 1024), "Most headers of a request.", default=100)
    max_json_depth: int = setting(
        "http-max-json-depth", Integer(1, 100), "Deepest nesting of a value in JSON.", default=100
    )
    max_tensors: int = setting(
        "http-max-tensors", Integer(1, 65536), "Most inputs and requested outputs of a request together.", default=1024
    )
    head_timeout_seconds: int = setting(
        "http-head-timeout-secs",
        Integer(1, INT32_MAX),
        "Seconds from the first byte of a request to the last of its head; then 408.",
        default=10,
    )
    body_timeout_seconds: int = setting(
        "http-body-timeout-secs",
        Integer(1, INT32_MAX),
        "Seconds that a body that is awaited may need to make progress, then 408; also for an answer that the client "
        "does not read.",
        default=30,
    )
    min_body_rate: int = setting(
        "http-min-body-rate",
        Integer(0, 1024 * _MIB),
        "Bytes per second that make a body progress, on average over {body_timeout_seconds}; 0: any byte does.",
        default=500,
    )
    idle_timeout_seconds: int = setting(
        "http-idle-timeout-secs", Integer(1, INT32_MAX), "Seconds that a connection may wait for a request.", default=75
    )
    max_connections: int = setting(
        "http-max-connections",
        Integer(1, INT32_MAX),
        "Most connections of each door; over it new ones take the place of silent ones, or are answered with 503 "
        "unless they ask for health.",
        default=16384,
    )
    max_inflight_bytes: int = setting(
        "max-inflight-bytes",
        Integer(1, INT64_MAX),
        "Most bytes that large requests and answers in flight hold, over all doors; a body that has no room is refused "
        "with 503, one larger than all of it with 400.",
        default=1024 * _MIB,
    )
    restrictions: tuple[Restriction, ...] = setting(
        "http-restricted-api",
        Restrictions(),
        "Ask for a token: requests to these APIs must have this header with this value. APIs are health, metadata, "
        "inference, shared-memory, model-config, model-repository, statistics, trace and logging.",
        default=(),
    )
    header_forward_pattern: str | None = setting(
        "http-header-forward-pattern",
        Text("REGEX"),
        "Headers with names like this become parameters of their requests, in lower case (default: none).",
        default=None,
    )
    playground: bool = setting(
        "allow-playground",
        Switch(),
        "Have a page at / that reads documents, shows the models at work and lets people try each of them.",
        default=False,
    )
    tls: ServerTls | None = field(default=None, metadata=inner(ServerTls, protocol="http", ports="the HTTP port"))


@dataclass(frozen=True, kw_only=True)
class HttpDoors(Group):
    """Where a server speaks HTTP."""

    title = "HTTP"

    enabled: bool = setting("allow-http", Switch(), "Listen for HTTP on a TCP port.", default=True)
    address: str | None = setting(
        "http-address", Text("ADDRESS"), "Address of the HTTP port (default: that of --address).", default=None
    )
    port: int = setting("http-port", Port(), "Port for HTTP; 0 takes a free one.", default=8000)
    reuse_port: bool = setting(
        "reuse-http-port", Switch(), "Let several servers share the HTTP port (SO_REUSEPORT).", default=False
    )
    socket: str | None = setting(
        "http-socket", Text("PATH"), "Path of a Unix socket that speaks HTTP as well (default: none).", default=None
    )
