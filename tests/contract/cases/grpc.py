"""Rows that gRPC alone can bring about, or has words of its own for"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from tritonclient.grpc import service_pb2

from tests.contract.cases.case import ROW, UNKNOWN_ID, Code
from tests.contract.cases.repository import CONTROL_DISABLED
from tests.contract.cases.shared_memory import SHARED_MEMORY_DISABLED

if TYPE_CHECKING:
    from google.protobuf.message import Message

__all__ = ["GRPC_CASES", "GRPC_EXPLICIT_CASES", "GrpcCase"]


@dataclass(frozen=True)
class GrpcCase:
    name: str
    method: str
    message: Message
    code: Code
    text: str


def infer(**fields: Any) -> service_pb2.ModelInferRequest:  # noqa: ANN401 - of any message
    """A request for ``add_sub`` that is right, but for these fields"""
    made = service_pb2.ModelInferRequest(model_name="add_sub", **fields)
    for name in ("INPUT0", "INPUT1"):
        made.inputs.add(name=name, datatype="INT32", shape=[1, 16])
        made.raw_input_contents.append(ROW)
    return made


def with_parameter(name: str, **value: Any) -> service_pb2.ModelInferRequest:  # noqa: ANN401 - of any type
    made = infer()
    made.parameters[name].CopyFrom(service_pb2.InferParameter(**value))
    return made


def with_output(name: str, **value: Any) -> service_pb2.ModelInferRequest:  # noqa: ANN401 - of any type
    made = infer()
    made.outputs.add(name="OUTPUT0").parameters[name].CopyFrom(service_pb2.InferParameter(**value))
    return made


def with_contents(*, raw: bool, **contents: Any) -> service_pb2.ModelInferRequest:  # noqa: ANN401 - of any type
    """The first input has these contents; `raw`: and the bytes of both are there as well"""
    made = infer()
    if contents:
        made.inputs[0].contents.CopyFrom(service_pb2.InferTensorContents(**contents))
    if not raw:
        del made.raw_input_contents[:]
    return made


def with_shape(*shape: int) -> service_pb2.ModelInferRequest:
    made = infer()
    made.inputs[0].shape[:] = shape
    return made


def with_region(**contents: Any) -> service_pb2.ModelInferRequest:  # noqa: ANN401 - of any type
    made = with_contents(raw=False, **contents)
    made.inputs[0].parameters["shared_memory_region"].string_param = "r"
    made.inputs[0].parameters["shared_memory_byte_size"].int64_param = 64
    return made


def row(
    name: str, message: Message, text: str, code: Code = Code.INVALID_ARGUMENT, method: str = "ModelInfer"
) -> GrpcCase:
    return GrpcCase(name, method, message, code, text)


def load(**parameters: service_pb2.ModelRepositoryParameter) -> service_pb2.RepositoryModelLoadRequest:
    made = service_pb2.RepositoryModelLoadRequest(model_name="add_sub")
    for name, value in parameters.items():
        made.parameters[name.replace("__", ":")].CopyFrom(value)
    return made


def value(**given: Any) -> service_pb2.ModelRepositoryParameter:  # noqa: ANN401 - of any type
    return service_pb2.ModelRepositoryParameter(**given)


UNLOAD: Final = service_pb2.RepositoryModelUnloadRequest(model_name="add_sub")
UNLOAD.parameters["unload_dependents"].int64_param = 1

LOG_FILE: Final = service_pb2.LogSettingsRequest()
LOG_FILE.settings["log_file"].string_param = "/tmp/log"

INTS: Final = list(range(16))

LOAD: Final = "RepositoryModelLoad"

GRPC_EXPLICIT_CASES: Final = [
    row(
        "a load parameter that nobody knows",
        load(x=value(string_param="1")),
        "unrecognized load parameter 'x'.",
        method=LOAD,
    ),
    row(
        "a configuration of bytes",
        load(config=value(bytes_param=b"{}")),
        "invalid value type for load parameter 'config', expected string_param.",
        method=LOAD,
    ),
    row(
        "a file of text",
        load(file__1=value(string_param="x")),
        "invalid value type for load parameter 'file:1', expected bytes_param.",
        method=LOAD,
    ),
    row(
        "dependents that are a number",
        UNLOAD,
        "invalid value type for 'unload_dependents' parameter, expected bool_param.",
        method="RepositoryModelUnload",
    ),
]
"""For a server whose models are loaded on demand"""

GRPC_CASES: Final = [
    *GRPC_EXPLICIT_CASES,
    row("a plain load", load(), CONTROL_DISABLED, Code.UNAVAILABLE, LOAD),
    row(
        "a version that is a word",
        infer(model_version="abc"),
        "failed to get model version from specified version string 'abc' (details: stol), version should be an "
        "integral value > 0",
    ),
    row(
        "a version below zero",
        infer(model_version="-1"),
        "invalid model version specified '-1' , version should be an integral value > 0",
    ),
    row(
        "contents beside raw ones",
        with_contents(raw=True, int_contents=INTS),
        "contents field must not be specified when using raw_input_contents for 'INPUT0' for model 'add_sub'",
    ),
    row(
        "contents of two types",
        with_contents(raw=False, int_contents=INTS, fp32_contents=[1.0]),
        "unexpected explicit tensor data for input tensor 'INPUT0' for model 'add_sub', binary data was already "
        "supplied.",
    ),
    row(
        "contents of another type",
        with_contents(raw=False, fp32_contents=[1.0]),
        "unexpected explicit tensor data for input tensor 'INPUT0' for model 'add_sub' of type 'FP32', expected "
        "datatype 'INT32'",
    ),
    row(
        "no contents at all",
        with_contents(raw=False),
        "unable to find data for input tensor 'INPUT0' for model 'add_sub' in request.",
    ),
    row(
        "contents beside a region",
        with_region(int_contents=INTS),
        "unexpected 'content' provided when using shared memory for input tensor 'INPUT0' for model 'add_sub'",
    ),
    row("a region where there are none", with_region(), "Unable to find shared memory region: 'r'", Code.NOT_FOUND),
    row(
        "a dimension that is not said",
        with_shape(1, -1),
        f"{UNKNOWN_ID}All input dimensions should be specified for input 'INPUT0' for model 'add_sub', got [1,-1]",
    ),
    row(
        "a sequence_id that is a boolean",
        with_parameter("sequence_id", bool_param=True),
        "invalid value type for 'sequence_id' parameter, expected int64_param or string_param.",
    ),
    *(
        row(
            f"a {name} that is a number",
            with_parameter(name, int64_param=1),
            f"invalid value type for '{name}' parameter, expected bool_param.",
        )
        for name in ("sequence_start", "sequence_end")
    ),
    row(
        "a timeout that is text",
        with_parameter("timeout", string_param="5"),
        "invalid value type for 'timeout' parameter, expected int64_param.",
    ),
    row(
        "a priority below zero",
        with_parameter("priority", int64_param=-1),
        "invalid value for 'priority', expected value >= 0.",
    ),
    row(
        "classes that are text",
        with_output("classification", string_param="3"),
        "invalid value type for 'classification' parameter, expected int64_param",
    ),
    row(
        "no classes",
        with_output("classification", int64_param=0),
        "invalid value for 'classification' parameter, expected >= 1",
    ),
    *(
        row(
            f"shared memory where clients may not use any: {kind} {verb}",
            getattr(service_pb2, f"{kind}SharedMemory{verb}Request")(name="r"),
            SHARED_MEMORY_DISABLED,
            Code.UNIMPLEMENTED,
            f"{kind}SharedMemory{verb}",
        )
        for kind in ("System", "Cuda")
        for verb in ("Register", "Unregister")
    ),
    row(
        "another log file",
        LOG_FILE,
        "log file location can not be updated through network protocol",
        Code.UNIMPLEMENTED,
        "LogSettings",
    ),
    row(
        "statistics of a model that is not there",
        service_pb2.ModelStatisticsRequest(name="missing"),
        "requested model 'missing' is not available",
        method="ModelStatistics",
    ),
    *(
        row(
            f"{method} of a model that is not there",
            getattr(service_pb2, f"{method}Request")(name="missing"),
            "Request for unknown model: 'missing' is not found",
            Code.NOT_FOUND,
            method,
        )
        for method in ("ModelMetadata", "ModelConfig")
    ),
]
