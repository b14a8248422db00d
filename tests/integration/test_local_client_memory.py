"""``Client("unix://…")`` and the memory that both sides see."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from runners import Client, errors
from tests.arrays import DTYPES
from tests.gates import HELD, Gate
from tests.integration.local import LARGE, descriptors, values, write_gated_identity
from tests.integration.occupied import until_pending
from tests.serving import Server
from tests.waiting import settles

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tests.conftest import StartServer


@pytest.fixture
def client(local_server: tuple[Server, str]) -> Iterator[Client]:
    server, path = local_server
    with Client(f"unix://{path}") as opened:
        yield opened
    assert server.process.poll() is None, "this test ended the shared server"


def slots_of_this_process() -> int:
    """How many slots there are whose owner is this process, in use or kept for later."""
    count = 0
    for descriptor in Path("/proc/self/fd").iterdir():
        try:
            count += "kushi-slot" in str(descriptor.readlink())
        except FileNotFoundError:
            continue
    return count


@pytest.mark.clock
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
    write_gated_identity(repository)
    server = start_server(repository, f"--local-socket={socket_path}")

    async def what(client: Client, gate: Gate) -> None:
        ahead = client.async_infer("slow_identity", {"STEPS": np.array([[HELD]]), "DATA": np.zeros((1, 1), np.uint8)})
        await asyncio.to_thread(gate.until_reached)
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
        gate.let_through()
        await ahead

    with Client(f"unix://{socket_path}") as client, Gate(repository, "slow_identity") as gate:
        asyncio.run(what(client, gate))


@pytest.mark.clock
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


@pytest.mark.clock
def test_a_client_that_nobody_has_any_more_lets_go_of_everything(local_server: tuple[Server, str]) -> None:
    async def what() -> None:
        client = Client(f"unix://{local_server[1]}")
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
    settles(lambda: descriptors() <= before, "all is closed")
