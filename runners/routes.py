"""
The management calls as requests of the protocol: method, path and body, the same for every transport, and what their
answers mean. Names are quoted as they appear in a path.
"""

import json
import operator
from base64 import b64encode
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, SupportsIndex
from urllib.parse import quote

from .errors import KINDS, AccessDenied, EngineFailed, InternalError, InvalidInput, KushiError

__all__ = [
    "Answer",
    "Route",
    "accepted",
    "check_name",
    "document",
    "index",
    "load",
    "log_settings",
    "metrics",
    "model",
    "regions",
    "register_region",
    "rows",
    "server",
    "statistics",
    "succeeded",
    "text",
    "trace_settings",
    "unload",
    "unregister_region",
    "version_text",
]

Answer = tuple[int, str, bytes]
"""HTTP status, the kind of the error or "", body"""


@dataclass(frozen=True, slots=True)
class Route:
    """One management call"""

    method: str
    path: str
    body: bytes = b""
    model: str | None = None


def server(about: str = "") -> Route:
    """The server itself, or what is asked about it: /health/live, /health/ready"""
    return Route("GET", f"/v2{about}")


def model(name: str, version: str | SupportsIndex, about: str = "") -> Route:
    """A model or one version of it, or what is asked about it: /ready, /config, /stats"""
    check_name(name)
    chosen = "" if version == "" else f"/versions/{version_text(version, name)}"
    return Route("GET", f"/v2/models/{_quoted(name)}{chosen}{about}", model=name)


def check_name(name: object) -> None:
    """Raises where `name` cannot be that of a model"""
    if not isinstance(name, str) or not name or not _is_text(name):
        raise InvalidInput(f"model_name is {name!r}, expected a name")


def _is_text(name: str) -> bool:
    """False where a str has half a surrogate pair, which no path can carry"""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def statistics(name: str, version: str | SupportsIndex) -> Route:
    """What was counted of one model, or of all"""
    return model(name, version, "/stats") if name else server("/models/stats")


def metrics() -> Route:
    return Route("GET", "/metrics")


def index() -> Route:
    return Route("POST", "/v2/repository/index")


def load(name: str, config: str | None, files: Mapping[str, bytes] | None) -> Route:
    check_name(name)
    parameters: dict[str, Any] = {} if config is None else {"config": config}
    parameters |= {path: b64encode(content).decode() for path, content in (files or {}).items()}
    return _posted(
        f"/v2/repository/models/{_quoted(name)}/load", {"parameters": parameters} if parameters else {}, name
    )


def unload(name: str, *, dependents: bool) -> Route:
    check_name(name)
    body = {"parameters": {"unload_dependents": dependents}}
    return _posted(f"/v2/repository/models/{_quoted(name)}/unload", body, name)


def regions(name: str) -> Route:
    return server(f"/systemsharedmemory{_region(name)}/status")


def register_region(name: str, key: str, byte_size: int, offset: int) -> Route:
    body = {"key": key, "offset": offset, "byte_size": byte_size}
    return _posted(f"/v2/systemsharedmemory{_region(name)}/register", body)


def unregister_region(name: str) -> Route:
    return Route("POST", f"/v2/systemsharedmemory{_region(name)}/unregister")


def log_settings(changes: Mapping[str, Any] | None = None) -> Route:
    """What is logged, or changes of it"""
    return server("/logging") if changes is None else _posted("/v2/logging", changes)


def trace_settings(name: str, changes: Mapping[str, Any] | None = None) -> Route:
    """The settings of traces of one model, or of all, or changes of them"""
    if name:
        check_name(name)
    path = f"/v2/models/{_quoted(name)}/trace/setting" if name else "/v2/trace/setting"
    return Route("GET", path, model=name or None) if changes is None else _posted(path, changes, name or None)


def succeeded(answer: Answer) -> bool:
    """Whether a question that is answered by the status alone is answered with yes; raises where it may not be asked"""
    status, kind, body = answer
    if kind == AccessDenied.kind:
        raise AccessDenied(_message(status, body), status=status)
    return status == 200


def text(route: Route, answer: Answer) -> str:
    """The text that an answer is"""
    accepted(route, answer)
    return answer[2].decode(errors="replace")


def accepted(route: Route, answer: Answer) -> None:
    """Raises what the answer says went wrong"""
    status, kind, body = answer
    if status < 300:
        return
    raised = KINDS[kind].raised if kind in KINDS else InternalError
    message = _message(status, body)
    if issubclass(raised, KushiError):
        raise raised(message, model=route.model, status=status)
    raise raised(message)


def document(route: Route, answer: Answer) -> dict[str, Any]:
    """The object that an answer holds"""
    read = _read(route, answer)
    if not isinstance(read, dict):
        raise _unreadable(route, "an object")
    return read


def rows(route: Route, answer: Answer) -> list[dict[str, Any]]:
    """The list that an answer holds"""
    read = _read(route, answer)
    if not isinstance(read, list):
        raise _unreadable(route, "a list")
    return read


def _read(route: Route, answer: Answer) -> object:
    accepted(route, answer)
    try:
        return json.loads(answer[2])
    except ValueError as error:
        raise _unreadable(route, f"JSON ({error})") from None


def _unreadable(route: Route, expected: str) -> KushiError:
    return EngineFailed(
        f"the answer to {route.method} {route.path} cannot be read, expected {expected}", model=route.model
    )


def _message(status: int, body: bytes) -> str:
    text = body.decode(errors="replace").strip()
    try:
        read = json.loads(text)
    except ValueError:
        return text or f"the server answered with status {status}"
    return str(read["error"]) if isinstance(read, dict) and "error" in read else text


def _posted(path: str, document: Mapping[str, Any], name: str | None = None) -> Route:
    return Route("POST", path, json.dumps(dict(document)).encode(), name)


def version_text(version: str | SupportsIndex, name: str) -> str:
    """A version of the model `name` as its path has it"""
    text = version if isinstance(version, str) else ""
    if not isinstance(version, str | bool):
        with suppress(TypeError):
            text = str(operator.index(version))
    if not (text.isascii() and text.isdecimal()):
        raise InvalidInput(f"model_version is {version!r}, expected a number, or '' for the latest", model=name)
    return text


def _region(name: str) -> str:
    return f"/region/{_quoted(name)}" if name else ""


def _quoted(name: str) -> str:
    return quote(name, safe="")
