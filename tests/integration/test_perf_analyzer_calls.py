"""The calls that perf_analyzer makes, in its order, over both doors: what it reads before, during and after a window"""

from __future__ import annotations

import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Final

import pytest
from tritonclient import grpc, http

from tests.integration.test_tritonclient import FIRST, SECOND
from tests.serving import GRPC_LINE

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.conftest import StartServer

MODEL: Final = "add_sub"
CONCURRENCY: Final = 4
REQUESTS: Final = 200
PER_SECOND: Final = 400.0


class OverHttp:
    def __init__(self, address: str) -> None:
        self.client: Any = http.InferenceServerClient(address, concurrency=CONCURRENCY)
        self._inputs = filled(http)

    def read(self, name: str, *arguments: str) -> Any:  # noqa: ANN401 - JSON
        return getattr(self.client, name)(*arguments)

    def several_at_a_time(self) -> None:
        for _ in range(REQUESTS // CONCURRENCY):
            asked = [self.client.async_infer(MODEL, self._inputs) for _ in range(CONCURRENCY)]
            for one in asked:
                assert (one.get_result().as_numpy("OUTPUT0") == FIRST + SECOND).all()

    def at_a_rate(self) -> None:
        """Sends at set times, whatever is answered meanwhile"""
        begin = time.monotonic()
        asked = []
        for number in range(REQUESTS):
            time.sleep(max(0.0, begin + number / PER_SECOND - time.monotonic()))
            asked.append(self.client.async_infer(MODEL, self._inputs, request_id=str(number)))
        assert [one.get_result().get_response()["id"] for one in asked] == [str(number) for number in range(REQUESTS)]


class OverGrpc:
    def __init__(self, address: str) -> None:
        self.client: Any = grpc.InferenceServerClient(address)
        self._inputs = filled(grpc)

    def read(self, name: str, *arguments: str) -> Any:  # noqa: ANN401 - JSON
        return getattr(self.client, name)(*arguments, as_json=True)

    def several_at_a_time(self) -> None:
        def asks(_: int) -> None:
            assert (self.client.infer(MODEL, self._inputs).as_numpy("OUTPUT0") == FIRST + SECOND).all()

        with ThreadPoolExecutor(CONCURRENCY) as threads:
            list(threads.map(asks, range(REQUESTS)))

    def at_a_rate(self) -> None:
        """The same on one stream, as with --streaming"""
        answers: SimpleQueue[Any] = SimpleQueue()
        self.client.start_stream(lambda result, error: answers.put((result, error)))
        begin = time.monotonic()
        for number in range(REQUESTS):
            time.sleep(max(0.0, begin + number / PER_SECOND - time.monotonic()))
            self.client.async_stream_infer(MODEL, self._inputs, request_id=str(number))
        for number in range(REQUESTS):
            result, error = answers.get(timeout=30)
            assert (error, result.get_response().id) == (None, str(number))
        self.client.stop_stream()


def filled(module: Any) -> list[Any]:  # noqa: ANN401 - either of tritonclient's
    made = [module.InferInput(name, [1, 16], "INT32") for name in ("INPUT0", "INPUT1")]
    for one, values in zip(made, (FIRST, SECOND), strict=True):
        one.set_data_from_numpy(values)
    return made


@pytest.fixture(params=[OverHttp, OverGrpc])
def asker(
    request: pytest.FixtureRequest, standard_repository: Path, start_server: StartServer
) -> Iterator[OverHttp | OverGrpc]:
    server = start_server(standard_repository, "--allow-client-shm=true")
    port = server.http[1] if request.param is OverHttp else server.log.wait_for(GRPC_LINE, 10).group(1)
    asker = request.param(f"127.0.0.1:{port}")
    with asker.client:
        yield asker


def counted(asker: OverHttp | OverGrpc) -> Counter[str]:
    """What stands in the columns of its report"""
    (row,) = asker.read("get_inference_statistics", MODEL)["model_stats"]
    # what is 0 is left out where messages become JSON
    stats = row.get("inference_stats", {})
    parts = ("queue", "compute_input", "compute_infer", "compute_output")
    return Counter(
        inferences=int(row.get("inference_count", 0)),
        executions=int(row.get("execution_count", 0)),
        answered=int(stats.get("success", {}).get("count", 0)),
        ns=int(stats.get("success", {}).get("ns", 0)),
        **{f"{part}_ns": int(stats.get(part, {}).get("ns", 0)) for part in parts},
    )


def test_what_is_read_before_it_begins(asker: OverHttp | OverGrpc) -> None:
    assert asker.client.is_server_live()
    assert asker.client.is_model_ready(MODEL)
    extensions = set(asker.read("get_server_metadata")["extensions"])
    assert {"statistics", "model_configuration", "system_shared_memory"} <= extensions
    metadata = asker.read("get_model_metadata", MODEL)
    assert [one["datatype"] for one in metadata["inputs"]] == ["INT32", "INT32"]
    config = asker.read("get_model_config", MODEL)
    config = config.get("config", config)
    assert int(config["max_batch_size"]) == 8
    asker.client.update_trace_settings(settings={"trace_level": ["OFF"], "trace_rate": "1000"})
    assert asker.read("get_trace_settings")
    assert asker.read("get_system_shared_memory_status") in ([], {})
    asker.client.unregister_system_shared_memory()
    asker.client.unregister_cuda_shared_memory()


@pytest.mark.clock
@pytest.mark.parametrize("mode", ["concurrency", "request rate"])
def test_the_figures_of_a_window_are_those_of_its_requests(asker: OverHttp | OverGrpc, mode: str) -> None:
    before, began = counted(asker), time.monotonic_ns()
    if mode == "concurrency":
        asker.several_at_a_time()
    else:
        asker.at_a_rate()
    took, window = time.monotonic_ns() - began, counted(asker)
    window.subtract(before)
    assert window["inferences"] == window["answered"] == REQUESTS
    assert 0 < window["executions"] <= REQUESTS
    parts = sum(window[f"{part}_ns"] for part in ("queue", "compute_input", "compute_infer", "compute_output"))
    assert 0 < parts <= window["ns"] <= took * REQUESTS
