"""``Client("unix://…")`` against a real local door: what comes back, what is shared, what is given up."""

from __future__ import annotations

import asyncio
import gc
import signal
import tempfile
import threading
import weakref
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import kushi_native
import numpy as np
import pytest
import uvloop
from onnx import helper

from runners import Client, errors
from tests import models
from tests.arrays import DTYPES, ones
from tests.integration.occupied import ENDLESS_STEPS, LONG_STEPS, occupy, until_pending
from tests.serving import Server, eventually

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tests.conftest import StartServer

Run = Callable[[Awaitable[None]], None]

LONG = np.array([[LONG_STEPS]])
LARGE = 300_000
"""Elements of a row that travels in shared memory whatever its type"""

EVERY_LOOP = pytest.mark.parametrize("run", [asyncio.run, uvloop.run])


@pytest.fixture
def socket_path() -> Iterator[str]:
    """Short enough for the address of a socket."""
    with tempfile.TemporaryDirectory(prefix="kushi-") as folder:
        yield f"{folder}/door"


@pytest.fixture(scope="module")
def shared(standard_repository: Path) -> Iterator[tuple[Server, str]]:
    with tempfile.TemporaryDirectory(prefix="kushi-") as folder:
        server = Server.start(standard_repository, f"--local-socket={folder}/door")
        try:
            yield server, f"{folder}/door"
        finally:
            server.stop()


@pytest.fixture
def client(shared: tuple[Server, str]) -> Iterator[Client]:
    server, path = shared
    with Client(f"unix://{path}") as opened:
        yield opened
    assert server.process.poll() is None, "this test ended the shared server"


def values(datatype: str, columns: int) -> NDArray[Any]:
    return (np.arange(2 * columns).reshape(2, columns) % 100).astype(DTYPES[datatype])


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def slots_of_this_process() -> int:
    """How many slots there are whose owner is this process, in use or kept for later."""
    count = 0
    for descriptor in Path("/proc/self/fd").iterdir():
        try:
            count += "kushi-slot" in str(descriptor.readlink())
        except FileNotFoundError:
            continue
    return count


def write_slow_identity(repository: Path) -> None:
    """OUTPUT1 = DATA, when STEPS are done."""
    built = models.slow()
    built.graph.node.append(helper.make_node("Identity", ["DATA"], ["OUTPUT1"]))
    built.graph.input.append(models.tensor("DATA", "UINT8", ["batch", "n"]))
    built.graph.output.append(models.tensor("OUTPUT1", "UINT8", ["batch", "n"]))
    text = models.config(
        "slow_identity",
        [("STEPS", "INT64", [1]), ("DATA", "UINT8", [-1])],
        [("OUTPUT0", "INT64", [1]), ("OUTPUT1", "UINT8", [-1])],
        max_batch_size=1,
        extra=f"dynamic_batching {{ }} {models.ONE_INSTANCE} {models.ONE_THREAD}",
    )
    models.write(repository, "slow_identity", built, text)


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
    assert received.flags.writeable
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
    write_slow_identity(repository)
    start_server(repository, f"--local-socket={socket_path}")
    data = np.arange(LARGE, dtype=np.uint8).reshape(1, -1)
    with Client(f"unix://{socket_path}") as client:
        result = client.infer("slow_identity", {"DATA": data, "STEPS": np.array([[3]])})
        assert result["OUTPUT0"] == 3
        np.testing.assert_array_equal(result["OUTPUT1"], data)


def test_a_result_outlives_its_client_and_may_be_written_to(shared: tuple[Server, str]) -> None:
    sent = np.arange(LARGE, dtype=np.float32).reshape(1, -1)
    with Client(f"unix://{shared[1]}") as client:
        received = client.infer("identity_fp32", sent)["OUTPUT0"]
        again = client.infer("identity_fp32", received)["OUTPUT0"]
        received += 1
    del client
    gc.collect()
    np.testing.assert_array_equal(received, sent + 1)
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


def test_a_call_answers_status_kind_and_body(client: Client, shared: tuple[Server, str]) -> None:
    native = kushi_native.LocalClient(shared[1])
    assert native.call("GET", "/v2/health/live", b"", None)[:2] == (200, "")
    status, kind, body = native.call("GET", "/v2/models/missing", b"", 20)
    assert (status, kind) == (404, "model_not_found")
    assert b"unknown model" in body
    assert native.call("GET", "/v3", b"", None)[0] == 404


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


# --- deadlines ---


def test_a_deadline_covers_the_time_in_the_queue_and_in_the_engine(
    repository: Path, start_server: StartServer, socket_path: str
) -> None:
    models.write_slow(repository)
    server = start_server(repository, f"--local-socket={socket_path}")

    async def what(client: Client) -> None:
        calls = [client.async_infer("slow", LONG, deadline=0.05, request_id="late") for _ in range(3)]
        for call in calls:
            with pytest.raises(errors.DeadlineExceeded, match="Request timeout expired") as late:
                await call
            assert (late.value.model, late.value.request_id) == ("slow", "late")
        server.freeze()
        try:
            with pytest.raises(errors.DeadlineExceeded):
                await client.async_get_model_metadata("slow", deadline=timedelta(milliseconds=50))
        finally:
            server.thaw()

    with Client(f"unix://{socket_path}") as client:
        asyncio.run(what(client))
        with pytest.raises(errors.DeadlineExceeded):
            client.infer("slow", LONG, deadline=0.05)
        # the others gave their places back
        until_pending(server, 0)
        assert client.infer("slow", np.array([[0]]), deadline=30)["OUTPUT0"] == 0


# --- what is given up ---


@EVERY_LOOP
def test_cancelling_frees_the_places_on_the_server(
    repository: Path, start_server: StartServer, socket_path: str, run: Run
) -> None:
    models.write_slow(repository)
    server = start_server(repository, f"--local-socket={socket_path}")

    async def what(client: Client) -> None:
        calls = [client.async_infer("slow", LONG) for _ in range(3)]
        task = asyncio.create_task(ask(client))
        await asyncio.to_thread(until_pending, server, 5)
        for call in calls:
            call.cancel()
        done = await asyncio.gather(*calls, return_exceptions=True)
        assert all(isinstance(end, asyncio.CancelledError) for end in done)
        await asyncio.to_thread(until_pending, server, 2)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.to_thread(until_pending, server, 1)

    async def ask(client: Client) -> None:
        await client.async_infer("slow", LONG)

    with Client(f"unix://{socket_path}") as client, occupy(server, steps=ENDLESS_STEPS):
        run(what(client))


@EVERY_LOOP
def test_a_loop_that_closes_with_calls_in_flight_cancels_them(
    repository: Path, start_server: StartServer, socket_path: str, run: Run
) -> None:
    models.write_slow(repository)
    server = start_server(repository, f"--local-socket={socket_path}")
    watched: list[weakref.ref[Any]] = []

    async def begin(client: Client) -> None:
        calls = [client.async_infer("slow", LONG) for _ in range(3)]
        await asyncio.to_thread(until_pending, server, 4)
        watched.extend(weakref.ref(call) for call in calls)

    with Client(f"unix://{socket_path}") as client, occupy(server, steps=ENDLESS_STEPS):
        run(begin(client))
        gc.collect()
        until_pending(server, 1)
        assert [ref() for ref in watched] == [None] * 3
        assert asyncio.run(client.async_is_server_live())


def test_a_signal_ends_a_call_that_waits(repository: Path, start_server: StartServer, socket_path: str) -> None:
    models.write_slow(repository)
    server = start_server(repository, f"--local-socket={socket_path}")

    class Rung(Exception):
        pass

    def raise_rung(*_: object) -> None:
        raise Rung

    def ring() -> None:
        until_pending(server, 2)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)

    before = signal.signal(signal.SIGUSR1, raise_rung)
    try:
        with (
            Client(f"unix://{socket_path}") as client,
            occupy(server, steps=ENDLESS_STEPS),
            ThreadPoolExecutor(1) as threads,
        ):
            ringing = threads.submit(ring)
            with pytest.raises(Rung):
                client.infer("slow", LONG)
            ringing.result()
            until_pending(server, 1)
    finally:
        signal.signal(signal.SIGUSR1, before)


# --- memory that both sides see ---


def test_an_array_made_for_the_engine_travels_without_a_copy(client: Client) -> None:
    sent = client.empty((2, LARGE), np.float32)
    sent[...] = np.arange(2 * LARGE).reshape(2, LARGE)
    slots = slots_of_this_process()
    for view in (sent, sent[:1], sent.reshape(1, -1), sent[1:]):
        received = client.infer("identity_fp32", view)["OUTPUT0"]
        np.testing.assert_array_equal(received, view)
    assert slots_of_this_process() == slots
    np.testing.assert_array_equal(asyncio.run(one(client, "identity_fp32", sent)), sent)
    assert slots_of_this_process() == slots


async def one(client: Client, model: str, sent: NDArray[Any]) -> NDArray[Any]:
    return (await client.async_infer(model, sent))["OUTPUT0"]


@pytest.mark.parametrize("datatype", DTYPES)
def test_arrays_are_made_of_every_datatype_under_both_of_its_names(client: Client, datatype: str) -> None:
    for dtype in (DTYPES[datatype], np.dtype(DTYPES[datatype]), datatype):
        for shape in (5, (2, LARGE)):
            made = client.empty(shape, dtype)
            assert made.dtype == DTYPES[datatype]
            assert made.shape == np.empty(shape).shape
            assert made.flags.writeable
            assert made.flags.c_contiguous
    made = client.empty((2, LARGE), datatype)
    made[...] = values(datatype, LARGE)
    received = client.infer(f"identity_{datatype.lower()}", made)["OUTPUT0"]
    assert received.tobytes() == made.tobytes()


def test_arrays_that_cannot_be_made_are_refused(client: Client) -> None:
    for shape, dtype, text in (
        ((1, -1), "float32", r"shape is \(1, -1\), expected ints of 0 or more"),
        ("x", "float32", "shape is x"),
        ((2**40, 2**40), "float32", "more than memory can hold"),
        (5, "object", "expected bool, integers or floats"),
        (5, "BYTES", "expected bool, integers or floats"),
        (5, "complex64", "complex64"),
        (5, "float33", "float33"),
    ):
        with pytest.raises(errors.InvalidInput, match=text):
            client.empty(shape, dtype)  # type: ignore[arg-type] # that is what is refused


def test_memory_is_used_again_only_when_no_array_and_no_call_is_in_it(client: Client) -> None:
    first = client.empty(LARGE, np.float32)
    row = first[: LARGE // 2]
    address = first.ctypes.data
    del first
    other = client.empty(LARGE, np.float32)
    assert other.ctypes.data != address, "a view of it is still there"
    del row
    gc.collect()
    again = [client.empty(LARGE, np.float32) for _ in range(2)]
    assert address in [array.ctypes.data for array in again]


def test_memory_of_a_cancelled_call_is_used_again_when_the_call_has_ended(
    repository: Path, start_server: StartServer, socket_path: str
) -> None:
    write_slow_identity(repository)
    server = start_server(repository, f"--local-socket={socket_path}")

    async def what(client: Client) -> None:
        ahead = client.async_infer("slow_identity", {"STEPS": LONG, "DATA": np.zeros((1, 1), np.uint8)})
        sent = client.empty((1, LARGE), np.uint8)
        address = sent.ctypes.data
        call = client.async_infer("slow_identity", {"STEPS": np.array([[0]]), "DATA": sent})
        del sent
        await asyncio.to_thread(until_pending, server, 1, "slow_identity")
        call.cancel()
        # on its way, and the engine may still read it
        assert client.empty((1, LARGE), np.uint8).ctypes.data != address
        await asyncio.to_thread(until_pending, server, 0, "slow_identity")
        await client.async_is_server_live()
        arrays = [client.empty((1, LARGE), np.uint8) for _ in range(2)]
        assert address in [array.ctypes.data for array in arrays]
        await ahead

    with Client(f"unix://{socket_path}") as client:
        asyncio.run(what(client))


def test_shared_memory_is_bounded_by_what_is_in_flight(client: Client) -> None:
    async def what() -> None:
        for number in range(30):
            sent = np.full((1, LARGE + 1000 * number), number, np.float32)
            calls = [client.async_infer("identity_fp32", sent) for _ in range(4)]
            calls[1].cancel()
            await asyncio.gather(*calls, return_exceptions=True)

    before = slots_of_this_process()
    asyncio.run(what())
    assert slots_of_this_process() <= before + 20


def test_a_client_that_nobody_has_any_more_lets_go_of_everything(shared: tuple[Server, str]) -> None:
    async def what() -> None:
        client = Client(f"unix://{shared[1]}")
        sent = client.empty((1, LARGE), np.float32)
        client.infer("identity_fp32", sent)
        call = client.async_infer("slow", np.array([[1000]]))
        del client
        gc.collect()
        # a call in flight keeps its connection
        assert (await call)["OUTPUT0"] == 1000
        del sent
        gc.collect()
        await asyncio.sleep(0)

    before = descriptors()
    asyncio.run(what())
    eventually(lambda: descriptors() <= before, "all is closed")
