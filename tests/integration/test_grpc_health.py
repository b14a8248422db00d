"""The health protocol and reflection of the gRPC door, as probes, balancers and tools use them"""

from __future__ import annotations

import queue
import threading
from typing import TYPE_CHECKING, Final

import grpc
import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass
from tritonclient.grpc import service_pb2

from runners import Engine
from runners.grpc_description import described_files
from tests import models
from tests.integration.grpc_doors import channel, ended, port_of
from tests.serving import Server

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from typing import Any

    from tests.conftest import StartServer

HEALTH: Final = "/grpc.health.v1.Health"
SERVING, NOT_SERVING, UNKNOWN = 1, 2, 3
WAIT_S: Final = 20


def asked(service: str) -> bytes:
    return b"\n" + bytes([len(service)]) + service.encode() if service else b""


def status(answer: bytes) -> int:
    kind, value = answer
    assert kind == 8
    return value


class Watch:
    """What one watch hears, in order"""

    def __init__(self, through: grpc.Channel, service: str) -> None:
        self.call = through.unary_stream(f"{HEALTH}/Watch")(asked(service))
        self._heard: queue.Queue[int | grpc.StatusCode] = queue.Queue()
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        try:
            for answer in self.call:
                self._heard.put(status(answer))
        except grpc.RpcError as error:
            self._heard.put(error.code())

    def next(self) -> int | grpc.StatusCode:
        return self._heard.get(timeout=WAIT_S)

    def says_nothing(self) -> bool:
        return self._heard.empty()


@pytest.fixture
def changing(repository: Path, start_server: StartServer) -> Iterator[tuple[Server, grpc.Channel]]:
    """A server with the model add_sub, which is not loaded"""
    models.write_add_sub(repository)
    server = start_server(repository, "--model-control-mode=explicit")
    with channel(port_of(server)) as opened:
        yield server, opened


def order(server: Server, what: str) -> None:
    response = server.post(f"/v2/repository/models/add_sub/{what}", b"")
    assert response.status == 200, response.body


def test_a_watch_of_a_model_tells_what_is_and_each_change(changing: tuple[Server, grpc.Channel]) -> None:
    server, through = changing
    watch, early = Watch(through, "add_sub"), Watch(through, "nobody")
    assert [watch.next(), early.next()] == [UNKNOWN, UNKNOWN]
    for _ in range(2):
        order(server, "load")
        assert watch.next() == SERVING
        assert Watch(through, "add_sub").next() == SERVING
        order(server, "unload")
        assert watch.next() == UNKNOWN
    assert watch.says_nothing()
    assert early.says_nothing()


def test_a_watch_of_the_server_ends_with_it(changing: tuple[Server, grpc.Channel]) -> None:
    server, through = changing
    watches = [Watch(through, service) for service in ("", "inference.GRPCInferenceService")]
    assert [watch.next() for watch in watches] == [SERVING, SERVING]
    server.terminate()
    assert [watch.next() for watch in watches] == [grpc.StatusCode.UNAVAILABLE] * 2
    assert server.wait() == 0


def test_a_server_with_a_model_that_failed_is_not_serving(repository: Path, start_server: StartServer) -> None:
    models.write_add_sub(repository)
    models.write_add_sub(repository, "broken")
    (repository / "broken" / "1" / "model.onnx").write_bytes(b"no model")
    server = start_server(repository, "--exit-on-error=false", ready=False)
    with channel(port_of(server)) as through:
        check = through.unary_unary(f"{HEALTH}/Check")
        assert [status(check(asked(service))) for service in ("", "add_sub")] == [NOT_SERVING, SERVING]
        assert Watch(through, "").next() == NOT_SERVING


def test_a_check_of_what_is_not_there_is_an_error(changing: tuple[Server, grpc.Channel]) -> None:
    _, through = changing
    check = through.unary_unary(f"{HEALTH}/Check")
    assert ended(lambda: check(asked("nix"))) == (
        grpc.StatusCode.NOT_FOUND,
        "Request for unknown model: 'nix' is not found",
    )
    assert ended(lambda: check(b"\n\x05ab"))[0] == grpc.StatusCode.INVALID_ARGUMENT
    code, _ = ended(lambda: through.unary_unary(f"{HEALTH}/List")(b""))
    assert code == grpc.StatusCode.UNIMPLEMENTED


def test_a_hundred_watches_that_are_given_up_leave_nothing(changing: tuple[Server, grpc.Channel]) -> None:
    server, through = changing
    watches = [Watch(through, "add_sub") for _ in range(100)]
    assert {watch.next() for watch in watches} == {UNKNOWN}
    for watch in watches:
        watch.call.cancel()
    assert {watch.next() for watch in watches} == {grpc.StatusCode.CANCELLED}
    assert server.stop() == 0


class Reflection:
    """A client that has nothing but the address: it learns the protocol from the server"""

    def __init__(self, through: grpc.Channel, version: str) -> None:
        file = next(
            file for name, file, _ in described_files() if name == f"grpc/reflection/{version}/reflection.proto"
        )
        pool: Any = DescriptorPool()
        pool.Add(FileDescriptorProto.FromString(file))
        package = f"grpc.reflection.{version}"
        self._request = GetMessageClass(pool.FindMessageTypeByName(f"{package}.ServerReflectionRequest"))
        answer = GetMessageClass(pool.FindMessageTypeByName(f"{package}.ServerReflectionResponse"))
        self._ask = through.stream_stream(
            f"/{package}.ServerReflection/ServerReflectionInfo", response_deserializer=answer.FromString
        )

    def ask(self, *questions: dict[str, str]) -> list[Any]:
        return list(self._ask(self._request(**question).SerializeToString() for question in questions))

    def learned(self, symbol: str) -> Any:  # noqa: ANN401 - a pool, whose methods have no types
        """All files that a symbol needs"""
        pool: Any = DescriptorPool()
        known: set[str] = set()

        def learn(question: dict[str, str]) -> None:
            for file in self.ask(question)[0].file_descriptor_response.file_descriptor_proto:
                found = FileDescriptorProto.FromString(file)
                if found.name not in known:
                    known.add(found.name)
                    for needed in found.dependency:
                        learn({"file_by_filename": needed})
                    pool.Add(found)

        learn({"file_containing_symbol": symbol})
        return pool


@pytest.fixture(scope="module")
def through(engine: Engine) -> Iterator[grpc.Channel]:
    with channel(engine.serve_grpc(port=0)) as opened:
        yield opened


@pytest.mark.parametrize("version", ["v1", "v1alpha"])
def test_a_client_learns_the_protocol_from_the_server(through: grpc.Channel, version: str) -> None:
    client = Reflection(through, version)
    (listed,) = client.ask({"list_services": "*"})
    names = {service.name for service in listed.list_services_response.service}
    assert names == {
        "inference.GRPCInferenceService",
        "grpc.health.v1.Health",
        "grpc.reflection.v1.ServerReflection",
        "grpc.reflection.v1alpha.ServerReflection",
    }
    for name in names:
        assert client.learned(name).FindServiceByName(name).methods
    pool = client.learned("inference.GRPCInferenceService")
    methods = pool.FindServiceByName("inference.GRPCInferenceService").methods
    shipped = service_pb2.DESCRIPTOR.services_by_name["GRPCInferenceService"].methods
    assert [method.name for method in methods] == [method.name for method in shipped]
    request = GetMessageClass(pool.FindMessageTypeByName("inference.ModelMetadataRequest"))(name="add_sub")
    answer: Any = GetMessageClass(pool.FindMessageTypeByName("inference.ModelMetadataResponse"))
    found = through.unary_unary("/inference.GRPCInferenceService/ModelMetadata")(request.SerializeToString())
    assert [tensor.name for tensor in answer.FromString(found).inputs] == ["INPUT0", "INPUT1"]


def test_each_question_of_a_call_has_its_answer_and_what_is_not_there_ends_nothing(through: grpc.Channel) -> None:
    answers = Reflection(through, "v1").ask(
        {"host": "h", "file_containing_symbol": "inference.ModelInferRequest.InferInputTensor"},
        {"file_containing_symbol": "no.such.symbol"},
        {"file_by_filename": "no.proto"},
        {"all_extension_numbers_of_type": "inference.ModelInferRequest"},
        {},
        {"list_services": ""},
    )
    not_found, invalid = grpc.StatusCode.NOT_FOUND.value[0], grpc.StatusCode.INVALID_ARGUMENT.value[0]
    assert [answer.error_response.error_code for answer in answers] == [0, not_found, not_found, 0, invalid, 0]
    assert answers[0].valid_host == "h"
    assert answers[0].original_request.host == "h"


def test_a_question_that_cannot_be_read_ends_the_call(through: grpc.Channel) -> None:
    call = through.stream_stream("/grpc.reflection.v1.ServerReflection/ServerReflectionInfo")(iter([b"\n\x05ab"]))
    assert ended(lambda: next(call))[0] == grpc.StatusCode.INVALID_ARGUMENT
