"""
What the gRPC door tells clients that ask what it speaks (server reflection, as `grpcurl` and `grpc_cli` use it)

The inference service is described by the files that tritonclient ships: they are read, not imported, which would need
grpcio. The two small services of gRPC itself are described here.
"""

from __future__ import annotations

import ast
import re
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["described_files", "services_of", "shipped_files"]

Described: TypeAlias = tuple[str, bytes, list[str]]
"""A file: its name, its descriptor, and the full names of what it defines"""

_SHIPPED = ("model_config_pb2.py", "service_pb2.py")
_DESCRIPTOR = re.compile(r"AddSerializedFile\((b'.*')\)$", re.MULTILINE)

_STRING, _BYTES, _INT32 = (
    FieldDescriptorProto.TYPE_STRING,
    FieldDescriptorProto.TYPE_BYTES,
    FieldDescriptorProto.TYPE_INT32,
)


def described_files() -> list[Described]:
    """All files, each behind those that it needs"""
    files = [*shipped_files(), _health(), _reflection("v1alpha"), _reflection("v1")]
    return [(file.name, file.SerializeToString(), list(_defined(file))) for file in files]


def services_of(files: list[Described]) -> list[str]:
    """The full names of the services that these files define"""
    parsed = [FileDescriptorProto.FromString(descriptor) for _, descriptor, _ in files]
    return [f"{file.package}.{service.name}" for file in parsed for service in file.service]


def shipped_files() -> Iterator[FileDescriptorProto]:
    """Those of the inference service, each behind those that it needs"""
    package = find_spec("tritonclient")
    for name in _SHIPPED:
        for root in (package.submodule_search_locations if package else None) or []:
            found = _DESCRIPTOR.search(Path(root, "grpc", name).read_text(encoding="utf-8"))
            if found:
                yield FileDescriptorProto.FromString(ast.literal_eval(found[1]))


def _defined(file: FileDescriptorProto) -> Iterator[str]:
    for message in file.message_type:
        yield from _names(file.package, message)
    yield from (f"{file.package}.{one.name}" for one in file.enum_type)
    yield from (f"{file.package}.{one.name}" for one in file.service)


def _names(outside: str, message: DescriptorProto) -> Iterator[str]:
    name = f"{outside}.{message.name}"
    yield name
    yield from (f"{name}.{one.name}" for one in message.enum_type)
    for one in message.nested_type:
        yield from _names(name, one)


def _health() -> FileDescriptorProto:
    file = FileDescriptorProto(name="grpc/health/v1/health.proto", package="grpc.health.v1", syntax="proto3")
    request = file.message_type.add(name="HealthCheckRequest")
    _field(request, "service", 1, _STRING)
    response = file.message_type.add(name="HealthCheckResponse")
    status = response.enum_type.add(name="ServingStatus")
    for number, name in enumerate(("UNKNOWN", "SERVING", "NOT_SERVING", "SERVICE_UNKNOWN")):
        status.value.add(name=name, number=number)
    _field(response, "status", 1, ".grpc.health.v1.HealthCheckResponse.ServingStatus", FieldDescriptorProto.TYPE_ENUM)
    service = file.service.add(name="Health")
    types = {"input_type": ".grpc.health.v1.HealthCheckRequest", "output_type": ".grpc.health.v1.HealthCheckResponse"}
    service.method.add(name="Check", **types)
    service.method.add(name="Watch", server_streaming=True, **types)
    return file


def _reflection(version: str) -> FileDescriptorProto:
    package = f"grpc.reflection.{version}"
    file = FileDescriptorProto(name=f"grpc/reflection/{version}/reflection.proto", package=package, syntax="proto3")
    request, response, extension, files, numbers, services, one, error = (
        file.message_type.add(name=name)
        for name in (
            "ServerReflectionRequest",
            "ServerReflectionResponse",
            "ExtensionRequest",
            "FileDescriptorResponse",
            "ExtensionNumberResponse",
            "ListServiceResponse",
            "ServiceResponse",
            "ErrorResponse",
        )
    )
    _field(request, "host", 1, _STRING)
    request.oneof_decl.add(name="message_request")
    _choice(request, "file_by_filename", 3, _STRING)
    _choice(request, "file_containing_symbol", 4, _STRING)
    _choice(request, "file_containing_extension", 5, f".{package}.{extension.name}")
    _choice(request, "all_extension_numbers_of_type", 6, _STRING)
    _choice(request, "list_services", 7, _STRING)
    _field(response, "valid_host", 1, _STRING)
    _field(response, "original_request", 2, f".{package}.{request.name}")
    response.oneof_decl.add(name="message_response")
    _choice(response, "file_descriptor_response", 4, f".{package}.{files.name}")
    _choice(response, "all_extension_numbers_response", 5, f".{package}.{numbers.name}")
    _choice(response, "list_services_response", 6, f".{package}.{services.name}")
    _choice(response, "error_response", 7, f".{package}.{error.name}")
    _field(extension, "containing_type", 1, _STRING)
    _field(extension, "extension_number", 2, _INT32)
    _field(files, "file_descriptor_proto", 1, _BYTES, repeated=True)
    _field(numbers, "base_type_name", 1, _STRING)
    _field(numbers, "extension_number", 2, _INT32, repeated=True)
    _field(services, "service", 1, f".{package}.{one.name}", repeated=True)
    _field(one, "name", 1, _STRING)
    _field(error, "error_code", 1, _INT32)
    _field(error, "error_message", 2, _STRING)
    file.service.add(name="ServerReflection").method.add(
        name="ServerReflectionInfo",
        input_type=f".{package}.{request.name}",
        output_type=f".{package}.{response.name}",
        client_streaming=True,
        server_streaming=True,
    )
    return file


def _field(
    message: DescriptorProto,
    name: str,
    number: int,
    kind: FieldDescriptorProto.Type.ValueType | str,
    of: FieldDescriptorProto.Type.ValueType = FieldDescriptorProto.TYPE_MESSAGE,
    *,
    repeated: bool = False,
) -> FieldDescriptorProto:
    """`kind`: a plain one, or the full name of a message, or of what `of` says"""
    label = FieldDescriptorProto.LABEL_REPEATED if repeated else FieldDescriptorProto.LABEL_OPTIONAL
    field = message.field.add(name=name, number=number, label=label)
    if isinstance(kind, str):
        field.type, field.type_name = of, kind
    else:
        field.type = kind
    return field


def _choice(message: DescriptorProto, name: str, number: int, kind: FieldDescriptorProto.Type.ValueType | str) -> None:
    """A field of the message's only oneof"""
    _field(message, name, number, kind).oneof_index = 0
