"""
The settings of the server: one schema, from which the environment variables KUSHI_* follow, and in flags.py the flags
of `kushi serve`. Nothing else in the package reads the environment. A flag wins over a variable.
"""

import dataclasses
import os
import site
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin, overload

from pydantic import BeforeValidator, Field, ValidationError
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from .errors import ConfigInvalid
from .restrictions import Restriction, parse_restriction
from .tritonserver import ABSENT_VALUES

__all__ = [
    "WORDS",
    "Elsewhere",
    "ServerSettings",
    "engine_elsewhere",
    "environment_of_child",
    "flag_of",
    "forbid_telemetry",
    "given_in_environment",
    "nearest",
    "placeholder",
    "read_settings",
    "runtime_directory",
    "variable_of",
]

_PREFIX = "KUSHI_"
_ENGINE = tuple(f"{_PREFIX}ENGINE_{name}" for name in ("URL", "HEADERS", "CA_CERT", "CLIENT_CERT", "CLIENT_KEY"))
_MOST_BODY_BYTES = 2**31 - 1  # tritonserver's
WORDS = {"true": True, "false": False, "on": True, "off": False, "1": True, "0": False}


def _boolean(value: object) -> object:
    return WORDS.get(value.lower(), value) if isinstance(value, str) else value


def _listed(value: object) -> object:
    return [part for part in value.split(",") if part] if isinstance(value, str) else value


def _restrictions(value: object) -> object:
    """A flag is given once for each, the variable for all"""
    if isinstance(value, str):
        parts = filter(None, map(str.strip, value.split(";")))
        return [parse_restriction(part, f"{_PREFIX}HTTP_RESTRICTED_API") for part in parts]
    if isinstance(value, list):
        return [parse_restriction(part, "--http-restricted-api") for part in value]
    return value


def _separated(value: object) -> object:
    return [part.strip() for part in value.split(";") if part.strip()] if isinstance(value, str) else value


@dataclass(frozen=True)
class _Placeholder:
    """What stands for the value of a flag in its help"""

    word: str


_Switch = Annotated[bool, BeforeValidator(_boolean), Field(strict=True)]
_Paths = Annotated[tuple[str, ...], NoDecode, BeforeValidator(_listed), _Placeholder("PATH")]
_Names = Annotated[tuple[str, ...], NoDecode, BeforeValidator(_listed), _Placeholder("NAME")]
_Restrictions = Annotated[
    tuple[Restriction, ...], NoDecode, BeforeValidator(_restrictions), _Placeholder("API,…:HEADER=VALUE")
]
_Configs = Annotated[tuple[str, ...], NoDecode, BeforeValidator(_separated), _Placeholder("BACKEND,KEY=VALUE")]
_Path = Annotated[str | None, _Placeholder("PATH")]
_Port = Annotated[int, Field(ge=0, le=65535)]


class ServerSettings(BaseSettings):
    """Everything that can be set"""

    model_config = SettingsConfigDict(env_prefix=_PREFIX, extra="forbid", frozen=True, protected_namespaces=())

    model_repository: _Paths = Field(
        (),
        description="Directory of models, or one model file. May be repeated; the variable takes several, separated by "
        "commas.",
    )
    id: Annotated[str, _Placeholder("NAME")] = Field(
        "triton", min_length=1, description="Name of the server in its metadata."
    )
    exit_on_error: _Switch = Field(default=True, description="Exit when a model cannot be loaded.")
    exit_timeout_secs: int = Field(30, ge=0, description="Seconds to wait at exit for requests in flight.")
    drain_fd: Annotated[int | None, _Placeholder("FD")] = Field(
        None,
        ge=0,
        description="Inherited end of a pipe: a byte on it, or its end, drains. SIGTERM and SIGINT are then ignored. "
        "For supervisors.",
    )
    strict_readiness: _Switch = Field(
        default=True, description="Ready only when every model is; else when the server is."
    )
    disable_auto_complete_config: _Switch = Field(
        default=False, description="Take config.pbtxt as it is, without completing it from the model."
    )
    model_control_mode: Literal["none", "explicit"] = Field(
        "none",
        description="How models are loaded: 'none' loads all at the start, 'explicit' those of --load-model, and "
        "others when clients ask ('poll' is not supported yet).",
    )
    load_model: _Names = Field(
        (),
        description="Model to load at the start, where --model-control-mode=explicit; '*' alone means all. May be "
        "repeated; the variable takes several, separated by commas.",
    )
    model_load_thread_count: int = Field(4, ge=1, le=1024, description="Models that are loaded at the same time.")
    backend_config: _Configs = Field(
        (),
        description="Setting of a backend, or without BACKEND of all of them: default-max-batch-size; of onnxruntime "
        "also enable-global-threadpool, intra_op_thread_count, inter_op_thread_count, profile-directory, "
        "engine-cache-directory. May be repeated; the variable takes several, separated by semicolons.",
    )
    allow_http: _Switch = Field(default=True, description="Listen for HTTP on a TCP port.")
    http_address: Annotated[str, _Placeholder("ADDRESS")] = Field(
        "0.0.0.0",  # noqa: S104 - as tritonserver's
        min_length=1,
        description="Address of the HTTP port.",
    )
    http_port: _Port = Field(8000, description="Port for HTTP; 0 takes a free one.")
    reuse_http_port: _Switch = Field(
        default=False, description="Let several servers share the HTTP port (SO_REUSEPORT)."
    )
    http_socket: _Path = Field(
        None, min_length=1, description="Path of a Unix socket that speaks HTTP as well (default: none)."
    )
    local_socket: _Path = Field(
        None,
        min_length=1,
        description="Path of a Unix socket for Client('unix://PATH') of the same user on this host (default: none).",
    )
    http_thread_count: int | None = Field(None, ge=1, le=1024, description="Io threads (default: the usable cores).")
    http_max_input_size: int = Field(
        64 * 1024 * 1024,
        ge=1,
        le=_MOST_BODY_BYTES,
        description="Largest body of a request in bytes, and largest tensor in its JSON.",
    )
    http_max_chunks: int = Field(65536, ge=1, description="Most chunks of a body that comes in chunks.")
    http_max_head_size: int = Field(
        64 * 1024, ge=1024, le=1024 * 1024, description="Largest request line with all headers, in bytes."
    )
    http_max_headers: int = Field(100, ge=8, le=1024, description="Most headers of a request.")
    http_max_json_depth: int = Field(100, ge=1, le=100, description="Deepest nesting of a value in JSON.")
    http_max_tensors: int = Field(
        1024, ge=1, le=65536, description="Most inputs and requested outputs of a request together."
    )
    http_head_timeout_secs: int = Field(
        10, ge=1, description="Seconds from the first byte of a request to the last of its head; then 408."
    )
    http_body_timeout_secs: int = Field(
        30,
        ge=1,
        description="Seconds that a body that is awaited may need to make progress, then 408; also for an answer that "
        "the client does not read.",
    )
    http_min_body_rate: int = Field(
        500,
        ge=0,
        le=1024 * 1024 * 1024,
        description="Bytes per second that make a body progress, on average over --http-body-timeout-secs; 0: any byte "
        "does.",
    )
    http_idle_timeout_secs: int = Field(75, ge=1, description="Seconds that a connection may wait for a request.")
    http_max_connections: int = Field(
        16384,
        ge=1,
        description="Most connections of each door; over it new ones take the place of silent ones, or are "
        "answered with 503 unless they ask for health.",
    )
    max_inflight_bytes: int = Field(
        1024 * 1024 * 1024,
        ge=1,
        description="Most bytes that large requests and answers in flight hold; a body that has no room is refused "
        "with 503, one larger than all of it with 400.",
    )
    http_use_ssl: _Switch = Field(
        default=False,
        description="Speak TLS on the HTTP port and on the metrics port; needs --http-server-cert and "
        "--http-server-key. Unix sockets stay plain.",
    )
    http_use_ssl_mutual: _Switch = Field(
        default=False,
        description="Speak TLS, and let nobody in without a client certificate of --http-root-cert.",
    )
    http_server_cert: _Path = Field(
        None,
        min_length=1,
        description="File of the server's certificate chain, PEM; read again when it changes.",
    )
    http_server_key: _Path = Field(None, min_length=1, description="File of the key of that certificate, PEM.")
    http_root_cert: _Path = Field(
        None, min_length=1, description="File of the authorities of client certificates, PEM."
    )
    http_restricted_api: _Restrictions = Field(
        (),
        description="Ask for a token: requests to these APIs must have this header with this value. APIs are health, "
        "metadata, inference, shared-memory, model-config, model-repository, statistics, trace and logging. May be "
        "repeated; the variable, which other users of the host cannot see, takes several, separated by semicolons.",
    )
    http_header_forward_pattern: Annotated[str | None, _Placeholder("REGEX")] = Field(
        None,
        min_length=1,
        description="Headers with names like this become parameters of their requests, in lower case (default: none).",
    )
    allow_client_shm: _Switch = Field(
        default=False,
        description="Let clients register shared memory of this host, and name it for inputs and outputs.",
    )
    allow_metrics: _Switch = Field(
        default=True, description="Serve Prometheus metrics on a port of their own; the HTTP port has them too."
    )
    allow_cpu_metrics: _Switch = Field(default=True, description="Include nv_cpu_* in the metrics.")
    metrics_address: Annotated[str | None, _Placeholder("ADDRESS")] = Field(
        None, min_length=1, description="Address of the metrics port (default: that of HTTP)."
    )
    metrics_port: _Port = Field(8002, description="Port for metrics; 0 takes a free one.")
    metrics_interval_ms: int = Field(2000, ge=1, description="Milliseconds between two readings of nv_cpu_*.")
    log_verbose: int = Field(0, ge=0, le=255, description="Level of verbose logging, 0 for none.")
    log_info: _Switch = Field(default=True, description="Log informational messages.")
    log_warning: _Switch = Field(default=True, description="Log warnings.")
    log_error: _Switch = Field(default=True, description="Log errors.")
    log_format: Literal["default", "ISO8601"] = Field("default", description="Form of the log lines.")
    log_file: _Path = Field(None, min_length=1, description="File to log to (default: standard error).")


def read_settings(flags: Mapping[str, Any]) -> ServerSettings:
    """The settings from `flags`, where they are given, and the environment"""
    known = {variable_of(name) for name in ServerSettings.model_fields} | {*_ENGINE}
    for variable in sorted(os.environ):
        if variable.upper().startswith(_PREFIX) and variable.upper() not in known:
            raise ConfigInvalid(f"unknown environment variable {variable}{nearest(variable.upper(), known)}")
    given = {name: value for name, value in flags.items() if value is not None}
    try:
        return ServerSettings(**given)
    except ValidationError as error:
        raise ConfigInvalid("; ".join(_faults(error, given))) from None


@dataclass(frozen=True)
class Elsewhere:
    """An engine that is not in a process of the service's own, and what a Client of it needs"""

    url: str
    headers: Mapping[str, str] = dataclasses.field(default_factory=dict, repr=False)
    ca_cert: str | None = None
    client_cert: str | None = None
    client_key: str | None = None

    @property
    def options(self) -> dict[str, Any]:
        """For a Client of it: those that its scheme has"""
        scheme = self.url.strip().partition(":")[0].lower()
        headers = {"headers": self.headers} if scheme in {"http", "https"} else {}
        return {**headers, **self.files} if scheme == "https" else headers

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
    variable, headers, *files = (os.environ.get(name) or None for name in _ENGINE)
    found = url or variable
    return Elsewhere(found, dict(_headers(headers or "")), *files) if found else None


def _headers(text: str) -> Iterator[tuple[str, str]]:
    for part in filter(None, map(str.strip, text.split(";"))):
        name, equals, value = part.partition("=")
        if not (name and equals and value):
            raise ConfigInvalid(
                f"{_PREFIX}ENGINE_HEADERS: expected NAME=VALUE, several of them separated by semicolons, got something "
                "else, not shown here because it may hold a secret"
            )
        yield name.strip(), value.strip()


def given_in_environment(*names: str) -> bool:
    """Whether a variable sets one of these settings"""
    return any(variable_of(name) in os.environ for name in names)


def runtime_directory() -> Path | None:
    """The directory that the system keeps for sockets of this user: XDG_RUNTIME_DIR, where it can be written to"""
    directory = os.environ.get("XDG_RUNTIME_DIR", "")
    return Path(directory) if directory and os.access(directory, os.W_OK) else None


def forbid_telemetry() -> None:
    """ONNX Runtime's releases carry telemetry, which stays off with this in the environment when they are loaded"""
    os.environ["ORT_DISABLE_TELEMETRY"] = "1"


def environment_of_child(root: Path) -> dict[str, str]:
    """That of this process, for one that imports packages from `root` as well"""
    if str(root) in site.getsitepackages():
        # There they are found anyway; on this path they would stand before the standard library.
        return {**os.environ}
    path = os.pathsep.join(filter(None, (str(root), os.environ.get("PYTHONPATH"))))
    return {**os.environ, "PYTHONPATH": path}


def flag_of(name: str) -> str:
    """The name of the flag for the setting `name`"""
    return name.replace("_", "-")


def variable_of(name: str) -> str:
    """The environment variable for the setting `name`"""
    return f"{_PREFIX}{name.upper()}"


def nearest(name: str, known: Iterable[str], prefix: str = "") -> str:
    """Which of the `known` names may have been meant, to follow the word that there is no such name"""
    near = get_close_matches(name, sorted(known), n=1)
    return f", did you mean {prefix}{near[0]}?" if near else ", see 'kushi serve --help'"


def placeholder(field: FieldInfo) -> str:
    """What stands for the value of the setting in help and reference"""
    if get_origin(field.annotation) is Literal:
        return "{" + ",".join(get_args(field.annotation)) + "}"
    if field.annotation is bool:
        return "true|false"
    return next((mark.word for mark in field.metadata if isinstance(mark, _Placeholder)), "N")


def _faults(error: ValidationError, given: Mapping[str, Any]) -> Iterator[str]:
    for fault in error.errors(include_url=False):
        name, value = str(fault["loc"][0]), fault["input"]
        source = f"--{flag_of(name)}" if name in given else variable_of(name)
        absent = ", which is not supported yet" if value in ABSENT_VALUES.get(flag_of(name), ()) else ""
        yield f"{source}: expected {_expected(ServerSettings.model_fields[name])}, got {value!r}{absent}"


def _expected(field: FieldInfo) -> str:
    if get_origin(field.annotation) is Literal:
        return " or ".join(map(repr, get_args(field.annotation)))
    if field.annotation is bool:
        *words, last = WORDS
        return f"{', '.join(words)} or {last}"
    if field.annotation not in {int, int | None}:
        return f"a non-empty {placeholder(field)}"
    least, most = (next((getattr(m, side) for m in field.metadata if hasattr(m, side)), None) for side in ("ge", "le"))
    return f"an integer of at least {least}" if most is None else f"an integer from {least} to {most}"
