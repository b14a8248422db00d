"""Tensors in shared memory of the client, with ``tritonclient``'s own utilities."""

from __future__ import annotations

import asyncio
import os
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from tritonclient import http
from tritonclient.http import InferenceServerClient as Client
from tritonclient.http import aio
from tritonclient.utils import (
    InferenceServerException,
    serialize_byte_tensor,
    serialized_byte_size,
    shared_memory,
)

from tests.integration.regions import (
    ADD_SUB_BYTES,
    FIRST,
    SECOND,
    add_sub_inputs,
    connect,
    infer_add_sub,
    registered,
    shared_input,
    shared_output,
)
from tests.integration.test_tritonclient import VALUES
from tests.shared_memory import Object

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.conftest import StartServer
    from tests.serving import Server


def key(name: str) -> str:
    """That of a region, for which other processes of tests have another"""
    return f"/kushi-test-{os.getpid()}-{name}"


@contextmanager
def tritons_region(name: str, size: int) -> Iterator[Any]:
    """A region made by tritonclient"""
    handle = shared_memory.create_shared_memory_region(name, key(name), size)
    try:
        yield handle
    finally:
        shared_memory.destroy_shared_memory_region(handle)


@pytest.mark.clock
def test_regions_are_registered_told_of_and_unregistered(region_client: Client) -> None:
    with tritons_region("status", 256):
        region_client.register_system_shared_memory("status", key("status"), 64, offset=128)
        row = {"name": "status", "key": key("status"), "offset": 128, "byte_size": 64}
        assert region_client.get_system_shared_memory_status() == [row]
        assert region_client.get_system_shared_memory_status("status") == [row]
        with pytest.raises(InferenceServerException, match="shared memory region 'status' already in manager"):
            region_client.register_system_shared_memory("status", key("status"), 64)
        region_client.unregister_system_shared_memory("status")
        region_client.unregister_system_shared_memory("status")
        with pytest.raises(InferenceServerException, match="Unable to find system shared memory region: 'status'"):
            region_client.get_system_shared_memory_status("status")
        assert region_client.get_cuda_shared_memory_status() == []
        with pytest.raises(InferenceServerException, match="'gpu', GPUs not supported"):
            region_client.register_cuda_shared_memory("gpu", b"", 0, 64)


@pytest.mark.clock
def test_inputs_and_outputs_lie_in_regions_at_their_offsets(region_client: Client) -> None:
    with tritons_region("in", 200) as inputs, tritons_region("out", 300) as outputs:
        shared_memory.set_shared_memory_region(inputs, [FIRST, SECOND], offset=7)
        region_client.register_system_shared_memory("in", key("in"), 190, offset=3)
        region_client.register_system_shared_memory("out", key("out"), 300)
        result = region_client.infer(
            "add_sub",
            [
                shared_input("INPUT0", "INT32", (1, 16), "in", 64, at=4),
                shared_input("INPUT1", "INT32", (1, 16), "in", 64, at=68),
            ],
            outputs=[shared_output("OUTPUT1", "out", 64, at=5), shared_output("OUTPUT0", "out", 100, at=101)],
        )
        assert result.get_output("OUTPUT0") == {"name": "OUTPUT0", "datatype": "INT32", "shape": [1, 16]}
        total = shared_memory.get_contents_as_numpy(outputs, np.int32, [1, 16], offset=101)
        difference = shared_memory.get_contents_as_numpy(outputs, np.int32, [1, 16], offset=5)
        np.testing.assert_array_equal(total, FIRST + SECOND)
        np.testing.assert_array_equal(difference, FIRST - SECOND)
        untouched = shared_memory.get_contents_as_numpy(outputs, np.uint8, [300])
        assert not np.r_[untouched[:5], untouched[69:101], untouched[165:]].any()


@pytest.mark.clock
@pytest.mark.parametrize("datatype", VALUES)
def test_every_datatype_travels_in_regions(region_client: Client, datatype: str) -> None:
    values = VALUES[datatype]
    made = http.InferInput("INPUT0", list(values.shape), datatype)
    made.set_data_from_numpy(values)
    raw: bytes = made._get_binary_data()
    with registered(region_client, "both", raw.ljust(4096, b"\xff")) as memory:
        region_client.infer(
            f"identity_{datatype.lower()}",
            [shared_input("INPUT0", datatype, values.shape, "both", len(raw))],
            outputs=[shared_output("OUTPUT0", "both", 2048, at=2048)],
        )
        assert memory.read(2048, len(raw) + 1) == raw + b"\xff"


@pytest.mark.clock
def test_strings_are_written_and_read_by_tritonclient(region_client: Client) -> None:
    values = np.array([[b"", b"a\0b", "ü".encode()]], dtype=np.object_)
    with tritons_region("strings", 1024) as handle:
        serialized = serialize_byte_tensor(values)
        shared_memory.set_shared_memory_region(handle, [serialized])
        region_client.register_system_shared_memory("strings", key("strings"), 1024)
        size = serialized_byte_size(serialized)
        region_client.infer(
            "identity_bytes",
            [shared_input("INPUT0", "BYTES", (1, 3), "strings", size)],
            outputs=[shared_output("OUTPUT0", "strings", 512, at=512)],
        )
        answer = shared_memory.get_contents_as_numpy(handle, np.object_, [1, 3], offset=512)
        np.testing.assert_array_equal(answer, values)


@pytest.mark.clock
def test_regions_binary_and_json_may_be_mixed(region_client: Client) -> None:
    with registered(region_client, "in", FIRST.tobytes()), registered(region_client, "out", 64) as out:
        second = http.InferInput("INPUT1", [1, 16], "INT32")
        for binary_input in (True, False):
            second.set_data_from_numpy(SECOND, binary_data=binary_input)
            for binary_output in (True, False):
                out.write(bytes(64))
                result = region_client.infer(
                    "add_sub",
                    [shared_input("INPUT0", "INT32", (1, 16), "in", 64), second],
                    outputs=[
                        shared_output("OUTPUT0", "out", 64),
                        http.InferRequestedOutput("OUTPUT1", binary_data=binary_output),
                    ],
                )
                assert out.read() == (FIRST + SECOND).tobytes()
                np.testing.assert_array_equal(result.as_numpy("OUTPUT1"), FIRST - SECOND)


@pytest.mark.clock
def test_an_output_may_take_the_place_of_its_input(region_client: Client) -> None:
    with registered(region_client, "in", ADD_SUB_BYTES) as memory:
        region_client.infer("add_sub", add_sub_inputs(), outputs=[shared_output("OUTPUT0", "in", 64)])
        assert memory.read() == (FIRST + SECOND).tobytes() + SECOND.tobytes()


@pytest.mark.clock
def test_tensors_without_elements_take_no_bytes(region_client: Client) -> None:
    with registered(region_client, "in", 1), registered(region_client, "out", b"\xff") as out:
        for datatype in ("INT32", "BYTES"):
            result = region_client.infer(
                f"identity_{datatype.lower()}",
                [shared_input("INPUT0", datatype, (1, 0), "in", 0)],
                outputs=[shared_output("OUTPUT0", "out", 0)],
            )
            assert result.get_output("OUTPUT0") == {"name": "OUTPUT0", "datatype": datatype, "shape": [1, 0]}
        assert out.read() == b"\xff"


@pytest.mark.clock
@pytest.mark.parametrize("count", [100, 5_000, 150_000, 2_000_000])
@pytest.mark.parametrize("at", [0, 3])
def test_small_and_large_tensors_arrive_whole_at_any_alignment(region_client: Client, count: int, at: int) -> None:
    values = np.random.default_rng(count).random((1, count), dtype=np.float32)
    size = values.nbytes
    with (
        registered(region_client, "in", bytes(at) + values.tobytes()),
        registered(region_client, "out", size + at) as out,
    ):
        for _ in range(3):
            out.write(bytes(size), at)
            region_client.infer(
                "identity_fp32",
                [shared_input("INPUT0", "FP32", (1, count), "in", size, at=at)],
                outputs=[shared_output("OUTPUT0", "out", size, at=at)],
            )
            assert out.read(at) == values.tobytes()


def test_many_requests_share_regions_from_an_event_loop(region_server: Server) -> None:
    count = 40

    async def talk() -> None:
        address = f"{region_server.http[0]}:{region_server.http[1]}"
        async with aio.InferenceServerClient(address, conn_limit=16) as client:
            with ExitStack() as stack:
                ins = [stack.enter_context(Object((FIRST + n).tobytes() + SECOND.tobytes())) for n in range(count)]
                out = stack.enter_context(Object(64 * count))
                for number, memory in enumerate(ins):
                    await client.register_system_shared_memory(f"in {number}", memory.key, memory.size)
                await client.register_system_shared_memory("out", out.key, out.size)
                assert len(await client.get_system_shared_memory_status()) == count + 1

                async def ask(number: int) -> None:
                    output = shared_output("OUTPUT0", "out", 64, at=64 * number)
                    await client.infer("add_sub", add_sub_inputs(f"in {number}"), outputs=[output])

                await asyncio.gather(*(ask(number) for number in range(count)))
                answers = np.frombuffer(out.read(), np.int32).reshape(count, 16)
                np.testing.assert_array_equal(answers, [(FIRST + number + SECOND)[0] for number in range(count)])
                await client.unregister_system_shared_memory("out")
                await client.unregister_system_shared_memory()
                assert await client.get_system_shared_memory_status() == []

    asyncio.run(talk())


@pytest.mark.clock
def test_outputs_are_written_all_or_none_where_one_does_not_fit(region_client: Client) -> None:
    with registered(region_client, "in", ADD_SUB_BYTES), registered(region_client, "out", 256) as out:
        with pytest.raises(InferenceServerException) as refused:
            region_client.infer(
                "add_sub",
                add_sub_inputs(),
                outputs=[shared_output("OUTPUT0", "out", 64), shared_output("OUTPUT1", "out", 60, at=100)],
            )
        assert refused.value.status() == "500"
        assert refused.value.message() == (
            "shared memory size specified with the request for output 'OUTPUT1' (60 bytes) should be at least 64 bytes "
            "to hold the results"
        )
        assert out.read() == bytes(256)


@pytest.mark.alone
def test_more_than_a_body_may_have_is_refused_before_it_is_read(
    standard_repository: Path, start_server: StartServer
) -> None:
    server = start_server(standard_repository, "--allow-client-shm=true")
    with connect(server) as client:
        with registered(client, "in", 5 << 30), server.grows_by_less_than(256 << 10):
            with pytest.raises(InferenceServerException, match=r"in shared memory, at most 2147483647 are allowed$"):
                client.infer("identity_fp32", [shared_input("INPUT0", "FP32", (1, 1 << 29), "in", 1 << 31)])
            with pytest.raises(InferenceServerException, match="--max-inflight-bytes"):
                client.infer("identity_fp32", [shared_input("INPUT0", "FP32", (1, (1 << 29) - 1), "in", (1 << 31) - 4)])
            with pytest.raises(InferenceServerException, match=r"Expected 64, got 536870912$"):
                client.infer("identity_fp32", [shared_input("INPUT0", "FP32", (1, 16), "in", 1 << 29)])
        with registered(client, "other", ADD_SUB_BYTES):
            infer_add_sub(client, "other")
