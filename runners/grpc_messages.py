"""
Management calls as the messages of gRPC: what a verb asks with, and what comes back in the form that HTTP has

The messages are those that tritonclient ships; nothing of grpcio is needed for them.
"""

from __future__ import annotations

import json
from base64 import b64decode
from functools import cache
from typing import TYPE_CHECKING, Any

from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass

from .errors import EngineFailed, InvalidInput
from .grpc_description import shipped_files
from .repository.config_json import to_plain

if TYPE_CHECKING:
    from .verbs import Answer, Verb

__all__ = ["load", "question", "reading"]

_HEALTH = {"ServerLive": "live", "ServerReady": "ready", "ModelReady": "ready"}


def load() -> None:
    """Reads the descriptions, which the first question would do"""
    _pool()


def question(verb: Verb) -> bytes:
    """The message that asks for `verb`"""
    if verb.name == "Metrics":
        return b""
    message = _made(f"{verb.name}Request")
    for name, value in verb.arguments.items():
        field = getattr(message, name)
        if name == "parameters":
            for key, given in value.items():
                _set_parameter(field[key], key, given)
        elif name == "settings":
            for key, given in (value or {}).items():
                _set_setting(verb, field[key], key, given)
        else:
            setattr(message, name, value)
    return bytes(message.SerializeToString())


def reading(verb: Verb, answer: Answer) -> Answer:
    """An answer with its message as JSON; a refusal is that already"""
    status, kind, body = answer
    if kind or verb.name == "Metrics":
        return answer
    message = _made(f"{verb.name}Response")
    try:
        message.ParseFromString(body)
    except DecodeError as error:
        raise EngineFailed(f"the answer to {verb.name} cannot be read: {error}", model=verb.model) from None
    return status, kind, json.dumps(_plain(verb, message)).encode()


def _plain(verb: Verb, message: Any) -> Any:  # noqa: ANN401 - protobuf messages, and any JSON
    plain: Any = to_plain(message)
    match verb.name:
        case "ServerLive" | "ServerReady" | "ModelReady":
            return plain[_HEALTH[verb.name]]
        case "RepositoryIndex":
            return [_known(row) for row in plain["models"]]
        case "SystemSharedMemoryStatus" | "CudaSharedMemoryStatus":
            plain = [*plain["regions"].values()]
        case "ModelConfig":
            plain = plain["config"]
        case "LogSettings":
            plain = {key: next(iter(setting.values())) for key, setting in plain["settings"].items()}
        case "TraceSetting":
            plain = {key: _trace_value(key, setting["value"]) for key, setting in plain["settings"].items()}
    return plain


def _trace_value(key: str, values: list[str]) -> list[str] | str:
    return values if key == "trace_level" else "".join(values)


def _known(row: dict[str, str]) -> dict[str, str]:
    """Of a model or a version, what is not left open"""
    return {name: value for name, value in row.items() if value or name == "name"}


def _set_parameter(field: Any, key: str, given: Any) -> None:  # noqa: ANN401 - a protobuf message
    if isinstance(given, bool):
        field.bool_param = given
    elif key.startswith("file:"):
        field.bytes_param = b64decode(given)
    else:
        field.string_param = given


def _set_setting(verb: Verb, field: Any, key: str, given: object) -> None:  # noqa: ANN401 - a protobuf message
    if verb.name == "TraceSetting":
        values = given if isinstance(given, list | tuple) else [] if given is None else [given]
        # without a value it is taken back, and that it is named has to be said
        field.value.extend(str(value) for value in values)
    elif isinstance(given, bool):
        field.bool_param = given
    elif isinstance(given, int) and 0 <= given < 1 << 32:
        field.uint32_param = given
    elif isinstance(given, str):
        field.string_param = given
    else:
        raise InvalidInput(f"the setting {key!r} is {given!r}, expected a bool, a number from 0 on, or a text")


def _made(name: str) -> Any:  # noqa: ANN401 - a protobuf message
    return _kind(name)()


@cache
def _kind(name: str) -> type[Message]:
    return GetMessageClass(_pool().FindMessageTypeByName(f"inference.{name}"))  # type: ignore[no-untyped-call]


@cache
def _pool() -> DescriptorPool:
    # not the one of all messages: a program may have described them there on its own
    pool = DescriptorPool()
    for file in shipped_files():
        pool.Add(file)  # type: ignore[no-untyped-call]
    return pool
