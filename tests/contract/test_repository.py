"""The repository: its index, and models loaded and unloaded on demand, raw and with the real ``tritonclient``."""

from __future__ import annotations

import asyncio
import json
import shutil
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pytest
from tritonclient import http
from tritonclient.http import aio
from tritonclient.utils import InferenceServerException

from tests import models
from tests.contract import requests
from tests.contract.requests import ADD_SUB_INPUTS, Infer, Tensor
from tests.held import hold_file
from tests.integration.occupied import send_behind_another
from tests.raw_http import frame
from tests.waiting import eventually

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import StartServer
    from tests.raw_http import Response
    from tests.serving import Server

EXPLICIT = "--model-control-mode=explicit"
INDEX = "/v2/repository/index"
HEADERS, BODY = requests.body(Infer("add_sub", ADD_SUB_INPUTS))
ROW = {"name": "add_sub", "version": "1", "state": "READY"}
UNLOADED = {"name": "add_sub", "version": "1", "state": "UNAVAILABLE", "reason": "unloaded"}
GONE = "Request for unknown model: 'add_sub' has no available versions"
GONE_VERSION = "Request for unknown model: 'add_sub' version 1 is not at ready state"


@pytest.fixture
def explicit(repository: Path, start_server: StartServer) -> Server:
    """A server over an add_sub that is not loaded."""
    models.write_add_sub(repository)
    return start_server(repository, EXPLICIT)


def index(server: Server, body: bytes = b"") -> Any:  # noqa: ANN401 - a JSON document
    response = server.post(INDEX, body)
    assert (response.status, response.header("content-type")) == (200, "application/json")
    return response.json()


def change(server: Server, name: str, action: str, body: bytes = b"") -> Response:
    return server.post(f"/v2/repository/models/{name}/{action}", body)


def test_what_is_not_loaded_is_listed_by_its_name_alone(explicit: Server) -> None:
    assert index(explicit) == [{"name": "add_sub"}]
    assert index(explicit, b"{}") == [{"name": "add_sub"}]
    assert index(explicit, b'{"ready":false}') == [{"name": "add_sub"}]
    assert index(explicit, b'{"ready":true}') == []
    assert explicit.post(requests.path("add_sub"), BODY, HEADERS).status == 404


def test_a_model_is_loaded_serves_and_is_unloaded(explicit: Server) -> None:
    loaded = change(explicit, "add_sub", "load")
    assert (loaded.status, loaded.body) == (200, b"")
    assert index(explicit) == [ROW]
    assert index(explicit, b'{"ready":true}') == [ROW]
    assert explicit.post(requests.path("add_sub"), BODY, HEADERS).status == 200
    unloaded = change(explicit, "add_sub", "unload", b'{"parameters":{"unload_dependents":true}}')
    assert (unloaded.status, unloaded.body) == (200, b"")
    latest = [explicit.post(requests.path("add_sub"), BODY, HEADERS), explicit.get("/v2/models/add_sub/ready")]
    assert {(answer.status, answer.error) for answer in latest} == {(404, GONE)}
    first = [
        explicit.post(requests.path("add_sub", "1"), BODY, HEADERS),
        explicit.get("/v2/models/add_sub/versions/1/ready"),
    ]
    assert {(answer.status, answer.error) for answer in first} == {(503, GONE_VERSION)}
    statistics = explicit.get("/v2/models/add_sub/stats")
    assert (statistics.status, statistics.error) == (400, "requested model 'add_sub' is not available")
    eventually(lambda: index(explicit) == [UNLOADED], "the model is unloaded")
    assert index(explicit, b'{"ready":true}') == []
    assert explicit.get("/v2/health/ready").status == 200
    assert change(explicit, "add_sub", "load").status == 200
    assert explicit.post(requests.path("add_sub"), BODY, HEADERS).status == 200


def test_what_is_unloaded_and_gone_from_the_repository_is_not_listed(explicit: Server, repository: Path) -> None:
    assert change(explicit, "add_sub", "load").status == 200
    shutil.rmtree(repository / "add_sub")
    assert index(explicit) == [ROW]
    assert change(explicit, "add_sub", "unload").status == 200
    eventually(lambda: index(explicit) == [], "the model is unloaded")


def test_unloading_an_unknown_model_does_nothing(explicit: Server) -> None:
    unloaded = change(explicit, "missing", "unload")
    assert (unloaded.status, unloaded.body) == (200, b"")
    assert index(explicit) == [{"name": "add_sub"}]


def test_a_model_that_comes_later_is_listed_and_can_be_loaded(explicit: Server, repository: Path) -> None:
    models.write(repository, "a later one", models.plus_constant(1))
    assert index(explicit) == [{"name": "a later one"}, {"name": "add_sub"}]
    assert change(explicit, "a%20later%20one", "load").status == 200
    assert index(explicit)[0] == {"name": "a later one", "version": "1", "state": "READY"}


def test_a_name_may_be_anything_that_is_no_path(explicit: Server, repository: Path) -> None:
    for name in ("model..1", "1", "ü", "a+b&c=d"):
        models.write(repository, name, models.plus_constant(1))
        quoted = quote(name, safe="")
        assert change(explicit, quoted, "load").status == 200
        assert {"name": name, "version": "1", "state": "READY"} in index(explicit)
        assert explicit.get(f"/v2/models/{quoted}/ready").status == 200
        assert change(explicit, quoted, "unload").status == 200


def test_a_second_order_for_a_model_that_is_changing_waits(explicit: Server, repository: Path) -> None:
    with hold_file(repository / "add_sub/1/model.onnx") as held, explicit.connect() as first:
        first.send(frame("POST", "/v2/repository/models/add_sub/load"))
        held.wait_until_asked_for()
        with ExitStack() as opened:
            later = [
                opened.enter_context(
                    send_behind_another(explicit, frame("POST", f"/v2/repository/models/add_sub/{verb}"))
                )
                for verb in ("load", "unload", "load")
            ]
            assert not any(connection.has_answer() for connection in (first, *later))
            held.release()
            assert [connection.receive().status for connection in (first, *later)] == [200] * 4
    # which of them was the last is open: they came over connections that different threads read
    assert change(explicit, "add_sub", "load").status == 200
    assert explicit.get("/v2/models/add_sub/ready").status == 200


def test_a_version_that_is_on_its_way_is_answered_with_503(explicit: Server, repository: Path) -> None:
    io = ([("INPUT0", "FP32", [-1])], [("OUTPUT0", "FP32", [-1])])
    text = models.config("m", *io, max_batch_size=8)
    models.write(repository, "m", models.identity("FP32", ["batch", "n"]), text)
    headers, body = requests.body(Infer("m", [Tensor("INPUT0", "FP32", (1, 1), values=[1.0])]))

    def asked(version: str) -> list[Response]:
        path = f"/v2/models/m{version}"
        read = [explicit.get(path + what) for what in ("", "/ready", "/config")]
        plain = [explicit.post(f"{path}/{verb}", b'{"INPUT0": [1]}') for verb in ("generate", "generate_stream")]
        return [*read, *plain, explicit.post(f"{path}/infer", body, headers)]

    with hold_file(repository / "m/1/model.onnx") as held, explicit.connect() as loading:
        loading.send(frame("POST", "/v2/repository/models/m/load"))
        held.wait_until_asked_for()
        assert index(explicit)[1] == {"name": "m", "version": "1", "state": "LOADING"}
        assert index(explicit, b'{"ready":true}') == []
        for answer in asked("/versions/1"):
            text = "Request for unknown model: 'm' version 1 is not at ready state"
            assert (answer.status, answer.error) == (503, text)
            assert (answer.header("retry-after"), answer.header("kushi-error")) == ("1", "model_not_ready")
        for answer in asked(""):
            text = "Request for unknown model: 'm' has no available versions"
            assert (answer.status, answer.error, answer.header("retry-after")) == (404, text, None)
        statistics = explicit.get("/v2/models/m/stats")
        assert (statistics.status, statistics.error) == (400, "requested model 'm' is not available")
        traces = explicit.get("/v2/models/m/trace/setting")
        assert (traces.status, traces.error) == (400, "Request for unknown model : m")
        ready = explicit.get("/v2/health/ready")
        assert (ready.status, ready.json()) == (400, {"ready": False})
        assert explicit.get("/v2/health/live").status == 200
        held.release()
        assert loading.receive().status == 200
    assert [answer.status for answer in asked("/versions/1")] == [200] * 6


def test_a_model_that_has_not_changed_is_loaded_again_all_the_same(explicit: Server) -> None:
    def count() -> Any:  # noqa: ANN401 - a JSON document
        return explicit.get("/v2/models/add_sub/stats").json()["model_stats"][0]["inference_count"]

    for _ in range(2):
        assert change(explicit, "add_sub", "load").status == 200
        assert count() == 0
        assert explicit.post(requests.path("add_sub"), BODY, HEADERS).status == 200
        assert count() == 1


def test_a_load_that_fails_says_why_in_its_answer_and_in_the_index(explicit: Server, repository: Path) -> None:
    models.write(repository, "broken", {1: b"no model", 2: b"none either"}, "version_policy { all { } }")
    failed = change(explicit, "broken", "load")
    assert (failed.status, failed.header("kushi-error")) == (400, "model_unavailable")
    reasons = [row["reason"] for row in index(explicit) if row["name"] == "broken"]
    clauses = "".join(
        f"version {version} is at UNAVAILABLE state: {reason};" for version, reason in enumerate(reasons, start=1)
    )
    assert failed.error == f"load failed for model 'broken': {clauses}\n"
    assert len(reasons) == 2
    assert explicit.get("/v2/health/ready").status == 400
    assert change(explicit, "broken", "unload").status == 200
    assert explicit.get("/v2/health/ready").status == 200


def test_a_reload_that_fails_leaves_the_model_serving(explicit: Server, repository: Path) -> None:
    assert change(explicit, "add_sub", "load").status == 200
    (repository / "add_sub/1/model.onnx").write_bytes(b"no model")
    failed = change(explicit, "add_sub", "load")
    assert failed.status == 400
    assert failed.error.startswith("load failed for model 'add_sub': version 1 is at UNAVAILABLE state: ")
    assert index(explicit) == [ROW]
    (repository / "add_sub/config.pbtxt").write_text("max_batch_size: -1")
    failed = change(explicit, "add_sub", "load")
    assert failed.status == 500
    assert failed.error.startswith("failed to load 'add_sub', failed to poll from model repository: ")
    assert explicit.post(requests.path("add_sub"), BODY, HEADERS).status == 200


def test_a_server_that_controls_no_models_lists_them(server: Server) -> None:
    rows = index(server)
    assert ROW in rows
    assert rows == sorted(rows, key=lambda row: (row["name"], int(row["version"])))
    assert json.loads(server.post(INDEX, b'{"ready":true,"more":1}').body) == rows


def test_timings_are_told_to_who_asks(server: Server) -> None:
    told = server.post(requests.path("add_sub"), BODY, [*HEADERS, ("kushi-timings", "true")])
    timings = [int(number) for number in (told.header("kushi-timings") or "").split(",")]
    assert len(timings) == 4
    assert timings[2] > 0
    assert server.post(requests.path("add_sub"), BODY, HEADERS).header("kushi-timings") is None


def test_tritonclient_lists_loads_and_unloads(explicit: Server, repository: Path) -> None:
    with http.InferenceServerClient(f"{explicit.http[0]}:{explicit.http[1]}") as client:
        assert client.get_model_repository_index() == [{"name": "add_sub"}]
        client.load_model("add_sub")
        assert client.is_model_ready("add_sub")
        assert client.get_model_repository_index() == [ROW]
        client.unload_model("add_sub", unload_dependents=True)
        assert not client.is_model_ready("add_sub")
        config = json.dumps({"backend": "onnxruntime"})
        files = {"file:3/model.onnx": (repository / "add_sub/1/model.onnx").read_bytes()}
        client.load_model("add_sub", config=config, files=files)
        assert client.is_model_ready("add_sub", "3")
        assert not client.is_model_ready("add_sub", "1")
        client.unload_model("add_sub")
        with pytest.raises(InferenceServerException) as raised:
            client.load_model("missing")
        assert raised.value.message() == "failed to load 'missing', failed to poll from model repository"
        assert raised.value.status() == "500"
        shutil.rmtree(repository)
        eventually(lambda: client.get_model_repository_index() == [], "what was unloaded has gone")


def test_tritonclient_aio_lists_loads_and_unloads(explicit: Server) -> None:
    async def talk() -> None:
        async with aio.InferenceServerClient(f"{explicit.http[0]}:{explicit.http[1]}") as client:
            assert await client.get_model_repository_index() == [{"name": "add_sub"}]
            await client.load_model("add_sub")
            assert await client.get_model_repository_index() == [ROW]
            await client.unload_model("add_sub")
            assert not await client.is_model_ready("add_sub")
            with pytest.raises(InferenceServerException, match="failed to poll from model repository"):
                await client.load_model("missing")

    asyncio.run(talk())
