"""``Client("unix://…")`` against a real local door: what comes back, and what is refused."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import kushi_native
import numpy as np
import pytest
import uvloop

from runners import Client, errors
from tests.arrays import DTYPES, ones
from tests.integration.local import EVERY_LOOP, LARGE, Run, descriptors, values, write_gated_identity
from tests.serving import Server

if TYPE_CHECKING:
    from tests.conftest import StartServer


@pytest.fixture
def client(local_server: tuple[Server, str]) -> Iterator[Client]:
    server, path = local_server
    with Client(f"unix://{path}") as opened:
        yield opened
    assert server.process.poll() is None, "this test ended the shared server"


# --- what goes there and comes back ---


@pytest.mark.parametrize("columns", [0, 3, LARGE])
@pytest.mark.parametrize("datatype", DTYPES)
def test_every_datatype_survives_at_every_size(client: Client, datatype: str, columns: int) -> None:
    sent = values(datatype, columns)
    result = client.infer(f"identity_{datatype.lower()}", sent)
    received = result["OUTPUT0"]
    assert received.dtype == sent.dtype
    assert received.shape == sent.shape
    assert received.tobytes() == sent.tobytes()
    assert not received.flags.writeable
    assert result.tensor("OUTPUT0").datatype == datatype


@pytest.mark.parametrize("columns", [0, 3, 20_000])
def test_strings_survive(client: Client, columns: int) -> None:
    sent = np.array([[f"é{column}".encode() for column in range(columns)]], object).reshape(1, columns)
    received = client.infer("identity_bytes", sent)["OUTPUT0"]
    assert received.tolist() == sent.tolist()


def test_inputs_go_by_position_and_by_name(client: Client) -> None:
    by_position = client.infer("add_sub", ones() * 5, ones() * 3)
    by_name = client.infer("add_sub", {"INPUT1": ones() * 3, "INPUT0": ones() * 5})
    for result in (by_position, by_name, client.add_sub.run(ones() * 5, ones() * 3)):
        assert result["OUTPUT1"].tolist() == [[2] * 16]
    assert client.infer("optional", np.array([1], np.int32))["OUTPUT0"] == 1101


def test_outputs_ids_versions_and_timings_come_with_the_answer(client: Client) -> None:
    result = client.infer("add_sub", ones(), ones(), outputs=["OUTPUT1"], request_id="seven", model_version=1)
    assert list(result) == ["OUTPUT1"]
    assert (result.model_name, result.model_version, result.request_id) == ("add_sub", "1", "seven")
    assert result.timings is not None
    assert result.timings.compute_infer_us > 0
    assert client.infer("all_versions", np.ones((1, 1), np.int32), model_version="2")["OUTPUT0"] == 3
    assert client.infer("all_versions", np.ones((1, 1), np.int32))["OUTPUT0"] == 4


def test_parameters_and_priority_are_taken(client: Client) -> None:
    parameters: dict[str, bool | int | float | str] = {
        "text": "x",
        "flag": True,
        "number": -3,
        "ratio": 0.5,
        "timeout": 60_000_000,
    }
    result = client.infer("add_sub", ones(), ones(), parameters=parameters, priority=1, deadline=timedelta(seconds=20))
    assert result["OUTPUT0"].tolist() == [[2] * 16]


def test_large_arrays_of_any_layout_are_read_right(client: Client) -> None:
    square = np.arange(1_000_000, dtype=np.float32).reshape(1000, 1000)
    for sent in (square[:8].T[:8], square[:8, ::2], square[:8].astype(">f4"), np.asfortranarray(square[:8])):
        received = client.infer("identity_fp32", sent)["OUTPUT0"]
        np.testing.assert_array_equal(received, sent)


def test_large_and_small_inputs_go_together(repository: Path, start_server: StartServer, socket_path: str) -> None:
    write_gated_identity(repository)
    start_server(repository, f"--local-socket={socket_path}")
    data = np.arange(LARGE, dtype=np.uint8).reshape(1, -1)
    with Client(f"unix://{socket_path}") as client:
        result = client.infer("slow_identity", {"DATA": data, "STEPS": np.array([[3]])})
        assert result["OUTPUT0"] == 3
        np.testing.assert_array_equal(result["OUTPUT1"], data)


def test_a_result_outlives_its_client_and_may_be_sent_again(local_server: tuple[Server, str]) -> None:
    sent = np.arange(LARGE, dtype=np.float32).reshape(1, -1)
    with Client(f"unix://{local_server[1]}") as client:
        received = client.infer("identity_fp32", sent)["OUTPUT0"]
        again = client.infer("identity_fp32", received)["OUTPUT0"]
    del client
    gc.collect()
    np.testing.assert_array_equal(received, sent)
    np.testing.assert_array_equal(again, sent)


def test_results_that_are_kept_keep_their_values(client: Client) -> None:
    kept = [client.infer("identity_fp32", np.full((1, LARGE), number, np.float32))["OUTPUT0"] for number in range(40)]
    assert [float(array[0, -1]) for array in kept] == list(range(40))


@EVERY_LOOP
def test_many_awaited_calls_each_get_their_own_answer(client: Client, run: Run) -> None:
    async def what() -> None:
        calls = [
            client.async_infer("add_sub", ones() * number, ones(), request_id=str(number)) for number in range(500)
        ]
        for number, result in enumerate(await asyncio.gather(*calls)):
            assert result.request_id == str(number)
            assert result["OUTPUT0"].tolist() == [[number + 1] * 16]

    run(what())


@EVERY_LOOP
def test_many_large_awaited_calls_each_get_their_own_answer(client: Client, run: Run) -> None:
    async def what() -> None:
        arrays = [np.full((1, LARGE), number, np.float32) for number in range(60)]
        answers = await asyncio.gather(*(client.async_infer("identity_fp32", array) for array in arrays))
        for array, answer in zip(arrays, answers, strict=True):
            np.testing.assert_array_equal(answer["OUTPUT0"], array)

    run(what())


@EVERY_LOOP
def test_more_is_written_than_a_socket_holds(client: Client, run: Run) -> None:
    async def what() -> None:
        # just below what goes beside the socket
        sent = np.arange(15_000, dtype=np.float32).reshape(1, -1)
        answers = await asyncio.gather(*(client.async_infer("identity_fp32", sent) for _ in range(200)))
        for answer in answers:
            np.testing.assert_array_equal(answer["OUTPUT0"], sent)

    run(what())


def test_threads_share_a_client(client: Client) -> None:
    started = threading.Barrier(64)

    def ask(number: int) -> None:
        started.wait()
        for round_number in range(20):
            result = client.infer("add_sub", ones() * number, ones() * round_number)
            assert result["OUTPUT0"].tolist() == [[number + round_number] * 16]

    with ThreadPoolExecutor(64) as threads:
        for done in [threads.submit(ask, number) for number in range(64)]:
            done.result()


def test_event_loops_of_several_threads_share_a_client(client: Client) -> None:
    async def what(number: int) -> None:
        calls = [client.async_infer("add_sub", ones() * number, ones() * step) for step in range(100)]
        for step, result in enumerate(await asyncio.gather(*calls)):
            assert result["OUTPUT0"].tolist() == [[number + step] * 16]

    with ThreadPoolExecutor(8) as threads:
        runs = [asyncio.run, uvloop.run]
        for done in [threads.submit(runs[number % 2], what(number)) for number in range(16)]:
            done.result()


@pytest.mark.clock
def test_one_loop_after_the_other_uses_a_client_and_leaves_nothing(client: Client) -> None:
    async def what() -> None:
        await client.async_infer("add_sub", ones(), ones())

    # the first loop of each kind opens what the process keeps
    for run in (asyncio.run, uvloop.run):
        run(what())
    before = descriptors()
    for run in [asyncio.run, uvloop.run] * 10:
        run(what())
    gc.collect()
    assert descriptors() <= before + 1


@EVERY_LOOP
def test_management_calls_answer_what_tritonclient_answers(client: Client, run: Run) -> None:
    assert client.is_server_live()
    assert client.is_model_ready("add_sub")
    assert not client.is_model_ready("missing")
    assert client.get_model_metadata("add_sub", 1)["platform"] == "onnxruntime_onnx"
    assert client.get_inference_statistics("add_sub")["model_stats"][0]["name"] == "add_sub"

    async def what() -> None:
        ready, metadata = await asyncio.gather(client.async_is_server_ready(), client.async_get_model_metadata("image"))
        assert (ready, metadata["name"]) == (True, "image")
        with pytest.raises(errors.ModelNotFound):
            await client.async_get_model_metadata("missing")

    run(what())


def test_a_call_answers_status_kind_and_body(client: Client, local_server: tuple[Server, str]) -> None:
    native = kushi_native.LocalClient(local_server[1])
    assert native.call("ServerLive", b"", None) == (200, "", b"true")
    status, kind, body = native.call("ModelMetadata", b'{"name":"missing"}', 20)
    assert (status, kind) == (404, "model_not_found")
    assert b"unknown model" in body
    assert native.call("Nothing", b"", None)[:2] == (501, "unsupported")


# --- what is refused ---


def test_what_the_model_does_not_take_is_told_as_in_process(client: Client) -> None:
    for call, raised, text in (
        (lambda: client.infer("missing", ones()), errors.ModelNotFound, "unknown model: 'missing'"),
        (lambda: client.infer("add_sub", ones()), errors.InvalidInput, "expected 2 inputs but got 1"),
        (lambda: client.infer("add_sub", ones(), ones()[:, :3]), errors.InvalidInput, "unexpected shape"),
        (lambda: client.infer("add_sub", ones(), ones() * 1.0), errors.InvalidInput, "data-type is 'FP64'"),
        (lambda: client.infer("add_sub", {"X": ones()}), errors.InvalidInput, "expected 2 inputs"),
        (
            lambda: client.infer("add_sub", ones(), ones(), outputs=["X"]),
            errors.InvalidInput,
            "unexpected inference output",
        ),
        (lambda: client.infer("add_sub", ones(), ones(), model_version=9), errors.ModelNotFound, "version 9"),
        (lambda: client.infer("add_sub", ones(), 1j), errors.InvalidInput, "complex128"),
        (lambda: client.infer("add_sub", ones(), ones(), deadline=-1), errors.InvalidInput, "deadline is -1"),
    ):
        with pytest.raises(raised, match=text) as error:
            call()  # type: ignore[no-untyped-call]
        assert error.value.model in {"missing", "add_sub"}


def test_an_awaited_call_fails_where_it_is_awaited(client: Client) -> None:
    async def what() -> None:
        wrong = [client.async_infer("add_sub", 1j, request_id="seven"), client.async_infer("missing", ones())]
        with pytest.raises(errors.InvalidInput) as raised:
            await wrong[0]
        assert (raised.value.model, raised.value.request_id) == ("add_sub", "seven")
        with pytest.raises(errors.ModelNotFound):
            await wrong[1]
        with pytest.raises(errors.EngineFailed):
            await client.async_infer("gather", np.array([[99]]))

    asyncio.run(what())


def test_an_awaited_call_needs_a_running_loop(client: Client) -> None:
    with pytest.raises(RuntimeError, match="no running event loop"):
        client.async_infer("add_sub", ones(), ones())
