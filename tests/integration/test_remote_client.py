"""A client over HTTP and over gRPC, against a real ``kushi serve``: what comes back, and what is raised."""

from __future__ import annotations

import asyncio
import gc
import resource
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import pytest
import uvloop

from runners import Client, Engine, errors
from tests import models
from tests.integration.occupied import LONG_STEPS, occupy, until_pending
from tests.integration.remotes import WAYS, url_of
from tests.models import DATATYPES
from tests.serving import Server

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tests.conftest import StartServer

FIRST = np.arange(16, dtype=np.int32).reshape(1, 16)
LONG = np.array([[LONG_STEPS]])

ARRAYS: dict[str, NDArray[Any]] = {
    "BOOL": np.array([[True, False, True]]),
    "FP16": np.array([[1.5, -2.0, np.inf]], np.float16),
    "FP32": np.array([[1.5, np.nan, -np.inf]], np.float32),
    "FP64": np.array([[1.5, np.nan, 5e-324]]),
    "BF16": np.array([[1.5, -2.0, 3.0]], ml_dtypes.bfloat16),
    "BYTES": np.array([[b"", b"\xff\x00", "é".encode()]], object),
    **{
        name: np.array([[np.iinfo(name.lower()).min, 7, np.iinfo(name.lower()).max]], name.lower())
        for name in DATATYPES
        if "INT" in name
    },
}
"""An array of shape [1, 3] for each datatype of the protocol."""


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def client(server: Server, way: str) -> Iterator[Client]:
    with Client(url_of(server, way)) as opened:
        yield opened


@pytest.mark.parametrize("datatype", DATATYPES)
def test_every_datatype_survives_the_way_there_and_back(client: Client, datatype: str) -> None:
    sent = ARRAYS[datatype]
    result = client.infer(f"identity_{datatype.lower()}", sent)
    received = result["OUTPUT0"]
    assert received.dtype == sent.dtype
    np.testing.assert_array_equal(received, sent)
    assert result.tensor("OUTPUT0").datatype == datatype
    assert not received.flags.writeable


@pytest.mark.parametrize("elements", [0, 1, 5_000, 300_000])
def test_tensors_of_any_size_survive(client: Client, elements: int) -> None:
    sent = np.random.default_rng(elements).random((2, elements), np.float32)
    received = client.infer("identity_fp32", {"INPUT0": sent})["OUTPUT0"]
    np.testing.assert_array_equal(received, sent)


def test_a_result_outlives_its_client(server: Server, way: str) -> None:
    sent = np.arange(100_000, dtype=np.float32).reshape(1, -1)
    with Client(url_of(server, way)) as client:
        received = client.infer("identity_fp32", sent)["OUTPUT0"]
    del client
    gc.collect()
    np.testing.assert_array_equal(received, sent)


@pytest.mark.alone
def test_small_results_that_are_kept_hold_no_more_than_themselves(client: Client) -> None:
    def resident() -> int:
        return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * resource.getpagesize()

    kept = [client.infer("add_sub", FIRST, FIRST) for _ in range(500)]
    before = resident()
    kept += [client.infer("add_sub", FIRST, FIRST) for _ in range(4000)]
    assert (resident() - before) / 4000 < 4096


def test_outputs_ids_versions_and_timings_come_with_the_answer(client: Client) -> None:
    result = client.infer("add_sub", FIRST, FIRST + 1, outputs=["OUTPUT1"], request_id="seven", model_version=1)
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
        "number": 3,
        "ratio": 0.5,
        "timeout": 60_000_000,
    }
    result = client.infer("add_sub", FIRST, FIRST, parameters=parameters, priority=1, deadline=timedelta(seconds=20))
    np.testing.assert_array_equal(result["OUTPUT0"], 2 * FIRST)


def test_inputs_go_by_position_and_by_name(client: Client) -> None:
    by_position = client.infer("add_sub", FIRST, FIRST + 1)
    by_name = client.infer("add_sub", {"INPUT1": FIRST + 1, "INPUT0": FIRST})
    for result in (by_position, by_name, client.add_sub.run(FIRST, FIRST + 1)):
        np.testing.assert_array_equal(result["OUTPUT1"], np.full((1, 16), -1))
    assert client.infer("optional", np.array([1], np.int32))["OUTPUT0"] == 1101


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run])
def test_many_awaited_calls_each_get_their_own_answer(client: Client, run: Callable[[Awaitable[None]], None]) -> None:
    async def what() -> None:
        calls = [client.async_infer("add_sub", FIRST + number, FIRST, request_id=str(number)) for number in range(300)]
        for number, result in enumerate(await asyncio.gather(*calls)):
            assert result.request_id == str(number)
            np.testing.assert_array_equal(result["OUTPUT0"], 2 * FIRST + number)

    run(what())


def test_threads_and_loops_share_a_client(client: Client) -> None:
    def ask(number: int) -> None:
        for turn in range(5):
            result = client.infer("add_sub", FIRST + number, FIRST + turn)
            np.testing.assert_array_equal(result["OUTPUT0"], 2 * FIRST + number + turn)

    def run_a_loop(number: int) -> None:
        async def what() -> None:
            calls = [client.async_infer("add_sub", FIRST + number, FIRST + turn) for turn in range(20)]
            for turn, result in enumerate(await asyncio.gather(*calls)):
                np.testing.assert_array_equal(result["OUTPUT0"], 2 * FIRST + number + turn)

        asyncio.run(what())

    with ThreadPoolExecutor(64) as threads:
        work = [threads.submit(run_a_loop if number % 8 == 0 else ask, number) for number in range(64)]
        for done in work:
            done.result()


BAD_CALLS: dict[str, Callable[[Client | Engine], object]] = {
    "unknown model": lambda asked: asked.infer("missing", FIRST),
    "empty name": lambda asked: asked.infer("", {"INPUT0": FIRST}),
    "unknown version": lambda asked: asked.infer("add_sub", FIRST, FIRST, model_version=9),
    "label of a model without any": lambda asked: asked.infer("add_sub", FIRST, FIRST, model_version="stable"),
    "label and inputs by name": lambda asked: asked.infer("add_sub", {"INPUT0": FIRST}, model_version="stable"),
    "version that is no number": lambda asked: asked.infer("add_sub", FIRST, FIRST, model_version="1x"),
    "unknown input": lambda asked: asked.infer("add_sub", {"INPUT0": FIRST, "OTHER": FIRST}, request_id="a"),
    "unknown output": lambda asked: asked.infer("add_sub", FIRST, FIRST, outputs=["OTHER"]),
    "too few inputs": lambda asked: asked.infer("add_sub", FIRST),
    "too many inputs": lambda asked: asked.infer("add_sub", FIRST, FIRST, FIRST, request_id="b"),
    "wrong type": lambda asked: asked.infer("add_sub", FIRST, FIRST.astype(np.int64)),
    "wrong shape": lambda asked: asked.infer("add_sub", FIRST, FIRST[:, :3]),
    "too many rows": lambda asked: asked.infer("add_sub", np.repeat(FIRST, 9, 0), np.repeat(FIRST, 9, 0)),
    "no tensor": lambda asked: asked.infer("add_sub", FIRST, np.array([1 + 2j])),
    "reserved parameter": lambda asked: asked.infer("add_sub", FIRST, FIRST, parameters={"triton_x": 1}),
    "deadline of zero": lambda asked: asked.infer("add_sub", FIRST, FIRST, deadline=0),
    "failing engine": lambda asked: asked.infer("gather", np.array([[99]])),
    "past deadline": lambda asked: asked.infer("slow", LONG, deadline=1e-6, request_id="late"),
    "metadata of an unknown model": lambda asked: asked.get_model_metadata("missing"),
    "configuration of an unknown version": lambda asked: asked.get_model_config("add_sub", "7"),
    "statistics of an unknown model": lambda asked: asked.get_inference_statistics("missing"),
}


@pytest.mark.parametrize("call", BAD_CALLS.values(), ids=BAD_CALLS)
def test_errors_are_those_of_an_engine_in_process(
    client: Client, engine: Engine, call: Callable[[Client | Engine], object]
) -> None:
    raised = []
    for asked in (engine, client):
        with pytest.raises(errors.KushiError) as error:
            call(asked)
        failure = error.value
        raised.append((type(failure), str(failure), failure.model, failure.request_id))
    assert raised[0] == raised[1]


@pytest.mark.parametrize("call", BAD_CALLS.values(), ids=BAD_CALLS)
def test_a_failed_call_leaves_the_client_well(client: Client, call: Callable[[Client | Engine], object]) -> None:
    with pytest.raises(errors.KushiError):
        call(client)
    np.testing.assert_array_equal(client.infer("add_sub", FIRST, FIRST)["OUTPUT0"], 2 * FIRST)


def test_awaited_errors_come_from_the_future(client: Client) -> None:
    async def what() -> None:
        future = client.async_infer("missing", {"INPUT0": FIRST}, request_id="x")
        with pytest.raises(errors.ModelNotFound) as unknown:
            await future
        assert (unknown.value.model, unknown.value.request_id) == ("missing", "x")
        refused = client.async_infer("add_sub", FIRST, np.array([1j]))
        with pytest.raises(errors.InvalidInput):
            await refused

    asyncio.run(what())
    with pytest.raises(RuntimeError, match="no running event loop"):
        client.async_infer("add_sub", FIRST, FIRST)


def test_a_full_queue_is_overload(repository: Path, start_server: StartServer, way: str) -> None:
    models.write_gated(repository, extra=models.queue_policy("max_queue_size: 2"))
    server = start_server(repository)
    client = Client(url_of(server, way))

    async def what() -> None:
        call = client.async_infer("slow", np.array([[0]]))
        await asyncio.to_thread(until_pending, server, 2)
        with pytest.raises(errors.Overloaded, match="Exceeds maximum queue size") as full:
            await client.async_infer("slow", np.array([[0]]))
        assert full.value.retryable
        call.cancel()

    with client, occupy(server):
        asyncio.run(what())


def test_management_calls_answer_what_tritonclient_answers(client: Client) -> None:
    assert client.is_server_live()
    assert client.is_server_ready()
    assert client.is_model_ready("add_sub")
    assert not client.is_model_ready("missing")
    assert "binary_tensor_data" in client.get_server_metadata()["extensions"]
    assert client.get_model_metadata("add_sub", 1)["platform"] == "onnxruntime_onnx"
    assert client.get_model_config("add_sub")["max_batch_size"] == 8
    assert client.get_inference_statistics("add_sub")["model_stats"][0]["name"] == "add_sub"
    assert {row["name"] for row in client.get_model_repository_index()} >= {"add_sub", "slow"}

    async def what() -> None:
        ready, metadata = await asyncio.gather(client.async_is_server_ready(), client.async_get_model_metadata("image"))
        assert (ready, metadata["name"]) == (True, "image")

    asyncio.run(what())


def test_a_model_that_is_loaded_anew_with_other_inputs_is_asked_by_position(
    repository: Path, start_server: StartServer, way: str
) -> None:
    models.write(repository, "m", models.identity("INT32"))
    server = start_server(repository, "--model-control-mode=explicit", "--load-model=m")
    with Client(url_of(server, way)) as client:
        np.testing.assert_array_equal(client.m.run(FIRST)["OUTPUT0"], FIRST)
        client.unload_model("m")
        with pytest.raises(errors.KushiError):
            client.m.run(FIRST)
        (repository / "m/1/model.onnx").write_bytes(models.add_sub(["batch", 16]).SerializeToString())
        client.load_model("m")
        np.testing.assert_array_equal(client.m.run(FIRST, FIRST)["OUTPUT0"], 2 * FIRST)


def test_names_of_hosts_are_resolved(server: Server) -> None:
    with Client(f"http://localhost:{server.http[1]}") as client:
        np.testing.assert_array_equal(client.infer("add_sub", FIRST, FIRST)["OUTPUT0"], 2 * FIRST)


@pytest.mark.parametrize(
    "place", ["localhost:8000", "http://", "http://host:port", "http://user@host", "http://host/?x"]
)
def test_what_is_no_url_is_refused(place: str) -> None:
    with pytest.raises(errors.InvalidInput, match="expected"):
        Client(place)
