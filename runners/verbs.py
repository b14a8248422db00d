"""
The management calls as verbs: their names and arguments, the same for every transport, and what their answers mean. A
name is that of a method of the protocol's gRPC service, arguments are the fields of its request.
"""

import json
import operator
from base64 import b64encode
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, SupportsIndex

from .errors import KINDS, AccessDenied, EngineFailed, InternalError, InvalidInput, KushiError
from .version_labels import VERSIONS, is_label

__all__ = [
    "Answer",
    "Verb",
    "accepted",
    "change_versions",
    "check_name",
    "document",
    "load",
    "log_settings",
    "model",
    "region",
    "register_region",
    "rows",
    "statistics",
    "succeeded",
    "text",
    "trace_settings",
    "unload",
    "version_text",
    "versions",
    "versions_change",
]

Answer = tuple[int, str, bytes]
"""HTTP status, the kind of the error or "", body"""


@dataclass(frozen=True, slots=True)
class Verb:
    """One management call"""

    name: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    model: str | None = None

    def arguments_json(self) -> bytes:
        return json.dumps(self.arguments).encode()


def model(verb: str, name: str, version: str | SupportsIndex) -> Verb:
    """A verb about a model or one version of it"""
    check_name(name)
    chosen = version_text(version, name) if version != "" else ""
    return Verb(verb, {"name": name, "version": chosen}, name)


def check_name(name: object) -> None:
    """Raises where `name` cannot be that of a model"""
    if not isinstance(name, str) or not name or not _is_text(name):
        raise InvalidInput(f"model_name is {name!r}, expected a name")


def _is_text(name: str) -> bool:
    """False where a str has half a surrogate pair, which no transport can carry"""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def statistics(name: str, version: str | SupportsIndex) -> Verb:
    """What was counted of one model, or of all"""
    return model("ModelStatistics", name, version) if name else Verb("ModelStatistics")


def load(name: str, config: str | None, files: Mapping[str, bytes] | None) -> Verb:
    check_name(name)
    parameters: dict[str, Any] = {} if config is None else {"config": config}
    parameters |= {path: b64encode(content).decode() for path, content in (files or {}).items()}
    given = {"parameters": parameters} if parameters else {}
    return Verb("RepositoryModelLoad", {"model_name": name, **given}, name)


def change_versions(name: str, change: Mapping[str, Any]) -> Verb:
    """How requests are to find the versions of a model"""
    check_name(name)
    return Verb("RepositoryModelLoad", {"model_name": name, "parameters": {VERSIONS: json.dumps(change)}}, name)


def versions(answer: Mapping[str, Any]) -> dict[str, Any]:
    """What a configuration says of the versions of its model"""
    stated = answer.get("parameters", {}).get(VERSIONS, {}).get("string_value", "{}")
    return {"labels": {}, "weights": {}, "sticky": None, **json.loads(stated)}


def versions_change(
    labels: Mapping[str, int] | None,
    weights: Mapping[str | int, float] | None,
    sticky: str | None,
    *,
    keep: bool,
) -> dict[str, Any]:
    """What is given changes, and what is empty goes"""
    given = {"labels": labels, "weights": weights, "sticky": sticky}
    change: dict[str, Any] = {name: value or None for name, value in given.items() if value is not None}
    if weights:
        change["weights"] = {str(name): weight for name, weight in weights.items()}
    return {**change, "keep": keep}


def unload(name: str, *, dependents: bool) -> Verb:
    check_name(name)
    return Verb("RepositoryModelUnload", {"model_name": name, "parameters": {"unload_dependents": dependents}}, name)


def region(verb: str, name: str) -> Verb:
    """A verb about a region of shared memory, or about all"""
    return Verb(verb, {"name": name})


def register_region(name: str, key: str, byte_size: int, offset: int) -> Verb:
    return Verb("SystemSharedMemoryRegister", {"name": name, "key": key, "offset": offset, "byte_size": byte_size})


def log_settings(changes: Mapping[str, Any] | None = None) -> Verb:
    """What is logged, or changes of it"""
    return Verb("LogSettings", _settings(changes))


def trace_settings(name: str, changes: Mapping[str, Any] | None = None) -> Verb:
    """The settings of traces of one model, or of all, or changes of them"""
    if name:
        check_name(name)
    return Verb("TraceSetting", {"model_name": name, **_settings(changes)}, name or None)


def _settings(changes: Mapping[str, Any] | None) -> dict[str, Any]:
    return {} if changes is None else {"settings": dict(changes)}


def succeeded(answer: Answer) -> bool:
    """Whether a question that is answered by the status alone is answered with yes; raises where it may not be asked"""
    status, kind, body = answer
    if kind == AccessDenied.kind:
        raise AccessDenied(_message(status, body), status=status)
    return status == 200 and body != b"false"


def text(verb: Verb, answer: Answer) -> str:
    """The text that an answer is"""
    accepted(verb, answer)
    return answer[2].decode(errors="replace")


def accepted(verb: Verb, answer: Answer) -> None:
    """Raises what the answer says went wrong"""
    status, kind, body = answer
    if status < 300:
        return
    raised = KINDS[kind].raised if kind in KINDS else InternalError
    message = _message(status, body)
    if issubclass(raised, KushiError):
        raise raised(message, model=verb.model, status=status)
    raise raised(message)


def document(verb: Verb, answer: Answer) -> dict[str, Any]:
    """The object that an answer holds"""
    read = _read(verb, answer)
    if not isinstance(read, dict):
        raise _unreadable(verb, "an object")
    return read


def rows(verb: Verb, answer: Answer) -> list[dict[str, Any]]:
    """The list that an answer holds"""
    read = _read(verb, answer)
    if not isinstance(read, list):
        raise _unreadable(verb, "a list")
    return read


def _read(verb: Verb, answer: Answer) -> object:
    accepted(verb, answer)
    try:
        return json.loads(answer[2])
    except ValueError as error:
        raise _unreadable(verb, f"JSON ({error})") from None


def _unreadable(verb: Verb, expected: str) -> KushiError:
    return EngineFailed(f"the answer to {verb.name} cannot be read, expected {expected}", model=verb.model)


def _message(status: int, body: bytes) -> str:
    text = body.decode(errors="replace").strip()
    try:
        read = json.loads(text)
    except ValueError:
        return text or f"the server answered with status {status}"
    return str(read["error"]) if isinstance(read, dict) and "error" in read else text


def version_text(version: str | SupportsIndex, name: str) -> str:
    """A version of the model `name` as the protocol writes it"""
    text = version if isinstance(version, str) else ""
    if not isinstance(version, str | bool):
        with suppress(TypeError):
            text = str(operator.index(version))
    if not (text.isascii() and text.isdecimal()) and not is_label(text):
        raise InvalidInput(
            f"model_version is {version!r}, expected a number, a label of the model, or '' for the latest", model=name
        )
    return text
