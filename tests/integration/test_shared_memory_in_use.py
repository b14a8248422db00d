"""What clients do to their shared memory while the server uses it, and what becomes of regions in use."""

from __future__ import annotations

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import count
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pytest
from tritonclient import http
from tritonclient.http import InferenceServerClient as Client
from tritonclient.utils import InferenceServerException

from tests.contract.requests import strings
from tests.gates import HELD, Gate
from tests.integration.occupied import occupy, pending, send_behind_another, until_pending
from tests.integration.regions import (
    ADD_SUB_BYTES,
    FIRST,
    SECOND,
    add_sub_inputs,
    connect,
    infer_add_sub,
    open_objects,
    registered,
    shared_input,
    shared_output,
)
from tests.raw_http import frame
from tests.serving import Server
from tests.shared_memory import Object
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.conftest import StartServer
    from tests.raw_http import Connection, Headers

CUT_SHORT: Final = (
    "shared memory region '{}' has been cut short: expected its object '{}' to have at least {} bytes, got {}"
)
TAKEN: Final = "shared memory region 'out' already in manager"


def raises(text: str) -> Any:  # noqa: ANN401 - what pytest answers here has no public name
    return pytest.raises(InferenceServerException, match=f"^\\[400\\] {text}$")


@pytest.mark.clock
def test_an_object_cut_short_is_told_and_serves_again_when_it_has_grown(region_client: Client) -> None:
    with registered(region_client, "in", ADD_SUB_BYTES) as memory, registered(region_client, "out", 128) as out:
        memory.resize(100)
        with raises(CUT_SHORT.format("in", memory.key, 128, 100)):
            infer_add_sub(region_client)
        memory.resize(0)
        with raises(CUT_SHORT.format("in", memory.key, 64, 0)):
            infer_add_sub(region_client)
        memory.write(ADD_SUB_BYTES)
        infer_add_sub(region_client)
        out.resize(70)
        outputs = [shared_output("OUTPUT0", "out", 64, at=64)]
        with raises(CUT_SHORT.format("out", out.key, 128, 70)):
            region_client.infer("add_sub", add_sub_inputs(), outputs=outputs)
        assert out.size == 70
        out.resize(1000)
        region_client.infer("add_sub", add_sub_inputs(), outputs=outputs)
        assert out.read(64, 64) == (FIRST + SECOND).tobytes()


@pytest.mark.clock
def test_a_region_is_the_object_that_was_registered_whatever_its_key_names_now(region_client: Client) -> None:
    with registered(region_client, "in", ADD_SUB_BYTES) as memory:
        memory.unlink()
        infer_add_sub(region_client)
        memory.create(bytes(128))
        infer_add_sub(region_client)
        region_client.unregister_system_shared_memory("in")
        region_client.register_system_shared_memory("in", memory.key, 128)
        answer = region_client.infer("add_sub", add_sub_inputs()).as_numpy("OUTPUT0")
        np.testing.assert_array_equal(answer, np.zeros((1, 16)))


ROUNDS: Final = 100
SIZE: Final = 600_000
SHAPE: Final = (1, SIZE // 4)
CLEAR: Final = (
    "has been cut short",
    "Unable to find shared memory region: 'torn'",
    "incomplete string",
    "unexpected number of string elements",
    "string elements for inference input",
)


def resizing(_: Client, memory: Object, number: int) -> None:
    memory.resize((0, SIZE, 17, SIZE // 2, 4 * SIZE)[number % 5])


def replacing(_: Client, memory: Object, number: int) -> None:
    memory.unlink()
    memory.create(number % 3 * 1000)


def registering(client: Client, memory: Object, number: int) -> None:
    if number % 3:
        client.unregister_system_shared_memory("torn")
        return
    try:
        client.register_system_shared_memory("torn", memory.key, SIZE)
    except InferenceServerException as error:
        assert "already in manager" in error.message()  # noqa: PT017 - which of the two comes is not known


def rewriting(_: Client, memory: Object, number: int) -> None:
    memory.write((strings(*[b"fire"] * 100), b"\xff" * 800, strings(b"x" * 796), bytes(800))[number % 4])


def infer_large(client: Client) -> None:
    outputs = [shared_output("OUTPUT0", "torn", SIZE)]
    client.infer("identity_fp32", [shared_input("INPUT0", "FP32", SHAPE, "torn", SIZE)], outputs=outputs)


def infer_strings(client: Client) -> None:
    outputs = [shared_output("OUTPUT0", "torn", 2000, at=1000)]
    client.infer("identity_bytes", [shared_input("INPUT0", "BYTES", (1, 100), "torn", 800)], outputs=outputs)


@pytest.mark.clock
@pytest.mark.parametrize(
    ("disturb", "use"),
    [
        (resizing, infer_large),
        (replacing, infer_large),
        (registering, infer_large),
        (rewriting, infer_strings),
    ],
)
def test_what_one_client_does_to_its_memory_hurts_nobody_else(
    region_client: Client,
    region_server: Server,
    disturb: Callable[[Client, Object, int], None],
    use: Callable[[Client], None],
) -> None:
    """One thread disturbs, three use what it disturbs, and one uses memory of its own."""
    done = threading.Event()

    def keep_disturbing() -> None:
        with connect(region_server) as client:
            for number in count():
                if done.is_set():
                    return
                disturb(client, memory, number)

    def keep_using() -> None:
        with connect(region_server) as client:
            for _ in range(ROUNDS):
                try:
                    use(client)
                except InferenceServerException as error:
                    assert any(text in error.message() for text in CLEAR), error  # noqa: PT017 - it may go well

    def keep_using_the_safe_one() -> None:
        with connect(region_server) as client:
            for _ in range(ROUNDS):
                infer_add_sub(client, "safe")

    with (
        registered(region_client, "torn", SIZE) as memory,
        registered(region_client, "safe", ADD_SUB_BYTES),
        ThreadPoolExecutor(5) as threads,
    ):
        disturbing = threads.submit(keep_disturbing)
        using = [threads.submit(keep_using) for _ in range(3)] + [threads.submit(keep_using_the_safe_one)]
        try:
            for each in using:
                each.result()
        finally:
            done.set()
        disturbing.result()


def place(region: str) -> dict[str, Any]:
    return {"parameters": {"shared_memory_region": region, "shared_memory_byte_size": 8}}


def slow_into(region: str, steps: int, *, headers: Headers = ()) -> bytes:
    """A request for the slow model whose output comes into the region."""
    body = {
        "inputs": [{"name": "STEPS", "datatype": "INT64", "shape": [1, 1], "data": [steps]}],
        "outputs": [{"name": "OUTPUT0", **place(region)}],
    }
    return frame("POST", "/v2/models/slow/infer", headers, json.dumps(body).encode())


def slow_of(region: str) -> bytes:
    """A request for the slow model whose input, the steps, comes from the region."""
    body = {"inputs": [{"name": "STEPS", "datatype": "INT64", "shape": [1, 1], **place(region)}]}
    return frame("POST", "/v2/models/slow/infer", body=json.dumps(body).encode())


@contextmanager
def in_use(server: Server, region: str, *, as_input: bool = False) -> Iterator[tuple[Connection, Gate]]:
    """A request for the region executes, until the gate lets it through."""
    assert server.repository is not None
    request = slow_of(region) if as_input else slow_into(region, HELD)
    with Gate(server.repository) as gate, send_behind_another(server, request) as connection:
        gate.until_reached()
        assert not connection.has_answer()
        yield connection, gate


def names(client: Client) -> list[str]:
    return [row["name"] for row in client.get_system_shared_memory_status()]


@pytest.mark.clock
def test_a_region_in_use_stays_and_serves_until_its_last_request_is_answered(
    region_client: Client, region_server: Server
) -> None:
    with (
        registered(region_client, "out", 8) as out,
        registered(region_client, "idle", 8) as other,
        in_use(region_server, "out") as (first, gate),
    ):
        region_client.unregister_system_shared_memory()
        assert names(region_client) == ["out"]
        with raises(TAKEN):
            region_client.register_system_shared_memory("out", other.key, 8)
        with send_behind_another(region_server, slow_into("out", HELD)) as second:
            gate.let_through()
            assert first.receive().status == 200
            assert out.read() != bytes(8)
            out.write(bytes(8))
            gate.until_reached()
            assert names(region_client) == ["out"]
            gate.let_through()
            assert second.receive().status == 200
            assert out.read() != bytes(8)
        assert names(region_client) == []
        assert open_objects(region_server) == 0
        region_client.register_system_shared_memory("out", other.key, 8)


@pytest.mark.clock
def test_an_object_cut_short_while_it_is_in_use_is_told_and_stays_short(
    region_client: Client, region_server: Server
) -> None:
    with registered(region_client, "out", 8) as out, in_use(region_server, "out") as (connection, gate):
        out.resize(3)
        gate.let_through()
        answer = connection.receive()
        assert (answer.status, answer.error) == (400, CUT_SHORT.format("out", out.key, 8, 3))
        assert out.size == 3


@pytest.mark.clock
def test_an_object_unlinked_while_it_is_in_use_gets_its_bytes(region_client: Client, region_server: Server) -> None:
    with registered(region_client, "out", 8) as out, in_use(region_server, "out") as (connection, gate):
        with out.path.open("rb") as old:
            out.unlink()
            out.create(8)
            gate.let_through()
            assert connection.receive().status == 200
            assert old.read() != bytes(8)
        assert out.read() == bytes(8)


@pytest.mark.clock
@pytest.mark.parametrize("place", ["executing", "waiting"])
def test_a_client_that_goes_away_leaves_its_region(region_client: Client, region_server: Server, place: str) -> None:
    with registered(region_client, "out", 8) as out:
        if place == "executing":
            with in_use(region_server, "out") as (executing, gate):
                executing.close()
                region_client.unregister_system_shared_memory()
                gate.let_through()
                eventually(lambda: names(region_client) == [], "the region is gone")
        else:
            with occupy(region_server) as occupied:
                waiting = send_behind_another(region_server, slow_into("out", 1))
                until_pending(region_server, 2)
                region_client.unregister_system_shared_memory()
                assert names(region_client) == ["out"]
                waiting.close()
                eventually(lambda: names(region_client) == [], "the region is gone")
                occupied.go_on()
                assert occupied.executing.receive().status == 200
        assert open_objects(region_server) == 0
        until_idle(region_client)
        assert out.read() == bytes(8)


def until_idle(client: Client) -> None:
    """The slow model answers again, so all that came before has ended."""
    steps = http.InferInput("STEPS", [1, 1], "INT64")
    steps.set_data_from_numpy(np.array([[1]], dtype=np.int64))
    client.infer("slow", [steps])


@pytest.mark.clock
def test_a_request_whose_deadline_passes_leaves_its_region(region_client: Client, region_server: Server) -> None:
    with registered(region_client, "out", 8), occupy(region_server) as occupied:
        late = send_behind_another(region_server, slow_into("out", 1, headers=[("kushi-timeout-us", "100000")]))
        eventually(lambda: pending(region_server) == 2 or late.has_answer(), "it is in the queue")
        region_client.unregister_system_shared_memory()
        answer = late.receive()
        assert (answer.status, answer.error) == (503, "Request timeout expired")
        assert names(region_client) == []
        assert open_objects(region_server) == 0
        late.close()
        occupied.go_on()
        assert occupied.executing.receive().status == 200


def test_a_server_that_drains_writes_into_regions_what_it_has_begun(
    standard_repository: Any,  # noqa: ANN401 - a path
    start_server: StartServer,
) -> None:
    server = start_server(standard_repository, "--allow-client-shm=true")
    with connect(server) as client, registered(client, "out", 8) as out:
        with in_use(server, "out") as (connection, gate):
            server.terminate()
            gate.let_through()
            assert connection.receive().status == 200
        assert out.read() != bytes(8)
    assert server.wait() == 0


@pytest.mark.clock
def test_as_many_regions_as_may_be_and_no_more(region_client: Client, region_server: Server) -> None:
    with Object(ADD_SUB_BYTES) as memory:
        refused = None
        for number in range(5000):
            try:
                region_client.register_system_shared_memory(f"r{number}", memory.key, memory.size)
            except InferenceServerException as error:
                refused = error
                break
        assert refused is not None
        assert refused.status() == "503"
        assert refused.message() == (
            f"cannot register shared memory region 'r{number}': there are {number} already, the most that this server "
            "keeps"
        )
        assert open_objects(region_server) == number
        infer_add_sub(region_client, "r7")
        region_client.unregister_system_shared_memory("r7")
        region_client.register_system_shared_memory("again", memory.key, memory.size)
        infer_add_sub(region_client, "again")
        region_client.unregister_system_shared_memory()
        assert open_objects(region_server) == 0
