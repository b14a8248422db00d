"""The real ``tritonclient.http.aio`` against a real server."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import numpy as np
import pytest
from tritonclient.http import InferInput, InferRequestedOutput, aio
from tritonclient.utils import InferenceServerException

if TYPE_CHECKING:
    from tests.serving import Server

FIRST = np.arange(16, dtype=np.int32).reshape(1, 16)

Talk = Callable[[aio.InferenceServerClient], Awaitable[None]]


def talk(server: Server, what: Talk) -> None:
    async def run() -> None:
        async with aio.InferenceServerClient(f"{server.http[0]}:{server.http[1]}", conn_limit=16) as client:
            await what(client)

    asyncio.run(run())


def add_sub_inputs(number: int, *, binary: bool = True) -> list[InferInput]:
    made = []
    for name, values in (("INPUT0", FIRST + number), ("INPUT1", FIRST)):
        entry = InferInput(name, [1, 16], "INT32")
        entry.set_data_from_numpy(values, binary_data=binary)
        made.append(entry)
    return made


def test_health_metadata_configuration_and_statistics_answer(server: Server) -> None:
    async def what(client: aio.InferenceServerClient) -> None:
        assert await client.is_server_live()
        assert await client.is_server_ready()
        assert await client.is_model_ready("add_sub")
        assert not await client.is_model_ready("missing")
        assert (await client.get_server_metadata())["name"] == "triton"
        assert (await client.get_model_metadata("add_sub"))["platform"] == "onnxruntime_onnx"
        assert (await client.get_model_config("add_sub"))["max_batch_size"] == 8
        assert (await client.get_inference_statistics("add_sub"))["model_stats"][0]["version"] == "1"

    talk(server, what)


@pytest.mark.parametrize("binary", [True, False])
def test_many_requests_at_once_each_get_their_own_answer(server: Server, binary: bool) -> None:
    async def what(client: aio.InferenceServerClient) -> None:
        outputs = [InferRequestedOutput("OUTPUT0", binary_data=binary)]

        async def one(number: int) -> None:
            inputs = add_sub_inputs(number, binary=binary)
            result = await client.infer("add_sub", inputs, outputs=outputs, request_id=str(number))
            assert result.get_response()["id"] == str(number)
            np.testing.assert_array_equal(result.as_numpy("OUTPUT0"), 2 * FIRST + number)

        await asyncio.gather(*(one(number) for number in range(200)))

    talk(server, what)


@pytest.mark.parametrize("request_coding", ["gzip", "deflate", None])
@pytest.mark.parametrize("response_coding", ["gzip", "deflate", None])
@pytest.mark.parametrize("columns", [1, 100_000])
def test_requests_and_answers_may_be_compressed(
    server: Server, request_coding: str | None, response_coding: str | None, columns: int
) -> None:
    async def what(client: aio.InferenceServerClient) -> None:
        values = np.arange(columns, dtype=np.int32).reshape(1, columns)
        entry = InferInput("INPUT0", [1, columns], "INT32")
        entry.set_data_from_numpy(values)
        result = await client.infer(
            "identity_int32",
            [entry],
            request_compression_algorithm=request_coding,
            response_compression_algorithm=response_coding,
        )
        np.testing.assert_array_equal(result.as_numpy("OUTPUT0"), values)

    talk(server, what)


def test_errors_and_large_answers_are_read_though_the_client_accepts_compressed_ones(server: Server) -> None:
    async def what(client: aio.InferenceServerClient) -> None:
        name = "x" * 1000
        with pytest.raises(InferenceServerException, match=name):
            await client.infer(name, add_sub_inputs(1))
        assert len((await client.get_inference_statistics())["model_stats"]) > 10

    talk(server, what)


def test_errors_carry_the_text_of_the_protocol(server: Server) -> None:
    async def what(client: aio.InferenceServerClient) -> None:
        with pytest.raises(InferenceServerException) as unknown:
            await client.infer("missing", add_sub_inputs(0))
        assert unknown.value.message() == "Request for unknown model: 'missing' is not found"

    talk(server, what)


def test_a_cancelled_call_leaves_the_client_and_the_server_well(server: Server) -> None:
    async def what(client: aio.InferenceServerClient) -> None:
        slow = InferInput("STEPS", [1, 1], "INT64")
        slow.set_data_from_numpy(np.array([[20_000]]))
        call = asyncio.create_task(client.infer("slow", [slow]))
        await client.is_server_live()
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        result = await client.infer("add_sub", add_sub_inputs(1))
        np.testing.assert_array_equal(result.as_numpy("OUTPUT0"), 2 * FIRST + 1)

    talk(server, what)
