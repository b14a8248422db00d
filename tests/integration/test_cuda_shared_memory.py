"""Tensors in CUDA memory of the client, with a driver that stands in for that of a GPU."""

from __future__ import annotations

import json
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pytest

from tests.contract.cases.case import NOT_STRING, NOT_UNSIGNED, PARSE, Code
from tests.cuda_driver import Gpu, Memory
from tests.cuda_regions import CHECKS, HANDLE, INVALID_ARGS, ROW_BYTES, WAYS, Way
from tests.gates import HELD
from tests.integration.regions import FIRST
from tests.integration.test_shared_memory_in_use import in_use
from tests.serving import Server
from tests.shared_memory import Object
from tests.stand_in_driver import HERE, make_cuda
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.conftest import StartServer

SMALL: Final = 64
LARGE: Final = 4 << 20


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(make_cuda(tmp_path_factory.mktemp("driver")))


@pytest.fixture(scope="module")
def driver_here(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(make_cuda(tmp_path_factory.mktemp("client"), HERE))


@pytest.fixture(scope="module")
def gpu(driver_here: str) -> Gpu:
    return Gpu(driver_here)


@pytest.fixture(scope="module")
def gpu_server(standard_repository: Path, driver: str) -> Iterator[Server]:
    """On a machine with two GPUs, where models compute for ever, with one io thread."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LD_LIBRARY_PATH", str(Path(driver).parent))
        patch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        patch.setenv("STAND_IN_MODELS_COMPUTE", "1")
        server = Server.start(standard_repository, "--allow-client-shm=true", "--http-thread-count=1")
    try:
        yield server
    finally:
        server.stop()


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest, gpu_server: Server) -> Iterator[Way]:
    """A client; the test leaves no region and nothing open, and no dead server."""
    with Way(request.param, gpu_server) as opened:
        yield opened
        opened.client.unregister_cuda_shared_memory()
        opened.client.unregister_system_shared_memory()
        assert opened.regions() == opened.regions(memory="system") == []
    assert open_memories(gpu_server) == 0
    assert gpu_server.process.poll() is None


def open_memories(server: Server) -> int:
    """How much memory of other processes the server has open on GPUs."""
    return Path(f"/proc/{server.pid}/maps").read_text(encoding="utf-8").count("memfd:stand-in-gpu")


def names(way: Way, memory: str = "cuda") -> list[str]:
    return [row["name"] for row in way.regions(memory=memory)]


@pytest.mark.parametrize("check", list(CHECKS))
def test_on_the_driver_that_stands_in(way: Way, gpu: Gpu, check: str) -> None:
    CHECKS[check](way, gpu)


def test_memory_is_open_once_for_all_its_regions(way: Way, gpu: Gpu, gpu_server: Server) -> None:
    with Memory(gpu, 64) as memory:
        for name in ("a", "b"):
            way.register(name, memory)
            assert open_memories(gpu_server) == 1
        way.client.unregister_cuda_shared_memory("a")
        assert open_memories(gpu_server) == 1
        way.client.unregister_cuda_shared_memory("b")
        assert open_memories(gpu_server) == 0


def test_memory_of_each_gpu_is_registered_there(way: Way, driver_here: str) -> None:
    second = Gpu(driver_here, 1)
    with way.registered(second, "in", b"skewer.." * 8):
        assert [row["device_id"] for row in way.regions()] == [1]
        assert way.identity("in", 64).as_numpy("OUTPUT0").tobytes() == b"skewer.." * 8


def test_regions_of_both_kinds_serve_one_request(way: Way, gpu: Gpu) -> None:
    with way.registered(gpu, "in", b"fire" * 16), Object(64) as out:
        way.client.register_system_shared_memory("out", out.key, out.size)
        way.identity("in", 64, into="out")
        assert out.read() == b"fire" * 16


def test_what_is_read_from_regions_for_one_request_is_bounded(way: Way) -> None:
    size = 1 << 31
    with Object(size) as memory:
        way.client.register_system_shared_memory("in", memory.key, size)
        text = f"request has {size} bytes in shared memory, at most {size - 1} are allowed"
        with way.refuses(Code.INVALID_ARGUMENT, text):
            way.identity("in", size)
        way.client.unregister_system_shared_memory("in")


def test_a_name_is_one_region_of_either_kind(way: Way, gpu: Gpu) -> None:
    taken = "shared memory region '{}' already in manager"
    with Object(64) as other, Memory(gpu, 64) as memory:
        way.client.register_system_shared_memory("system", other.key, other.size)
        way.register("cuda", memory)
        for name in ("system", "cuda"):
            with way.refuses(Code.INVALID_ARGUMENT, taken.format(name)):
                way.register(name, memory)
            with way.refuses(Code.INVALID_ARGUMENT, taken.format(name)):
                way.client.register_system_shared_memory(name, other.key, other.size)
        text = "The region named '{}' is registered as {} shared memory, not {} shared memory"
        with way.refuses(Code.NOT_FOUND, text.format("cuda", "CUDA", "system")):
            way.regions("cuda", "system")
        with way.refuses(Code.NOT_FOUND, text.format("system", "system", "CUDA")):
            way.regions("system")
        way.client.unregister_cuda_shared_memory("system")
        way.client.unregister_system_shared_memory("cuda")
        way.client.unregister_cuda_shared_memory()
        assert [[row["name"] for row in way.regions(memory=memory)] for memory in ("system", "cuda")] == [
            ["system"],
            [],
        ]
        way.register("cuda", memory)
        way.client.unregister_system_shared_memory()
        assert (names(way, "system"), names(way)) == ([], ["cuda"])
        way.client.unregister_cuda_shared_memory()


def test_memory_of_another_gpu_and_memory_that_is_gone_are_refused(way: Way, gpu: Gpu, gpu_server: Server) -> None:
    with Memory(gpu, 64) as memory:
        # the other GPU cannot reach it
        with way.refuses(Code.INVALID_ARGUMENT, INVALID_ARGS):
            way.register("r", memory, device_id=1)
        text = "failed to register shared memory region 'r': device_id 2 is of no GPU, this server sees 2"
        with way.refuses(Code.INVALID_ARGUMENT, text):
            way.register("r", memory, device_id=2)
        with way.refuses(Code.INVALID_ARGUMENT, "failed to register shared memory region 'r': invalid args"):
            way.register("r", memory, 65)
    with way.refuses(Code.INVALID_ARGUMENT, INVALID_ARGS):
        way.register("freed", memory)
    assert way.regions() == []
    assert open_memories(gpu_server) == 0
    # that of the first refusal: the log leaves out some of many
    gpu_server.log.wait_for(re.compile("invalid args: CUDA_ERROR_"), 10)


@pytest.mark.parametrize(
    ("body", "code", "text"),
    [
        (b"", Code.INVALID_ARGUMENT, "Shared memory register request has no 'raw_handle' field"),
        (b"{", Code.INTERNAL, f"{PARSE}Missing a name for object member. at 1"),
        ({"raw_handle": "x"}, Code.INTERNAL, "attempt to access non-existing object member 'b64'"),
        ({"raw_handle": {"b64": 5}}, Code.INTERNAL, NOT_STRING),
        ({"raw_handle": {"b64": "?"}}, Code.INTERNAL, "attempt to access non-existing object member 'byte_size'"),
        ({"raw_handle": {"b64": "?"}, "byte_size": -1}, Code.INTERNAL, NOT_UNSIGNED),
        (
            {"raw_handle": {"b64": "?"}, "byte_size": 1},
            Code.INTERNAL,
            "attempt to access non-existing object member 'device_id'",
        ),
        ({"raw_handle": {"b64": "?"}, "byte_size": 1, "device_id": 0}, Code.INVALID_ARGUMENT, HANDLE),
    ],
)
def test_a_registration_that_cannot_be_read_is_refused(
    gpu_server: Server, body: bytes | dict[str, Any], code: Code, text: str
) -> None:
    sent = body if isinstance(body, bytes) else json.dumps(body).encode()
    response = gpu_server.post("/v2/cudasharedmemory/region/r/register", sent)
    assert (response.status, response.error) == (code.http, text)


def test_ranges_stay_inside_their_region(way: Way, gpu: Gpu) -> None:
    with way.registered(gpu, "in", 64), way.registered(gpu, "out", b"\xff" * 64) as out:
        for at, size, text in (
            (64, 4, "Invalid offset for shared memory region: '{}'"),
            (32, 64, "Invalid offset + byte size for shared memory region: '{}'"),
        ):
            with way.refuses(Code.INVALID_ARGUMENT, text.format("in")):
                way.identity("in", size, at=at)
            with way.refuses(Code.INVALID_ARGUMENT, text.format("out")):
                way.identity("in", size, into="out", into_at=at)
        with way.refuses(Code.NOT_FOUND, "Unable to find shared memory region: 'other'"):
            way.identity("other", 4)
        text = (
            "shared memory size specified with the request for output 'OUTPUT0' (63 bytes) should be at least 64 bytes "
            "to hold the results"
        )
        with way.refuses(Code.INTERNAL, text):
            way.client.infer(
                "identity_fp32",
                [way.input("INPUT0", "FP32", (1, 16), "in", 64)],
                outputs=[way.output("OUTPUT0", "out", 63)],
            )
        assert out.read() == b"\xff" * 64


def test_a_region_in_use_stays_and_serves_until_its_request_is_answered(way: Way, gpu: Gpu, gpu_server: Server) -> None:
    with Memory(gpu, 8) as out:
        way.register("out", out)
        with in_use(gpu_server, "out") as (connection, gate):
            way.client.unregister_cuda_shared_memory()
            assert names(way) == ["out"]
            with way.refuses(Code.INVALID_ARGUMENT, "shared memory region 'out' already in manager"):
                way.register("out", out)
            gate.let_through()
            assert connection.receive().status == 200
        assert out.read() != bytes(8)
        eventually(lambda: way.regions() == [], "the region is gone")
        assert open_memories(gpu_server) == 0


def test_a_region_in_use_is_closed_while_nobody_waits(way: Way, gpu: Gpu, gpu_server: Server) -> None:
    with Memory(gpu, np.array([HELD]).tobytes()) as steps:
        way.register("steps", steps)
        with in_use(gpu_server, "steps", as_input=True) as (connection, gate), steps.busy():
            way.client.unregister_cuda_shared_memory()
            gate.let_through()
            assert connection.receive().status == 200
            eventually(lambda: waits(gpu_server), "closing waits for the GPU")
            assert way.client.is_server_live()
            assert names(way) == ["steps"], "it keeps its name until it is closed"
            with way.refuses(Code.INVALID_ARGUMENT, "shared memory region 'steps' already in manager"):
                way.register("steps", steps)
            with way.refuses(Code.NOT_FOUND, "Unable to find shared memory region: 'steps'"):
                way.identity("steps", 8)
            way.client.unregister_cuda_shared_memory("steps")
            way.client.unregister_cuda_shared_memory()
        eventually(lambda: way.regions() == [], "the region is gone")
        assert open_memories(gpu_server) == 0


def waits(server: Server) -> bool:
    """Whether a call of the server waits for a GPU that is busy."""
    lines = Path("/proc/locks").read_text(encoding="ascii").splitlines()
    return any("->" in line and f" {server.pid} " in line for line in lines)


def copies_in(way: Way, size: int) -> None:
    way.identity("held", size)


def copies_out(way: Way, size: int) -> None:
    values = np.ones((1, size // 4), dtype=np.float32)
    outputs = [way.output("OUTPUT0", "held", size)]
    way.client.infer("identity_fp32", [way.plain("INPUT0", values, "FP32")], outputs=outputs)


@pytest.mark.parametrize("size", [SMALL, LARGE])
@pytest.mark.parametrize("copies", [copies_in, copies_out])
def test_copies_keep_nobody_waiting_and_their_region_open(
    way: Way, gpu: Gpu, gpu_server: Server, copies: Callable[[Way, int], None], size: int
) -> None:
    def copy() -> None:
        with Way(way.name, gpu_server) as other:
            copies(other, size)

    with Memory(gpu, size) as held, ThreadPoolExecutor(1) as thread:
        way.register("held", held)
        with held.busy():
            answer = thread.submit(copy)
            eventually(lambda: waits(gpu_server), "a copy waits")
            assert way.client.is_server_live()
            way.client.infer("add_sub", [way.plain(f"INPUT{one}", FIRST, "INT32") for one in (0, 1)])
            way.client.unregister_cuda_shared_memory("held")
            assert names(way) == ["held"]
            assert not answer.done()
        answer.result()
        eventually(lambda: way.regions() == [], "the region is gone")


@pytest.fixture
def ending_server(standard_repository: Path, driver: str, start_server: StartServer) -> Iterator[Server]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LD_LIBRARY_PATH", str(Path(driver).parent))
        patch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        yield start_server(standard_repository, "--allow-client-shm=true", "--exit-timeout-secs=20")


def test_a_driver_that_hangs_in_a_copy_does_not_keep_the_server_from_its_end(gpu: Gpu, ending_server: Server) -> None:
    place = {"shared_memory_region": "held", "shared_memory_byte_size": SMALL}
    tensor = {"name": "INPUT0", "datatype": "FP32", "shape": [1, SMALL // 4], "parameters": place}
    body = json.dumps({"inputs": [tensor]}).encode()
    head = f"POST /v2/models/identity_fp32/infer HTTP/1.1\r\nhost: it\r\ncontent-length: {len(body)}\r\n\r\n"
    with Memory(gpu, SMALL) as held, Way("http", ending_server) as way:
        way.register("held", held)
        with held.busy():
            # its client does not wait for it, and nobody is left whom the server would answer
            with ending_server.connect() as client:
                client.send(head.encode() + body)
                eventually(lambda: waits(ending_server), "a copy waits")
            assert ending_server.stop() == 0
    assert "a thread for large bodies was still at work when the server closed" in ending_server.log.text()


def test_memory_that_cannot_be_closed_does_not_keep_the_server_from_its_end(gpu: Gpu, ending_server: Server) -> None:
    with Memory(gpu, SMALL) as held:
        with Way("http", ending_server) as way:
            way.register("held", held)
        with held.busy():
            assert ending_server.stop() == 0
    assert "the driver of GPUs has not closed memory of clients" in ending_server.log.text()


def test_a_stream_takes_tensors_from_a_gpu(gpu: Gpu, gpu_server: Server) -> None:
    with (
        Way("grpc", gpu_server) as way,
        way.registered(gpu, "in", b"fire" * (LARGE // 4)),
        way.registered(gpu, "out", LARGE) as out,
    ):
        answers: SimpleQueue[Any] = SimpleQueue()
        way.client.start_stream(lambda result, error: answers.put(error or result))
        inputs = [way.input("INPUT0", "FP32", (1, LARGE // 4), "in", LARGE)]
        way.client.async_stream_infer("identity_fp32", inputs, outputs=[way.output("OUTPUT0", "out", LARGE)])
        assert answers.get(timeout=30).get_output("OUTPUT0").shape == [1, LARGE // 4]
        way.client.stop_stream()
        assert out.read() == b"fire" * (LARGE // 4)


def extensions(way: Way) -> list[str]:
    metadata = way.client.get_server_metadata()
    return list(metadata["extensions"] if way.name == "http" else metadata.extensions)


def test_the_extension_is_told_of_where_there_is_a_gpu(way: Way) -> None:
    assert {"system_shared_memory", "cuda_shared_memory"} <= set(extensions(way))


@pytest.fixture(params=["no driver", "no GPU"])
def blind_server(
    request: pytest.FixtureRequest, driver: str, repository: Path, start_server: StartServer
) -> Iterator[Server]:
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "no GPU":
            patch.setenv("LD_LIBRARY_PATH", str(Path(driver).parent))
        patch.setenv("CUDA_VISIBLE_DEVICES", "")
        yield start_server(repository, "--allow-client-shm=true")


@pytest.mark.parametrize("name", WAYS)
def test_where_there_is_no_gpu_nothing_can_be_registered(name: str, gpu: Gpu, blind_server: Server) -> None:
    with Way(name, blind_server) as way, Memory(gpu, 64) as memory:
        with way.refuses(
            Code.INVALID_ARGUMENT, "failed to register CUDA shared memory region: 'r', GPUs not supported"
        ):
            way.register("r", memory)
        assert way.regions() == []
        way.client.unregister_cuda_shared_memory()
        assert "cuda_shared_memory" not in extensions(way)


def test_a_driver_without_a_gpu_stays_loaded(driver: str, repository: Path, start_server: StartServer) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LD_LIBRARY_PATH", str(Path(driver).parent))
        patch.setenv("CUDA_VISIBLE_DEVICES", "")
        server = start_server(repository, "--allow-client-shm=true")
    with Way("http", server) as way:
        assert "cuda_shared_memory" not in extensions(way)
    assert driver in Path(f"/proc/{server.pid}/maps").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", WAYS)
def test_where_clients_may_not_use_shared_memory_there_is_none_on_gpus(
    name: str, gpu: Gpu, repository: Path, start_server: StartServer
) -> None:
    with Way(name, start_server(repository)) as way, Memory(gpu, ROW_BYTES) as memory:
        text = "Client shared memory is disabled. Start the server with '--allow-client-shm=true' to enable."
        with way.refuses(Code.UNIMPLEMENTED, text):
            way.register("r", memory)
