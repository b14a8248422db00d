"""The gRPC door, asked by the real ``tritonclient.grpc``"""

from __future__ import annotations

import asyncio
import os
import threading
from typing import TYPE_CHECKING, Any

import grpc
import numpy as np
import numpy.typing as npt
import pytest
from tritonclient import grpc as triton
from tritonclient.grpc import InferenceServerClient as Client
from tritonclient.grpc import aio, service_pb2, service_pb2_grpc
from tritonclient.utils import InferenceServerException, shared_memory

from runners import Engine, EngineOptions
from tests.integration.python_models import models as python_models
from tests.integration.test_tritonclient import FIRST, SECOND, VALUES
from tests.serving import GRPC_LINE
from tests.shared_memory import Object
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from tests.conftest import StartServer
    from tests.integration.slow_engine import Slow


@pytest.fixture(scope="module")
def port(engine: Engine) -> int:
    return engine.serve_grpc(port=0)


@pytest.fixture
def client(port: int) -> Iterator[Client]:
    with Client(f"127.0.0.1:{port}") as opened:
        yield opened


@pytest.fixture
def stub(port: int) -> Iterator[service_pb2_grpc.GRPCInferenceServiceStub]:
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        yield service_pb2_grpc.GRPCInferenceServiceStub(channel)


def array_input(name: str, datatype: str, values: npt.NDArray[Any]) -> triton.InferInput:
    made = triton.InferInput(name, list(values.shape), datatype)
    made.set_data_from_numpy(values)
    return made


def add_sub_inputs() -> list[triton.InferInput]:
    return [array_input("INPUT0", "INT32", FIRST), array_input("INPUT1", "INT32", SECOND)]


@pytest.mark.parametrize(("model", "version"), [("nix", ""), ("nix", "1"), ("add_sub", "7")])
def test_a_model_that_is_not_there_is_not_ready(client: Client, model: str, version: str) -> None:
    """As Triton's: its clients ask until it is"""
    assert not client.is_model_ready(model, version)


def test_a_version_that_is_no_number_is_an_error(client: Client) -> None:
    with pytest.raises(InferenceServerException, match="version"):
        client.is_model_ready("add_sub", "x")


def test_health_and_metadata(client: Client) -> None:
    assert client.is_server_live() and client.is_server_ready() and client.is_model_ready("add_sub")  # noqa: PT018
    metadata = client.get_server_metadata()
    assert metadata.name == "triton" and "classification" in metadata.extensions  # noqa: PT018
    model = client.get_model_metadata("add_sub", "1")
    assert [(tensor.name, tensor.datatype, list(tensor.shape)) for tensor in model.inputs] == [
        ("INPUT0", "INT32", [-1, 16]),
        ("INPUT1", "INT32", [-1, 16]),
    ]
    config = client.get_model_config("add_sub").config
    assert (config.name, config.input[0].name, config.max_batch_size) == ("add_sub", "INPUT0", 8)


def test_an_inference_gives_what_it_gives_over_http(client: Client) -> None:
    result = client.infer("add_sub", add_sub_inputs(), model_version="1", request_id="seven")
    np.testing.assert_array_equal(result.as_numpy("OUTPUT0"), FIRST + SECOND)
    np.testing.assert_array_equal(result.as_numpy("OUTPUT1"), FIRST - SECOND)
    answer = result.get_response()
    assert (answer.model_name, answer.model_version, answer.id) == ("add_sub", "1", "seven")
    wanted = [triton.InferRequestedOutput("OUTPUT1")]
    alone = client.infer("add_sub", add_sub_inputs(), outputs=wanted)
    assert [output.name for output in alone.get_response().outputs] == ["OUTPUT1"]


@pytest.mark.parametrize("datatype", sorted(VALUES.keys() - {"BF16"}))
def test_every_datatype_comes_back(client: Client, datatype: str) -> None:
    values = VALUES[datatype]
    result = client.infer(f"identity_{datatype.lower()}", [array_input("INPUT0", datatype, values)])
    np.testing.assert_array_equal(result.as_numpy("OUTPUT0"), values)


@pytest.mark.parametrize("elements", [0, 1, 4_000, 5_000, 100_000, 3_000_000])
def test_tensors_of_every_size_come_back(client: Client, elements: int) -> None:
    values = np.arange(elements, dtype=np.float32).reshape(1, elements)
    result = client.infer("identity_fp32", [array_input("INPUT0", "FP32", values)])
    np.testing.assert_array_equal(result.as_numpy("OUTPUT0"), values)


def request(datatype: str, shape: list[int], **contents: Sequence[object]) -> service_pb2.ModelInferRequest:
    asked = service_pb2.ModelInferRequest(model_name=f"identity_{datatype.lower()}", id="typed")
    asked.inputs.add(name="INPUT0", datatype=datatype, shape=shape)
    for field, values in contents.items():
        getattr(asked.inputs[0].contents, field).extend(values)
    return asked


@pytest.mark.parametrize(
    ("datatype", "field", "values"),
    [
        ("BOOL", "bool_contents", [True, False]),
        ("INT8", "int_contents", [-128, 127]),
        ("INT32", "int_contents", [-(2**31), 5]),
        ("INT64", "int64_contents", [-(2**63), 5]),
        ("UINT16", "uint_contents", [0, 65535]),
        ("UINT64", "uint64_contents", [0, 2**64 - 1]),
        ("FP32", "fp32_contents", [0.5, -1.0]),
        ("FP64", "fp64_contents", [0.5, 1e300]),
        ("BYTES", "bytes_contents", [b"ab", b""]),
    ],
)
def test_typed_contents_are_tensors(
    stub: service_pb2_grpc.GRPCInferenceServiceStub, datatype: str, field: str, values: list[Any]
) -> None:
    answer = stub.ModelInfer(request(datatype, [1, 2], **{field: values}))
    result = triton.InferResult(answer).as_numpy("OUTPUT0")
    assert result.ravel().tolist() == values


@pytest.mark.parametrize(
    ("asked", "code", "text"),
    [
        (
            request("INT32", [1, 1], fp32_contents=[1.0]),
            grpc.StatusCode.INVALID_ARGUMENT,
            (
                "unexpected explicit tensor data for input tensor 'INPUT0' for model 'identity_int32' of type 'FP32', "
                "expected datatype 'INT32'"
            ),
        ),
        (
            request("INT32", [1, 1], int_contents=[1], fp32_contents=[1.0]),
            grpc.StatusCode.INVALID_ARGUMENT,
            (
                "unexpected explicit tensor data for input tensor 'INPUT0' for model 'identity_int32', binary data was "
                "already supplied."
            ),
        ),
        (
            request("INT32", [1, 1]),
            grpc.StatusCode.INVALID_ARGUMENT,
            "unable to find data for input tensor 'INPUT0' for model 'identity_int32' in request.",
        ),
        (
            service_pb2.ModelInferRequest(model_name="add_sub", model_version="abc"),
            grpc.StatusCode.INVALID_ARGUMENT,
            (
                "failed to get model version from specified version string 'abc' (details: stol), version should be an "
                "integral value > 0"
            ),
        ),
        (
            service_pb2.ModelInferRequest(model_name="nix"),
            grpc.StatusCode.NOT_FOUND,
            "Request for unknown model: 'nix' is not found",
        ),
    ],
)
def test_what_is_wrong_has_tritons_code_and_text(
    stub: service_pb2_grpc.GRPCInferenceServiceStub,
    asked: service_pb2.ModelInferRequest,
    code: grpc.StatusCode,
    text: str,
) -> None:
    with pytest.raises(grpc.RpcError) as raised:
        stub.ModelInfer(asked)
    assert (raised.value.code(), raised.value.details()) == (code, text)


def test_tensors_lie_in_shared_memory(standard_repository: Path) -> None:
    with (
        Engine(standard_repository, options=EngineOptions(client_shared_memory=True)) as engine,
        Client(f"127.0.0.1:{engine.serve_grpc(port=0)}") as client,
    ):
        ask_in_region(client)


def test_more_than_a_message_may_have_is_refused_before_it_is_read(standard_repository: Path) -> None:
    with (
        Engine(standard_repository, options=EngineOptions(client_shared_memory=True)) as engine,
        Client(f"127.0.0.1:{engine.serve_grpc(port=0)}") as client,
        Object(5 << 30) as memory,
    ):
        client.register_system_shared_memory("large", memory.key, memory.size)
        tensor = triton.InferInput("INPUT0", [1, 1 << 29], "FP32")
        tensor.set_shared_memory("large", 1 << 31)
        with pytest.raises(InferenceServerException, match=r"in shared memory, at most 2147483647 are allowed$"):
            client.infer("identity_fp32", [tensor])


def ask_in_region(client: Client) -> None:
    key = f"/kushi-test-{os.getpid()}-grpc"
    size = FIRST.nbytes
    region = shared_memory.create_shared_memory_region("grpc", key, 4 * size)
    try:
        shared_memory.set_shared_memory_region(region, [FIRST, SECOND])
        client.register_system_shared_memory("grpc", key, 4 * size)
        assert client.get_system_shared_memory_status(as_json=True)["regions"]["grpc"]["key"] == key
        inputs = [triton.InferInput(f"INPUT{index}", [1, 16], "INT32") for index in range(2)]
        for index, tensor in enumerate(inputs):
            tensor.set_shared_memory("grpc", size, offset=index * size)
        outputs = [triton.InferRequestedOutput("OUTPUT0"), triton.InferRequestedOutput("OUTPUT1")]
        outputs[0].set_shared_memory("grpc", size, offset=2 * size)
        result = client.infer("add_sub", inputs, outputs=outputs)
        in_region = shared_memory.get_contents_as_numpy(region, np.int32, [1, 16], offset=2 * size)
        np.testing.assert_array_equal(in_region, FIRST + SECOND)
        np.testing.assert_array_equal(result.as_numpy("OUTPUT1"), FIRST - SECOND)
        client.unregister_system_shared_memory("grpc")
        with pytest.raises(InferenceServerException, match="Unable to find shared memory region: 'grpc'"):
            client.infer("add_sub", inputs)
    finally:
        client.unregister_system_shared_memory("grpc")
        shared_memory.destroy_shared_memory_region(region)


def test_classes_take_the_place_of_an_output(client: Client) -> None:
    outputs = [triton.InferRequestedOutput("OUTPUT0", class_count=2)]
    classes = client.infer("add_sub", add_sub_inputs(), outputs=outputs).as_numpy("OUTPUT0")
    assert [text.decode().partition(":")[0] for text in classes.ravel()] == ["18", "17"]


def test_statistics_count_what_was_asked(client: Client) -> None:
    before = client.get_inference_statistics("add_sub").model_stats[0].inference_stats.success.count
    client.infer("add_sub", add_sub_inputs())
    stats = client.get_inference_statistics("add_sub").model_stats[0]
    assert stats.inference_stats.success.count == before + 1
    assert stats.version == "1" and stats.batch_stats[0].batch_size == 1  # noqa: PT018


def test_settings_of_the_log_and_of_traces(client: Client) -> None:
    assert client.update_log_settings({"log_verbose_level": 2}).settings["log_verbose_level"].uint32_param == 2
    assert client.update_log_settings({"log_verbose_level": 0}).settings["log_verbose_level"].uint32_param == 0
    assert list(client.get_trace_settings().settings["trace_level"].value) == ["OFF"]
    assert list(client.update_trace_settings(settings={"trace_rate": "7"}).settings["trace_rate"].value) == ["7"]
    assert list(client.update_trace_settings(settings={"trace_rate": None}).settings["trace_rate"].value) == ["1000"]


def test_models_are_loaded_and_unloaded(start_server: StartServer, repository: Path) -> None:
    python_models.write(repository, "add_sub", python_models.ADD_SUB, python_models.ADD_SUB_CONFIG)
    server = start_server(repository, "--model-control-mode=explicit", "--grpc-port=0")
    port = server.log.wait_for(GRPC_LINE, 10).group(1)
    with Client(f"127.0.0.1:{port}") as client:
        assert [(model.name, model.state) for model in client.get_model_repository_index().models] == [("add_sub", "")]
        assert not client.is_model_ready("add_sub")
        client.load_model("add_sub")
        assert client.is_model_ready("add_sub")
        client.unload_model("add_sub")
        eventually(lambda: not client.is_model_ready("add_sub"), "it is unloaded")
        with pytest.raises(
            InferenceServerException, match="failed to load 'nix', failed to poll from model repository"
        ):
            client.load_model("nix")


def test_a_call_that_is_given_up_frees_its_place(slow: Slow) -> None:
    asyncio.run(give_up(slow))


async def give_up(slow: Slow) -> None:
    executing = slow.occupy()
    with Client(f"127.0.0.1:{slow.engine.serve_grpc(port=0)}") as client:
        inputs = [array_input("STEPS", "INT64", np.array([[0]], np.int64))]
        ended = threading.Event()
        waits = client.async_infer("slow", inputs, lambda **_: ended.set())
        slow.until_waiting(1)
        waits.cancel()
        slow.until_waiting(0)
        assert ended.wait(10)
        with pytest.raises(InferenceServerException) as raised:
            client.infer("slow", inputs, client_timeout=0.2)
        assert raised.value.status() == "StatusCode.DEADLINE_EXCEEDED"
        slow.until_waiting(0)
    slow.go_on()
    await executing


def test_the_health_protocol(port: int) -> None:
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        check = channel.unary_unary("/grpc.health.v1.Health/Check")
        for service in (b"", b"\n\x07add_sub"):
            assert check(service) == b"\x08\x01", "SERVING"
        with pytest.raises(grpc.RpcError) as raised:
            check(b"\n\x03nix")
        assert raised.value.code() == grpc.StatusCode.NOT_FOUND
        with pytest.raises(grpc.RpcError) as raised:
            channel.unary_unary("/inference.GRPCInferenceService/Nix")(b"")
        assert raised.value.code() == grpc.StatusCode.UNIMPLEMENTED


def test_many_calls_at_once_on_one_connection(port: int) -> None:
    async def ask() -> None:
        async with aio.InferenceServerClient(f"127.0.0.1:{port}") as client:
            rows = [np.full((1, 16), number, np.int32) for number in range(300)]
            asked = (
                client.infer("add_sub", [array_input("INPUT0", "INT32", row), array_input("INPUT1", "INT32", SECOND)])
                for row in rows
            )
            for row, result in zip(rows, await asyncio.gather(*asked), strict=True):
                np.testing.assert_array_equal(result.as_numpy("OUTPUT0"), row + SECOND)

    asyncio.run(ask())


def test_a_socket_file_speaks_grpc(engine: Engine, tmp_path: Path) -> None:
    engine.serve_grpc_unix(tmp_path / "grpc.sock")
    # the path, which it has otherwise, is no authority that HTTP/2 allows
    named = [("grpc.default_authority", "localhost")]
    with Client(f"unix:{tmp_path}/grpc.sock", channel_args=named) as client:
        assert client.is_server_live()
