"""Metadata as parameters (`--grpc-header-forward-pattern`), as an engine in Python sees them"""

from __future__ import annotations

import json
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import grpc
import numpy as np
import pytest
from tritonclient.grpc import InferResult, service_pb2, service_pb2_grpc

from tests.integration.grpc_doors import OK, channel, ended, port_of, tensor_request
from tests.python_models import TOLD, Told, served
from tests.serving import run_to_end

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from tests.conftest import StartServer

RESERVED: Final = [
    "sequence_id",
    "sequence_start",
    "sequence_end",
    "priority",
    "timeout",
    "headers",
    "binary_data_output",
    "triton_",
    "triton_final_response",
]


def request(**parameters: int) -> service_pb2.ModelInferRequest:
    made = tensor_request("m", "A", "FP32", np.zeros((1, 2), np.float32))
    for name, value in parameters.items():
        made.parameters[name].int64_param = value
    return made


def told(answer: service_pb2.ModelInferResponse) -> dict[str, Any]:
    """The parameters that the engine was given"""
    found: dict[str, Any] = json.loads(InferResult(answer).as_numpy("PARAMETERS").item())
    return found


@contextmanager
def serving(pattern: str | None) -> Iterator[service_pb2_grpc.GRPCInferenceServiceStub]:
    with served(Told(), text=TOLD, header_pattern=pattern) as model:
        port = model.core.serve_grpc("127.0.0.1", 0, reuse_port=False)
        with channel(port, primary_user_agent="me") as opened:
            yield service_pb2_grpc.GRPCInferenceServiceStub(opened)


def ask(
    pattern: str | None, metadata: Sequence[tuple[str, str]], asked: service_pb2.ModelInferRequest | None = None
) -> dict[str, Any]:
    with serving(pattern) as stub:
        return told(stub.ModelInfer(asked or request(), metadata=tuple(metadata)))


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("X-My-.*", {"x-my-first", "x-my-second"}),
        ("x-my-first", {"x-my-first"}),
        ("^my", set()),
        ("^X-|^NOT", {"x-my-first", "x-my-second", "x-other", "not-my"}),
        ("(?-i)X-My-.*", set()),
        (None, set()),
    ],
)
def test_metadata_reaches_the_engine_whose_name_matches_somewhere(pattern: str | None, expected: set[str]) -> None:
    values = {"x-my-first": "1", "x-my-second": 'a "b" \\', "x-other": "", "not-my": "c"}
    assert ask(pattern, list(values.items())) == {name: values[name] for name in expected}


def test_it_comes_beside_the_parameters_of_the_request() -> None:
    assert ask("x-.*", [("x-trace", "7")], request(mood=5)) == {"mood": 5, "x-trace": "7"}


def test_what_belongs_to_the_transport_is_no_metadata() -> None:
    found = ask(".*", [("x-a", "b")])
    assert found.pop("user-agent").startswith("me ")
    assert found == {"x-a": "b"}


def test_that_of_a_stream_goes_with_each_of_its_requests() -> None:
    with serving("x-.*") as stub:
        asked = (request(number=number) for number in range(20))
        answers = stub.ModelStreamInfer(asked, metadata=(("x-stream", "one"),))
        found = [told(answer.infer_response) for answer in answers]
    assert found == [{"number": number, "x-stream": "one"} for number in range(20)]


@pytest.mark.parametrize("name", RESERVED)
def test_a_reserved_name_that_matches_is_refused_and_else_let_be(name: str) -> None:
    text = f"Header '{name}' is reserved for Triton usage and cannot be forwarded."
    pattern = "^[a-z]+_|^priority|^timeout|^headers"
    assert ended(lambda: ask(pattern, [(name, "5")])) == (grpc.StatusCode.INVALID_ARGUMENT, text)
    assert ask("x-.*", [(name, "5"), ("x-a", "b")]) == {"x-a": "b"}


def test_calls_beside_inference_have_no_use_for_it() -> None:
    with serving(".*") as stub:
        metadata = (("timeout", "5"),)
        assert ended(lambda: stub.ServerLive(service_pb2.ServerLiveRequest(), metadata=metadata)) == OK


def test_a_server_takes_the_pattern_as_a_flag(standard_repository: Path, start_server: StartServer) -> None:
    flags = (f"--model-repository={standard_repository}", "--http-port=0")
    refused = run_to_end(*flags, "--grpc-header-forward-pattern=(")
    assert refused.returncode != 0
    assert "header forward pattern '(' is no regular expression: unclosed group" in refused.stdout
    server = start_server(standard_repository, "--grpc-header-forward-pattern", "TIME.*")
    asked = tensor_request("identity_int32", "INPUT0", "INT32", np.zeros((1, 1), np.int32))
    with channel(port_of(server)) as opened:
        stub = service_pb2_grpc.GRPCInferenceServiceStub(opened)
        stub.ModelInfer(asked, metadata=(("x-time", "now"),))
        code, _ = ended(lambda: stub.ModelInfer(asked, metadata=(("timeout", "5"),)))
        assert code == grpc.StatusCode.INVALID_ARGUMENT
