"""
``Client("http://…")`` against a real Triton server, which knows nothing of Kushi: make test-triton

The server comes with the package nvidia-pytriton, in an environment of its own. Where that cannot be installed there is
nothing to test, and the reason is said. Where it is installed, it has to start.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pytest

from runners import Client, TritonRunner, errors
from tests.peer.pair import free_ports
from tests.processes import children, thread_names
from tests.serving import ROOT, Log
from tests.shared_memory import Object
from tests.waiting import eventually

if TYPE_CHECKING:
    from numpy.typing import NDArray

PYTHON = ROOT / ".venv-triton/bin/python"
SCRIPT = Path(__file__).with_name("serve_pytriton.py")
START_S = 120.0
READY = "serve_pytriton is ready\n"
ESTABLISHED = "01"
FIRST = np.arange(16, dtype=np.int32).reshape(1, 16)

ARRAYS: dict[str, NDArray[Any]] = {
    "BOOL": np.array([[True, False, True]]),
    "FP16": np.array([[1.5, -2.0, np.inf]], np.float16),
    "FP32": np.array([[1.5, np.nan, -np.inf]], np.float32),
    "FP64": np.array([[1.5, np.nan, 5e-324]]),
    "BYTES": np.array([[b"a", b"\xff\x01", "é".encode()]], object),
    **{
        f"{sign}INT{bits}": np.array([[0, 7, np.iinfo(f"{sign}INT{bits}".lower()).max]], f"{sign}INT{bits}".lower())
        for sign in ("", "U")
        for bits in (8, 16, 32, 64)
    },
}


class TritonServer:
    """A child process; its log says why when it cannot start."""

    def __init__(self, home: Path, ports: list[int] | None = None) -> None:
        self.ports = ports or free_ports()
        self.http = self.ports[0]
        self.process = subprocess.Popen(
            [PYTHON, SCRIPT, *map(str, self.ports)],
            env={**os.environ, "PYTRITON_HOME": str(home)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        self.log = Log()

    def read(self) -> bool:
        """Reads the log until the server is ready; False when it has ended before, or had its time."""
        assert self.process.stdout is not None
        timer = threading.Timer(START_S, os.killpg, (self.process.pid, signal.SIGKILL))
        timer.start()
        try:
            for line in self.process.stdout:
                self.log.add(line.rstrip("\n"))
                # others write to the same pipe, and may be in the midst of a line
                if line.endswith(READY):
                    return True
        finally:
            timer.cancel()
            timer.join()
        return False

    def kill(self) -> None:
        """Kills the tritonserver, a child of the process that was started here, and then that one."""
        for pid in children(self.process.pid):
            if thread_names(pid).get(pid) == "tritonserver":
                os.kill(pid, signal.SIGKILL)
                break
        else:
            pytest.fail(f"no tritonserver runs:\n{self.log.text()}")
        self.process.kill()
        self.process.communicate(timeout=START_S)

    def stop(self) -> None:
        """Standard input ends, and so does the server."""
        self.process.communicate(timeout=START_S)


def started(home: Path, ports: list[int] | None = None) -> TritonServer:
    server = TritonServer(home, ports)
    if server.read():
        return server
    server.process.communicate()
    pytest.fail(f"it does not start: exit status {server.process.returncode}\n{server.log.text()}")


@pytest.fixture(scope="module")
def triton(installed: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TritonServer]:
    server = started(tmp_path_factory.mktemp("pytriton"))
    try:
        yield server
    finally:
        server.stop()


@pytest.fixture
def client(triton: TritonServer) -> Iterator[Client]:
    with Client(f"http://127.0.0.1:{triton.http}") as opened:
        yield opened


pytestmark = pytest.mark.timeout(2 * START_S)


def seconds(value: float) -> NDArray[np.float32]:
    return np.array([[value]], np.float32)


def test_inputs_go_by_name_and_by_position(client: Client) -> None:
    by_name = client.infer("add_sub", {"INPUT1": FIRST, "INPUT0": 3 * FIRST}, request_id="seven")
    np.testing.assert_array_equal(by_name["OUTPUT0"], 4 * FIRST)
    np.testing.assert_array_equal(by_name["OUTPUT1"], 2 * FIRST)
    assert (by_name.model_name, by_name.model_version, by_name.request_id) == ("add_sub", "1", "seven")
    assert by_name.timings is None
    by_position = client.add_sub.run(3 * FIRST, FIRST)
    np.testing.assert_array_equal(by_position["OUTPUT1"], 2 * FIRST)
    chosen = client.infer("add_sub", FIRST, FIRST, outputs=["OUTPUT1"], model_version=1, parameters={"note": "x"})
    assert list(chosen) == ["OUTPUT1"]


@pytest.mark.parametrize("datatype", ARRAYS)
def test_every_datatype_survives_the_way_there_and_back(client: Client, datatype: str) -> None:
    sent = ARRAYS[datatype]
    name = f"OUT_{datatype}"
    result = client.infer("identity", {f"IN_{datatype}": sent}, outputs=[name])
    received = result[name]
    assert (received.dtype, result.tensor(name).datatype) == (sent.dtype, datatype)
    np.testing.assert_array_equal(received, sent)


def test_large_tensors_survive(client: Client) -> None:
    sent = np.random.default_rng(0).random((2, 300_000), np.float32)
    result = client.infer("identity", {"IN_FP32": sent}, outputs=["OUT_FP32"])
    np.testing.assert_array_equal(result["OUT_FP32"], sent)


def test_awaited_calls_each_get_their_own_answer(client: Client) -> None:
    async def what() -> None:
        calls = [client.async_infer("add_sub", FIRST + number, FIRST) for number in range(100)]
        for number, result in enumerate(await asyncio.gather(*calls)):
            np.testing.assert_array_equal(result["OUTPUT0"], 2 * FIRST + number)

    asyncio.run(what())


def test_failures_are_of_our_classes_with_the_texts_of_the_server(client: Client) -> None:
    with pytest.raises(errors.ModelNotFound, match="Request for unknown model: 'missing' is not found"):
        client.infer("missing", {"INPUT0": FIRST})
    with pytest.raises(errors.ModelNotFound, match="version 9 is not found"):
        client.infer("add_sub", {"INPUT0": FIRST, "INPUT1": FIRST}, model_version=9)
    with pytest.raises(errors.InvalidInput, match="unexpected inference input 'OTHER' for model 'add_sub'"):
        client.infer("add_sub", {"INPUT0": FIRST, "OTHER": FIRST}, request_id="a")
    with pytest.raises(errors.InvalidInput, match="expected 2 inputs but got 1 inputs for model 'add_sub'"):
        client.infer("add_sub", FIRST)
    with pytest.raises(errors.InvalidInput, match="expected 2 inputs but got 3 inputs for model 'add_sub'"):
        client.infer("add_sub", FIRST, FIRST, FIRST)
    with pytest.raises(errors.InvalidInput, match="data-type is 'INT64', but model 'add_sub' expects 'INT32'"):
        client.infer("add_sub", FIRST, FIRST.astype(np.int64))
    with pytest.raises(errors.EngineFailed, match="the model has failed on purpose") as failed:
        client.infer("fails", seconds(0), request_id="b")
    assert (failed.value.model, failed.value.request_id) == ("fails", "b")
    np.testing.assert_array_equal(client.infer("add_sub", FIRST, FIRST)["OUTPUT0"], 2 * FIRST)


def test_a_deadline_ends_a_call(client: Client) -> None:
    with pytest.raises(errors.DeadlineExceeded):
        client.infer("slow", seconds(1), deadline=0.1)


def test_a_full_queue_is_overload(client: Client) -> None:
    async def what() -> None:
        calls = [client.async_infer("slow", seconds(1)) for _ in range(8)]
        ends = await asyncio.gather(*calls, return_exceptions=True)
        refused = [end for end in ends if isinstance(end, BaseException)]
        assert refused
        for end in refused:
            assert isinstance(end, errors.Overloaded)
            assert "Exceeds maximum queue size" in str(end)

    asyncio.run(what())


def test_the_patience_of_a_queue_is_a_deadline(client: Client) -> None:
    async def what() -> None:
        calls = [client.async_infer("impatient", seconds(0.5)) for _ in range(4)]
        ends = await asyncio.gather(*calls, return_exceptions=True)
        refused = [end for end in ends if isinstance(end, BaseException)]
        assert refused
        for end in refused:
            assert isinstance(end, errors.DeadlineExceeded)
            assert "Request timeout expired" in str(end)

    asyncio.run(what())


def test_management_calls_answer(client: Client) -> None:
    assert client.is_server_live()
    assert client.is_model_ready("add_sub")
    assert not client.is_model_ready("missing")
    assert client.get_server_metadata()["name"] == "triton"
    metadata = client.get_model_metadata("add_sub")
    assert [tensor["name"] for tensor in metadata["inputs"]] == ["INPUT0", "INPUT1"]
    assert client.get_model_config("add_sub", 1)["max_batch_size"] == 8
    # Triton reads it from a directory, and this server's models come by another way.
    assert isinstance(client.get_model_repository_index(), list)
    client.infer("add_sub", FIRST, FIRST)
    assert client.get_inference_statistics("add_sub")["model_stats"][0]["inference_count"] > 0
    with pytest.raises(errors.InvalidInput, match="requested model 'missing' is not available"):
        client.get_inference_statistics("missing")
    with pytest.raises(errors.ModelNotFound):
        client.get_model_metadata("missing")


def test_a_server_is_not_ready_when_a_model_is_unloaded(client: Client) -> None:
    client.unload_model("spare")
    eventually(lambda: not client.is_model_ready("spare"), "the model is unloaded")
    assert not client.is_server_ready()
    with pytest.raises(errors.ModelNotFound, match="Request for unknown model: 'spare' has no available versions"):
        client.infer("spare", {"SECONDS": seconds(0)})


def test_parameters_arrive_with_their_types(client: Client) -> None:
    given: dict[str, bool | int | float | str] = {"flag": True, "count": -7, "text": "é"}
    told = client.infer("told", seconds(0), parameters=given)["OUTPUT0"]
    arrived = json.loads(told.item())
    assert {name: arrived[name] for name in given} == given
    assert {name: type(arrived[name]) for name in given} == {"flag": bool, "count": int, "text": str}


def test_a_higher_priority_goes_first(client: Client) -> None:
    done: list[str] = []

    async def what() -> None:
        def ask(name: str, priority: int) -> asyncio.Future[Any]:
            call = client.async_infer("ranked", seconds(0.3), priority=priority)
            call.add_done_callback(lambda _: done.append(name))
            return call

        def arrived() -> bool:
            row = client.get_inference_statistics("ranked")["model_stats"][0]
            return bool(row["inference_count"])

        # while the first ones execute, the others wait in the queue
        low = [ask(f"low {number}", 2) for number in range(6)]
        await asyncio.to_thread(eventually, arrived, "the first is answered")
        await asyncio.gather(*low, ask("high", 1))

    asyncio.run(what())
    assert len(done) == 7
    assert done.index("high") < 6


def test_awaited_answers_have_ids_and_no_timings_and_management_is_awaited_too(client: Client) -> None:
    async def what() -> None:
        result = await client.async_infer("add_sub", FIRST, FIRST, outputs=["OUTPUT0"], request_id="eight")
        assert (list(result), result.request_id, result.timings) == (["OUTPUT0"], "eight", None)
        assert await client.async_is_server_live()
        assert await client.async_is_model_ready("add_sub", 1)
        assert (await client.async_get_model_config("add_sub"))["name"] == "add_sub"
        assert (await client.async_get_inference_statistics("add_sub"))["model_stats"][0]["name"] == "add_sub"
        with pytest.raises(errors.ModelNotFound, match="'missing' is not found"):
            await client.async_infer("missing", FIRST)
        with pytest.raises(errors.DeadlineExceeded):
            await client.async_infer("slow", seconds(1), deadline=0.1)

    asyncio.run(what())


DOUBLED = b"""
import triton_python_backend_utils as utils

class TritonPythonModel:
    def execute(self, requests):
        tensors = [utils.get_input_tensor_by_name(request, "IN").as_numpy() for request in requests]
        return [utils.InferenceResponse([utils.Tensor("OUT", tensor * 2)]) for tensor in tensors]
"""


def configuration(name: str) -> str:
    tensor = {"data_type": "TYPE_FP32", "dims": [-1]}
    inputs, outputs = [{"name": "IN", **tensor}], [{"name": "OUT", **tensor}]
    return json.dumps({"name": name, "backend": "python", "max_batch_size": 4, "input": inputs, "output": outputs})


def test_a_model_is_loaded_from_files_of_the_client_and_unloaded(client: Client) -> None:
    client.load_model("doubled", config=configuration("doubled"), files={"file:1/model.py": DOUBLED})
    assert client.is_model_ready("doubled")
    np.testing.assert_array_equal(client.doubled.run(seconds(3))["OUT"], seconds(6))
    client.unload_model("doubled")
    eventually(lambda: not client.is_model_ready("doubled"), "the model is unloaded")


def test_a_model_that_cannot_be_loaded_says_why(client: Client) -> None:
    with pytest.raises(errors.KushiError, match="failed to load 'missing', failed to poll from model repository"):
        client.load_model("missing")
    files = {"file:1/model.py": b"raise ValueError('broken on purpose')"}
    with pytest.raises(errors.InvalidInput, match="load failed for model 'broken'"):
        client.load_model("broken", config=configuration("broken"), files=files)
    assert not client.is_model_ready("broken")


def test_regions_of_shared_memory_are_registered(client: Client) -> None:
    with Object(4096) as region:
        client.register_system_shared_memory("images", region.key, 4096)
        row = {"name": "images", "key": region.key, "offset": 0, "byte_size": 4096}
        assert client.get_system_shared_memory_status() == [row]
        assert client.get_system_shared_memory_status("images") == [row]
        with pytest.raises(errors.InvalidInput, match="shared memory region 'images' already in manager"):
            client.register_system_shared_memory("images", region.key, 4096)
        client.unregister_system_shared_memory("images")
    assert client.get_system_shared_memory_status() == []
    with pytest.raises(errors.KushiError, match="Unable to open shared memory region"):
        client.register_system_shared_memory("none", "/kushi-no-such-object", 64)


@pytest.mark.parametrize("kind", ["http", "grpc"])
def test_a_runner_of_bentoml_answers_in_the_form_of_its_type(
    triton: TritonServer, kind: Literal["http", "grpc"]
) -> None:
    async def what() -> None:
        runner = TritonRunner("triton_runner", tritonserver_type=kind, url=f"http://127.0.0.1:{triton.http}")
        result = await runner.add_sub.async_run(FIRST, FIRST)
        np.testing.assert_array_equal(result.as_numpy("OUTPUT0"), 2 * FIRST)
        metadata, config = await runner.get_model_metadata("add_sub"), await runner.get_model_config("add_sub")
        if kind == "http":
            assert (metadata["name"], config["max_batch_size"]) == ("add_sub", 8)
        else:
            assert (metadata.name, config.config.max_batch_size) == ("add_sub", 8)
        assert await runner.is_model_ready("add_sub")
        runner.destroy()

    asyncio.run(what())


def test_calls_share_a_connection(client: Client, triton: TritonServer) -> None:
    before = connections(triton.http)
    client.infer("add_sub", FIRST, FIRST)
    first = connections(triton.http) - before
    assert len(first) == 1
    for _ in range(20):
        client.infer("add_sub", FIRST, FIRST)
        assert client.is_server_live()
    assert connections(triton.http) - before == first


def connections(port: int) -> set[str]:
    """The near ends of the connections that are open to a port of this host."""
    rows = [line.split() for line in Path("/proc/net/tcp").read_text(encoding="ascii").splitlines()[1:]]
    return {row[1] for row in rows if row[2].endswith(f":{port:04X}") and row[3] == ESTABLISHED}


@pytest.mark.usefixtures("installed")
def test_a_server_that_is_killed_is_a_lost_connection_and_its_successor_is_found(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    # the path of a home has to be short: it has sockets in it
    server = started(tmp_path_factory.mktemp("a"))
    with Client(f"http://127.0.0.1:{server.http}") as client:
        # in this server no other test has unloaded anything
        assert client.is_server_ready()

        async def killed() -> None:
            call = client.async_infer("slow", seconds(30), request_id="nine")
            client.infer("add_sub", FIRST, FIRST)
            server.kill()
            with pytest.raises(errors.ConnectionLost) as lost:
                await call
            assert (lost.value.model, lost.value.request_id) == ("slow", "nine")

        asyncio.run(killed())
        with pytest.raises(errors.ConnectionLost, match="nothing listens there; start the server"):
            client.is_server_live()
        successor = started(tmp_path_factory.mktemp("b"), server.ports)
        try:
            np.testing.assert_array_equal(client.infer("add_sub", FIRST, FIRST)["OUTPUT0"], 2 * FIRST)
        finally:
            successor.stop()
