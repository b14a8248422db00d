"""
Answers of the management calls as the gRPC package of tritonclient gives them: protobuf messages, or the JSON of those.

Loaded when a runner of the type "grpc" is asked for one, since it needs grpc.
"""

import json
from typing import Any

from google.protobuf.json_format import MessageToJson, ParseDict
from google.protobuf.message import Message
from tritonclient.grpc import service_pb2

__all__ = ["message", "plain"]

_LOG_FIELDS = {bool: "bool_param", int: "uint32_param", str: "string_param"}


def message(call: str, answer: Any) -> Message:  # noqa: ANN401 - any JSON
    """The answer of a management call, which is JSON, as a message"""
    kind, document = _shaped(call, answer)
    made: Message = ParseDict(document, getattr(service_pb2, kind)(), ignore_unknown_fields=True)
    return made


def plain(answered: Message) -> Any:  # noqa: ANN401 - any JSON
    """A message as tritonclient answers it with as_json=True"""
    return json.loads(MessageToJson(answered, preserving_proto_field_name=True))


def _shaped(call: str, answer: Any) -> tuple[str, dict[str, Any]]:  # noqa: ANN401 - any JSON
    shaped: tuple[str, dict[str, Any]]
    match call:
        case "get_server_metadata":
            shaped = "ServerMetadataResponse", answer
        case "get_model_metadata":
            shaped = "ModelMetadataResponse", answer
        case "get_model_config":
            shaped = "ModelConfigResponse", {"config": answer}
        case "get_model_repository_index":
            shaped = "RepositoryIndexResponse", {"models": answer}
        case "get_inference_statistics":
            shaped = "ModelStatisticsResponse", answer
        case "get_log_settings" | "update_log_settings":
            settings = {name: {_LOG_FIELDS[type(value)]: value} for name, value in answer.items()}
            shaped = "LogSettingsResponse", {"settings": settings}
        case "get_trace_settings" | "update_trace_settings":
            values = {name: value if isinstance(value, list) else [value] for name, value in answer.items()}
            shaped = "TraceSettingResponse", {"settings": {name: {"value": value} for name, value in values.items()}}
        case _:
            shaped = "SystemSharedMemoryStatusResponse", {"regions": {region["name"]: region for region in answer}}
    return shaped
